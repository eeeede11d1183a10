// Claim: how a fused record is cut is a pure function of what both of its ends know; no column is without a
// segment, and no segment size of whole steps would cost less. How: the function, size by size.
#include <gtest/gtest.h>

#include "sealring/device/cuda/fused_job.h"

namespace sealring::cuda::test {
namespace {

/// Turns of the column that has the most.
std::uint64_t turns_of(std::uint64_t bytes, std::uint32_t columns, std::uint32_t segment_bytes) {
  const std::uint64_t segments = RecordLayout::of(bytes, segment_bytes).segments();
  return (segments + columns - 1) / columns;
}

/// No column without a segment, and no size of whole steps that would cost less.
void expect_cut(std::uint64_t bytes, std::uint32_t ranks, std::uint32_t columns_max) {
  const FusedCut cut = fused_cut(bytes, ranks, columns_max);
  ASSERT_GE(cut.segment_bytes, kFusedSegmentMin);
  ASSERT_LE(cut.segment_bytes, fused_segment_max(ranks));
  ASSERT_EQ(cut.segment_bytes % kFusedSegmentMin, 0u);
  EXPECT_EQ(cut.columns,
            std::min<std::uint64_t>(RecordLayout::of(bytes, cut.segment_bytes).segments(), columns_max));
  if (cut.segment_bytes < kFusedStep) {
    EXPECT_LT(bytes, 2ull * kFusedStep * columns_max);
    return;
  }
  const std::uint64_t cost =
      fused_cost(turns_of(bytes, columns_max, cut.segment_bytes), cut.segment_bytes / kFusedStep);
  for (std::uint32_t steps = 1; steps * kFusedStep <= fused_segment_max(ranks); ++steps)
    EXPECT_LE(cost, fused_cost(turns_of(bytes, columns_max, steps * kFusedStep), steps)) << steps;
}

// By the op alone, whichever end asks.
TEST(FusedCut, StepsWhoseKernelHasNoTeamsHaveColumnsOfTheirOwn) {
  FusedTuning tuning{198, kSmallBytesMax, 0, 66};
  const std::uint64_t large = 256ull << 20;
  DeviceOp op;
  const auto columns = [&](RedOp redop, DType dtype, bool small = false) {
    op.redop = redop;
    op.dtype = dtype;
    return cut_of(2, op, tuning, small, small ? kSmallBytesMax : large).columns;
  };
  EXPECT_EQ(columns(RedOp::sum, DType::f32), 198u);
  EXPECT_EQ(columns(RedOp::sum, DType::bf16), 198u);
  EXPECT_EQ(columns(RedOp::none, DType::i64), 198u);
  EXPECT_EQ(columns(RedOp::sum, DType::i32), 66u);
  EXPECT_EQ(columns(RedOp::max, DType::f32), 66u);
  EXPECT_EQ(columns(RedOp::avg, DType::f32), 66u);
  tuning.columns_alone = 16;
  EXPECT_EQ(columns(RedOp::sum, DType::f32, true), 16u);
  EXPECT_EQ(cut_of(2, op, FusedTuning{198}, false, large).columns, 198u);
}

TEST(FusedCut, TheCutIsAPureFunction) {
  // The sizes whose times the cost was fitted to, or that it was fitted for: columns of a whole H200.
  EXPECT_EQ(fused_cut(1ull << 30, 2, 396).segment_bytes, 32u * 1024);
  EXPECT_EQ(fused_cut(256ull << 20, 2, 396).segment_bytes, 32u * 1024);
  EXPECT_EQ(fused_cut(64ull << 20, 2, 396).segment_bytes, 24u * 1024);
  EXPECT_EQ(fused_cut(25ull << 20, 2, 396).segment_bytes, 24u * 1024);
  EXPECT_EQ(fused_cut(64 << 10, 2, 264).segment_bytes, 2u * 1024);
  EXPECT_EQ(fused_cut(64 << 10, 2, 264).columns, 32u);
  EXPECT_EQ(fused_cut(1ull << 30, 4, 264).segment_bytes, 16u * 1024);
  EXPECT_EQ(fused_cut(1ull << 30, 8, 264).segment_bytes, 8u * 1024);
  EXPECT_EQ(fused_cut(0, 2, 264).columns, 1u);
  for (std::uint64_t bytes = 1; bytes < 1ull << 32; bytes *= 3) {
    for (const std::uint32_t ranks : {2u, 4u, 8u}) {
      for (const std::uint32_t columns : {1u, 3u, 32u, 132u, 264u, 396u})
        ASSERT_NO_FATAL_FAILURE(expect_cut(bytes, ranks, columns)) << bytes;
    }
    const FusedCut cut = fused_cut(bytes, 2, 132);
    EXPECT_LE(WindowShape::of(132, cut.segment_bytes).bytes(), 32ull << 20);
  }
}

}  // namespace
}  // namespace sealring::cuda::test
