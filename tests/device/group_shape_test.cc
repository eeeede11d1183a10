// Claim: how many columns and blocks a fused step has is a pure function of the group's configuration and of
// the GPU, alike on all ranks; ranks that share a GPU all have room; a bound on blocks is kept, and where it
// is low, each block has as many columns as fit a multiprocessor. How: the function, configuration by
// configuration.
#include "sealring/device/cuda/group_shape.h"

#include <gtest/gtest.h>

namespace sealring::cuda {
namespace {

constexpr std::uint32_t kMultiprocessors = 132;

FusedGrid grid(DeviceWireKind wire, std::size_t ranks, unsigned columns) {
  DeviceGroupConfig config;
  config.wire = wire;
  config.members.resize(ranks);
  config.columns = columns;
  return fused_grid(config, kMultiprocessors);
}

TEST(FusedGrid, ByDefaultAllThatFitAtOnceABlockEach) {
  for (const DeviceWireKind wire : {DeviceWireKind::ipc, DeviceWireKind::fabric}) {
    const FusedGrid two = grid(wire, 2, 0), eight = grid(wire, 8, 0);
    EXPECT_EQ(two.columns, 3 * kMultiprocessors);
    EXPECT_EQ(two.blocks, two.columns);
    EXPECT_EQ(two.alone, 2 * kMultiprocessors);  // two blocks of their kernel fit
    EXPECT_EQ(eight.columns, 2 * kMultiprocessors);
    EXPECT_EQ(eight.blocks, eight.columns);
  }
}

TEST(FusedGrid, RanksThatShareAGpuAllHaveRoom) {
  for (std::size_t ranks = 2; ranks <= kFusedRanksMax; ++ranks) {
    const FusedGrid each = grid(DeviceWireKind::local, ranks, 0);
    const std::size_t resident = ranks == 2 ? 3 : 2;
    EXPECT_LE(ranks * each.blocks, (kMultiprocessors - 1) * resident);
    EXPECT_GT((ranks + 1) * each.blocks, (kMultiprocessors - 2) * resident);
    EXPECT_EQ(each.blocks, each.columns);
    EXPECT_EQ(grid(DeviceWireKind::local, ranks, 5).columns, 5u);
    EXPECT_EQ(grid(DeviceWireKind::local, ranks, 5).blocks, 5u);
  }
  DeviceGroupConfig tiny;
  tiny.wire = DeviceWireKind::local;
  tiny.members.resize(2);
  EXPECT_EQ(fused_grid(tiny, 1).columns, 1u);
}

TEST(FusedGrid, ABoundOnBlocksIsKeptAndAMultiprocessorFilled) {
  for (const unsigned bound : {1u, 66u, 132u}) {
    const FusedGrid few = grid(DeviceWireKind::ipc, 2, bound);
    EXPECT_EQ(few.blocks, bound);
    EXPECT_EQ(few.alone, bound);
    EXPECT_EQ(few.columns, kFusedTeams * bound);
    EXPECT_TRUE(few.has_teams());
  }
  for (const unsigned bound : {133u, 264u, 396u}) {
    const FusedGrid many = grid(DeviceWireKind::ipc, 2, bound);
    EXPECT_EQ(many.blocks, bound);
    EXPECT_EQ(many.columns, bound);
    EXPECT_FALSE(many.has_teams());
  }
  EXPECT_EQ(grid(DeviceWireKind::ipc, 3, 66).columns, 66u);
  EXPECT_EQ(grid(DeviceWireKind::ipc, 3, 66).blocks, 66u);
}

TEST(FusedGrid, BlocksOfAesGcmHaveFourColumnsEach) {
  DeviceGroupConfig config;
  config.members.resize(2);
  for (const Suite suite : {Suite::aes_256_gcm, Suite::aes_128_gcm}) {
    config.suite = suite;
    for (const DeviceWireKind wire : {DeviceWireKind::ipc, DeviceWireKind::local}) {
      config.wire = wire;
      config.columns = 0;
      const FusedGrid all = fused_grid(config, kMultiprocessors);
      // A block takes a whole multiprocessor; of ranks that share the GPU all have room.
      EXPECT_EQ(all.blocks, wire == DeviceWireKind::local ? (kMultiprocessors - 1) / 2 : kMultiprocessors);
      for (const unsigned bound : {0u, 1u, 66u, 1000u}) {
        config.columns = bound;
        const FusedGrid grid = fused_grid(config, kMultiprocessors);
        EXPECT_EQ(grid.each, kGcmColumns);
        EXPECT_EQ(grid.columns, kGcmColumns * grid.blocks);
        EXPECT_LE(grid.columns, kFusedColumnsMax);
        EXPECT_FALSE(grid.has_teams());
        const std::uint32_t most =
            wire == DeviceWireKind::local ? all.blocks : kFusedColumnsMax / kGcmColumns;
        if (bound != 0) {
          EXPECT_EQ(grid.blocks, std::min(bound, most));
        }
        if (wire == DeviceWireKind::local) {
          EXPECT_LT(2 * grid.blocks, kMultiprocessors);
        }
      }
    }
  }
}

TEST(FusedGrid, WhichGroupsHaveFusedKernels) {
  const auto fused = [](Suite suite, std::size_t ranks, DeviceWireKind wire = DeviceWireKind::ipc) {
    DeviceGroupConfig config;
    config.suite = suite;
    config.members.resize(ranks);
    config.wire = wire;
    return has_fused(config);
  };
  for (std::size_t ranks = 1; ranks <= kFusedRanksMax + 1; ++ranks) {
    EXPECT_EQ(fused(Suite::chacha20_poly1305, ranks), ranks >= 2 && ranks <= kFusedRanksMax);
    EXPECT_EQ(fused(Suite::aes_256_gcm, ranks), ranks == 2);
    EXPECT_EQ(fused(Suite::aes_128_gcm, ranks), ranks == 2);
    EXPECT_FALSE(fused(Suite::plain, ranks));
  }
  EXPECT_FALSE(fused(Suite::aes_256_gcm, 2, DeviceWireKind::nccl));
  EXPECT_FALSE(fused(Suite::chacha20_poly1305, 2, DeviceWireKind::nccl));
}

// Else the windows of two ranks with different GPUs would differ in size.
TEST(FusedGrid, ColumnsThatWereAskedForAreTheSameOnEveryGpu) {
  for (const DeviceWireKind wire : {DeviceWireKind::ipc, DeviceWireKind::fabric, DeviceWireKind::local}) {
    for (std::size_t ranks = 2; ranks <= kFusedRanksMax; ++ranks) {
      for (const unsigned bound : {1u, 66u, 114u, 120u, 132u, 133u, 396u}) {
        DeviceGroupConfig config;
        config.wire = wire;
        config.members.resize(ranks);
        config.columns = bound;
        const FusedGrid small = fused_grid(config, 20), large = fused_grid(config, 200);
        EXPECT_EQ(small.columns, large.columns);
        EXPECT_EQ(small.alone, large.alone);
        EXPECT_LE(small.columns, kFusedColumnsMax);
        EXPECT_GE(small.columns, bound);
      }
    }
  }
  DeviceGroupConfig config;
  config.members.resize(2);
  config.columns = 66;
  EXPECT_EQ(fused_grid(config, 20).blocks, 20u);
}

}  // namespace
}  // namespace sealring::cuda
