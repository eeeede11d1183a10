// Claim: the host's run of a kernel body refuses what would make a GPU wait for ever, and runs parts of a
// block as a GPU does. How: a warp-wide instruction inside a step aborts the process; each part counts its
// own warps and phases.
#include "sealring/device/cuda/block.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace sealring::cuda {
namespace {

TEST(HostWarpDeathTest, AWarpWideInstructionInsideAStep) {
  HostBlock block(kLanes);
  const auto index_in_step = [&] {
    block.phase([](HostWarp& warp) {
      warp.step([&](int lane) {
        if (lane == 0) (void)warp.index();
      });
    });
  };
  EXPECT_DEATH(index_in_step(), "warp-wide");
  const auto sum_in_each = [&] {
    block.phase([](HostWarp& warp) {
      const HostWarp::Lanes<std::uint32_t> ones{};
      warp.each([&](int) { (void)warp.sum(ones); });
    });
  };
  EXPECT_DEATH(sum_in_each(), "warp-wide");
}

TEST(HostWarp, BetweenStepsAllIsWell) {
  HostBlock block(kLanes);
  std::uint32_t total = 0;
  block.phase([&](HostWarp& warp) {
    HostWarp::Lanes<std::uint32_t> values{};
    warp.step([&](int lane) { values[lane] = static_cast<std::uint32_t>(lane); });
    total = warp.sum(values) + static_cast<std::uint32_t>(warp.index());
  });
  EXPECT_EQ(total, 31u * 32u / 2);
}

TEST(HostBlock, PartsHaveWarpsAndPhasesOfTheirOwn) {
  constexpr int kParts = 3, kWarps = 2;
  HostBlock block(kParts * kWarps * kLanes);
  std::array<std::vector<int>, kParts> seen;
  std::array<int, kParts> threads{};
  block.parts(kParts, [&](HostBlock& part, int index) {
    EXPECT_EQ(part.warps(), kWarps);
    for (int phase = 0; phase <= index; ++phase) {  // as many as no other part has
      part.phase([&](HostWarp& warp) { seen[static_cast<std::size_t>(index)].push_back(warp.index()); });
    }
    part.any([&](int thread) {
      EXPECT_EQ(thread / kLanes / kWarps, index);
      ++threads[static_cast<std::size_t>(index)];
      return false;
    });
  });
  EXPECT_EQ(seen[0], (std::vector<int>{0, 1}));
  EXPECT_EQ(seen[1], (std::vector<int>{2, 3, 2, 3}));
  EXPECT_EQ(seen[2], (std::vector<int>{4, 5, 4, 5, 4, 5}));
  for (const int count : threads) EXPECT_EQ(count, kWarps * kLanes);
}

}  // namespace
}  // namespace sealring::cuda
