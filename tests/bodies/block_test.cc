// Claim: the host's run of a kernel body refuses what would make a GPU wait for ever.
// How: a warp-wide instruction inside a step aborts the process.
#include "sealring/device/cuda/block.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace sealring::cuda
