// Claim: fused steps of three to eight ranks give what the CPU makes of the inputs in rank order, bit for
// bit, or an error and a poisoned output, in whatever order blocks and ranks run. How: the kernels' bodies
// run on the host under a random scheduler, with an adversary at every post.
#include <gtest/gtest.h>

#include "tests/bodies/fused_steps.h"

namespace sealring::cuda::test {
namespace {

constexpr std::uint32_t kWorlds[] = {3, 4, 8};

TEST(FusedMany, ReduceScatterAndAllGatherOfSelectedSizes) {
  for (const std::uint32_t ranks : kWorlds) {
    for (const std::uint64_t elements :
         {0ull, 1ull, 15ull, 16ull, 17ull, 511ull, 512ull, 513ull, 2100ull, 4096ull}) {
      SteppingWorld world(ranks, 1 + static_cast<std::uint32_t>(elements % 3), elements);
      const StepCase c{elements, DType::f32, RedOp::sum, elements % 2 == 1, 1024, elements};
      world.reduce_scatter(c);
      ASSERT_NO_FATAL_FAILURE(world.expect_right()) << ranks << " ranks, " << elements;
      world.all_gather(c);
      ASSERT_NO_FATAL_FAILURE(world.expect_right()) << ranks << " ranks, " << elements;
      world.all_reduce(c);
      ASSERT_NO_FATAL_FAILURE(world.expect_right()) << ranks << " ranks, " << elements;
    }
  }
}

TEST(FusedMany, EveryTypeAndOperation) {
  std::mt19937_64 random(1);
  for (const DType dtype : all_dtypes()) {
    for (const RedOp redop : all_redops()) {
      if (redop != RedOp::none && !reduction_supported(dtype, redop)) continue;
      for (const std::uint32_t ranks : kWorlds) {
        SteppingWorld world(ranks, 2, random());
        const StepCase c{1 + random() % 1500, dtype, redop, random() % 2 == 0, 1024, random()};
        redop == RedOp::none ? world.all_gather(c) : world.reduce_scatter(c);
        ASSERT_NO_FATAL_FAILURE(world.expect_right())
            << ranks << " ranks, " << to_string(dtype) << " " << to_string(redop);
      }
    }
  }
}

// The segments of all peers wait side by side at their largest size.
TEST(FusedMany, SegmentsOfTheirLargestSize) {
  for (const std::uint32_t ranks : {3u, 5u, 6u, 8u}) {
    SteppingWorld world(ranks, 1, ranks);
    const std::uint64_t elements = 6 * fused_segment_max(ranks) / 4 + 37;
    world.segment_bytes = fused_segment_max(ranks);
    world.reduce_scatter({elements, DType::f32, RedOp::sum, true, 1024, 2});
    ASSERT_NO_FATAL_FAILURE(world.expect_right()) << ranks;
    world.all_gather({elements, DType::f32, RedOp::none, true, 1024, 2});
    ASSERT_NO_FATAL_FAILURE(world.expect_right()) << ranks;
  }
}

// Records of any lengths and none, so that ranks have different strides and numbers of columns; op after op.
TEST(FusedMany, AnyRecordsInAnyOrderOfBlocksAndRanks) {
  std::mt19937_64 random(2);
  for (int run = 0; run < 40; ++run) {
    const auto ranks = static_cast<std::uint32_t>(3 + random() % 3);
    SteppingWorld world(ranks, 3, random());
    for (int k = 0; k < 3; ++k) {
      std::vector<std::uint64_t> elements(ranks * ranks);
      for (std::uint32_t i = 0; i < ranks * ranks; ++i)
        elements[i] = i / ranks == i % ranks || random() % 3 == 0 ? 0 : 1 + random() % 27000;
      if (std::ranges::all_of(elements, [](std::uint64_t count) { return count == 0; })) continue;
      StepCase c;
      c.resident = 1 + static_cast<std::uint32_t>(random() % 3);
      c.seed = random();
      world.exchange(c, elements);
      ASSERT_NO_FATAL_FAILURE(world.expect_right()) << "run " << run << " op " << k;
      c.elements = random() % 3000;
      c.redop = RedOp::sum;
      world.reduce_scatter(c);
      ASSERT_NO_FATAL_FAILURE(world.expect_right()) << "run " << run << " op " << k;
    }
    for (std::uint32_t from = 0; from < ranks; ++from) {
      for (std::uint32_t to = 0; to < ranks; ++to) {
        EXPECT_EQ(world.sealing(from, to).segments, world.opening(from, to).segments);
        EXPECT_EQ(world.sealing(from, to).in_use, 0u);
        EXPECT_EQ(world.opening(from, to).in_use, 0u);
      }
    }
  }
}

TEST(FusedMany, EveryByteOfASegmentIsReadOnce) {
  constexpr std::uint64_t kElements = 24001;  // 6 segments in either column
  for (const std::uint32_t ranks : kWorlds) {
    SteppingWorld world(ranks, 2, 3);
    world.count_reads();
    world.reduce_scatter({kElements, DType::f32, RedOp::sum});
    ASSERT_NO_FATAL_FAILURE(world.expect_right());
    const FusedCut cut = fused_cut(kElements * 4, ranks, 2);
    const RecordLayout layout = RecordLayout::of(kElements * 4, cut.segment_bytes);
    std::vector<std::uint32_t> region(world.region().bytes()), wanted;
    for (std::uint32_t k = 0; k < layout.segments(); ++k) {
      const std::uint64_t slot = world.region().slot_offset(k % cut.columns, k / cut.columns);
      for (std::uint64_t i = 0; i < layout.payload_of(k) + kTagBytes; ++i) ++region[slot + i];
    }
    for (std::uint32_t peer = 1; peer < ranks; ++peer)
      wanted.insert(wanted.end(), region.begin(), region.end());
    for (const WindowReads& reads : world.reads) {
      EXPECT_TRUE(reads.counts == wanted);
      EXPECT_EQ(reads.strays, 0u);
    }
  }
}

// Of every output: exact, or an error and poison in all that records came for.
void expect_no_wrong_result(SteppingWorld& world, const StepCase& c) {
  const std::size_t piece = c.elements * dtype_bytes(c.dtype);
  Bytes poisoned(piece);
  poison(c.dtype, poisoned);
  for (std::uint32_t rank = 0; rank < world.ranks(); ++rank) {
    if (world.expect_right_or_failed(rank) == 0) continue;
    const auto output = world.output_span(rank);
    for (std::size_t at = 0; at < output.size(); at += piece) {
      if (output.size() > piece && at == rank * piece) continue;  // all_gather: its own
      EXPECT_TRUE(std::ranges::equal(output.subspan(at, piece), poisoned)) << "rank " << rank;
    }
  }
}

TEST(FusedManyHostile, ABadSegmentOfOnePeerPoisonsTheSumAndNamesThePeer) {
  for (const std::uint32_t ranks : kWorlds) {
    const auto from = static_cast<Rank>(ranks - 1);
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SteppingWorld world(ranks, 2, seed);
      world.on_post = [&](const Post& post) {
        if (post.flag && post.from == from && post.to == 1 && post.column == 1 && post.ticket == 2)
          world.region_at(from, 1)[world.region().slot_offset(1, 2) + 100 * seed] ^= std::byte{16};
        return true;
      };
      StepCase c{11000, DType::bf16, RedOp::sum, seed % 2 == 0, 1024, seed};
      world.reduce_scatter(c);
      EXPECT_EQ(world.verdict(1), status_of(Code::data_tag));
      EXPECT_EQ(world.states[1]->bad_peer, 1 + peer_index(1, from));
      EXPECT_EQ(world.states[1]->bad_segment, 5u);
      expect_no_wrong_result(world, c);
      for (std::uint32_t peer = 0; peer < ranks; ++peer) {
        if (peer == 1) continue;
        EXPECT_EQ(world.sealing(1, peer).verdict, status_of(Code::data_tag));
        EXPECT_EQ(world.opening(peer, 1).verdict, status_of(Code::data_tag));
      }
      // Behind it nobody gets anything from rank 1.
      world.on_post = [](const Post&) { return true; };
      const std::uint64_t sealed = world.sealing(1, 0).segments;
      c.elements = 100;
      world.all_gather(c);
      EXPECT_EQ(world.sealing(1, 0).segments, sealed);
      for (std::uint32_t rank = 0; rank < ranks; ++rank) EXPECT_NE(world.verdict(rank), 0u);
      expect_no_wrong_result(world, c);
    }
  }
}

TEST(FusedManyHostile, WordsThatAreLostOrForgedNeverMakeAWrongResult) {
  std::mt19937_64 random(4);
  int failed = 0;
  for (int run = 0; run < 60; ++run) {
    const auto ranks = static_cast<std::uint32_t>(3 + random() % 2);
    SteppingWorld world(ranks, 2, random());
    const bool forges = run % 2 == 0;
    world.on_look = [&](Rank, std::byte* word, std::uint64_t expected) {
      if (forges && world.random() % 60 == 0) FusedWorld::word_at(word).store(expected);
    };
    world.on_post = [&](const Post& post) {
      return forges || post.value == kPoison || world.random() % 60 != 0;
    };
    const StepCase c{12000 + random() % 12000, DType::f32, RedOp::sum, random() % 2 == 0, 2, random()};
    run % 3 == 0 ? world.all_gather(c) : world.reduce_scatter(c);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) failed += world.verdict(rank) != 0 ? 1 : 0;
    expect_no_wrong_result(world, c);
  }
  EXPECT_GT(failed, 20);
}

TEST(FusedMany, AnAbortWordEndsTheStepOnAllRanks) {
  SteppingWorld world(4, 1, 5);
  std::uint64_t looks = 0;
  world.on_post = [](const Post& post) { return post.from != 2 || post.ticket < 2 || post.value == kPoison; };
  world.on_look = [&](Rank, std::byte*, std::uint64_t) {
    if (++looks == 100) world.states[2]->abort = 1;
  };
  const StepCase c{10000, DType::f32, RedOp::sum};  // 5 segments
  world.reduce_scatter(c);
  for (std::uint32_t rank = 0; rank < 4; ++rank) EXPECT_EQ(world.verdict(rank), status_of(Code::aborted));
  expect_no_wrong_result(world, c);
}

}  // namespace
}  // namespace sealring::cuda::test
