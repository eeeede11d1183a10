// Claim: blocks that fill a multiprocessor (16 workers) give what blocks of four give: the exact result or an
// error and a poisoned output, whatever their order, their lengths and their windows; segments are the same
// bytes for either, so that a rank with one kind meets a rank with the other. How: the kernel's body runs on
// the host under a random scheduler, with an adversary at every post; results are the CPU's.
#include <gtest/gtest.h>

#include "tests/bodies/fused_steps.h"

namespace sealring::cuda::test {
namespace {

SteppingWorld wide_world(std::uint32_t columns, std::uint64_t seed) {
  SteppingWorld world(2, columns, seed);
  world.wide = true;
  return world;
}

// Around whole chunks, tiles of a worker (2 KiB), and the 32 KiB that all workers take at once.
TEST(FusedWide, SizesAroundEveryEdge) {
  for (const std::uint64_t bytes : {0u, 16u, 2048u, 4096u, 32768u, 65536u}) {
    for (const std::uint64_t by : {0u, 1u, 2u, 5u}) {
      for (const bool less : {false, true}) {
        if (less && bytes / 4 < by) continue;
        const std::uint64_t elements = less ? bytes / 4 - by : bytes / 4 + by;
        SteppingWorld world = wide_world(1 + static_cast<std::uint32_t>(elements % 3), elements);
        StepCase c{elements, DType::f32, RedOp::sum, elements % 2 == 1, 1024, elements};
        world.all_reduce(c);
        ASSERT_NO_FATAL_FAILURE(world.expect_right()) << elements;
        world.reduce_scatter(c);
        ASSERT_NO_FATAL_FAILURE(world.expect_right()) << elements;
        c.redop = RedOp::none;
        world.all_gather(c);
        ASSERT_NO_FATAL_FAILURE(world.expect_right()) << elements;
      }
    }
  }
}

TEST(FusedWide, EverySumAtAnyAlignment) {
  std::mt19937_64 random(1);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (std::uint64_t shift = 0; shift < 16; ++shift) {
      SteppingWorld world = wide_world(2, random());
      world.all_reduce({1 + random() % 20000, dtype, RedOp::sum, random() % 2 == 0, 1024, 2 * shift + 1});
      ASSERT_NO_FATAL_FAILURE(world.expect_right()) << to_string(dtype) << " " << shift;
    }
  }
}

TEST(FusedWide, SegmentsOfTheirLargestSizeInAnyOrderOfBlocks) {
  std::mt19937_64 random(2);
  for (int run = 0; run < 8; ++run) {
    SteppingWorld world = wide_world(3, random());
    world.segment_bytes = kFusedSegmentMax;
    for (int k = 0; k < 3; ++k) {
      StepCase c{random() % (10 * kFusedSegmentMax / 4), DType::f32, RedOp::sum, random() % 2 == 0};
      c.resident = 1 + static_cast<std::uint32_t>(random() % 3);
      c.seed = random();
      world.all_reduce(c);
      ASSERT_NO_FATAL_FAILURE(world.expect_right()) << "run " << run << " op " << k;
    }
  }
}

// Ranks pick their kernel by their own GPU, so two of them may differ: the window's bytes must not.
TEST(FusedWide, AWindowHoldsTheSameBytesAsWithNarrowBlocks) {
  const StepCase c{3 * kFusedSegmentMax / 4 + 77, DType::f32, RedOp::sum, false, 1024, 3};
  SteppingWorld narrow(2, 2, 9);
  SteppingWorld wide = wide_world(2, 9);
  narrow.all_reduce(c);
  wide.all_reduce(c);
  ASSERT_NO_FATAL_FAILURE(narrow.expect_right());
  ASSERT_NO_FATAL_FAILURE(wide.expect_right());
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const auto slots = [&](FusedWorld& world) {
      return world.windows[rank]->span().first(world.region().words_begin());
    };
    EXPECT_TRUE(std::ranges::equal(slots(narrow), slots(wide)));
    EXPECT_TRUE(std::ranges::any_of(slots(wide), [](std::byte b) { return b != std::byte{0}; }));
  }
}

TEST(FusedWide, EveryByteOfASegmentIsReadOnce) {
  const std::uint64_t elements = 45123;
  SteppingWorld world = wide_world(3, 3);
  world.exchange(StepCase{}, {0, elements, 0, 0});
  ASSERT_NO_FATAL_FAILURE(world.expect_right());
  const FusedCut cut = fused_cut(elements * 4, 2, 3);
  const RecordLayout layout = RecordLayout::of(elements * 4, cut.segment_bytes);
  std::vector<std::uint32_t> wanted(fused_window_bytes(2, 3));
  for (std::uint32_t k = 0; k < layout.segments(); ++k) {
    const std::uint64_t slot = world.region().slot_offset(k % cut.columns, k / cut.columns);
    for (std::uint64_t i = 0; i < layout.payload_of(k) + kTagBytes; ++i) ++wanted[slot + i];
  }
  EXPECT_TRUE(world.reads[1].counts == wanted);
  EXPECT_EQ(world.reads[1].strays, 0u);
}

bool all_poison(DType dtype, std::span<std::byte> memory) {
  Bytes poisoned(memory.size());
  poison(dtype, poisoned);
  return std::ranges::equal(memory, poisoned);
}

TEST(FusedWideHostile, AFlippedBitIsADataTagAndPoison) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SteppingWorld world = wide_world(2, seed);
    world.on_post = [&](const Post& post) {
      if (post.flag && post.from == 0 && post.column == 1 && post.ticket == 2)
        world.region_at(0, 1)[world.region().slot_offset(1, 2) + 131 * seed] ^= std::byte{4};
      return true;
    };
    const StepCase c{22000, DType::bf16, RedOp::sum, seed % 2 == 0, 1024, seed};
    world.all_reduce(c);
    EXPECT_EQ(world.expect_right_or_failed(1), status_of(Code::data_tag));
    EXPECT_TRUE(all_poison(c.dtype, world.output_span(1)));
    EXPECT_EQ(world.opening(0, 1).verdict, status_of(Code::data_tag));
  }
}

TEST(FusedWideHostile, WordsThatAreLostOrForgedNeverMakeAWrongResult) {
  std::mt19937_64 random(4);
  int failed = 0;
  for (int run = 0; run < 30; ++run) {
    SteppingWorld world = wide_world(2, random());
    const bool forges = run % 2 == 0;
    world.on_look = [&](Rank, std::byte* word, std::uint64_t expected) {
      if (forges && world.random() % 30 == 0) FusedWorld::word_at(word).store(expected);
    };
    world.on_post = [&](const Post& post) {
      return forges || post.value == kPoison || world.random() % 30 != 0;
    };
    const StepCase c{12000 + random() % 40000, DType::f32, RedOp::sum, random() % 2 == 0, 2, random()};
    world.all_reduce(c);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const std::uint32_t found = world.expect_right_or_failed(rank);
      if (found == 0) continue;
      ++failed;
      EXPECT_TRUE(all_poison(c.dtype, world.output_span(rank)));
    }
  }
  EXPECT_GT(failed, 10);
}

}  // namespace
}  // namespace sealring::cuda::test
