// Claim: any step of a schedule runs fused: records one way, both ways, of different lengths, reduced or
// taken as they are; its result is exact or an error and a poisoned output; keys' verdicts and the fused one
// are one. How: the kernels' bodies run on the host under a random scheduler; results are the CPU's, and what
// lies in a window is opened by OpenSSL.
#include <gtest/gtest.h>

#include "tests/bodies/fused_steps.h"

namespace sealring::cuda::test {
namespace {

class FusedStep : public ::testing::TestWithParam<Suite> {};
INSTANTIATE_TEST_SUITE_P(Suites, FusedStep, ::testing::Values(Suite::chacha20_poly1305, Suite::aes_256_gcm),
                         name_of_suite);

TEST_P(FusedStep, ReduceScatterOfSizesUpTo4096) {
  for (const std::uint64_t elements : sizes_up_to_4096(GetParam())) {
    SteppingWorld world(2, 1 + static_cast<std::uint32_t>(elements % 3), elements, GetParam());
    world.reduce_scatter({elements, DType::f32, RedOp::sum, elements % 2 == 1, 1024, elements});
    ASSERT_NO_FATAL_FAILURE(world.expect_right()) << elements;
  }
}

TEST_P(FusedStep, AllGatherOfSizesUpTo4096) {
  for (const std::uint64_t elements : sizes_up_to_4096(GetParam())) {
    SteppingWorld world(2, 1 + static_cast<std::uint32_t>(elements % 3), elements, GetParam());
    world.all_gather({elements, DType::f32, RedOp::none, elements % 2 == 1, 1024, elements});
    ASSERT_NO_FATAL_FAILURE(world.expect_right()) << elements;
  }
}

TEST_P(FusedStep, EveryTypeAndOperation) {
  std::mt19937_64 random(1);
  for (const DType dtype : all_dtypes()) {
    for (const RedOp redop : all_redops()) {
      if (redop != RedOp::none && !reduction_supported(dtype, redop)) continue;
      for (const bool in_place : {false, true}) {
        SteppingWorld world(2, 2, random(), GetParam());
        const StepCase c{1 + random() % 6000, dtype, redop, in_place, 1024, random()};
        redop == RedOp::none ? world.all_gather(c) : world.reduce_scatter(c);
        ASSERT_NO_FATAL_FAILURE(world.expect_right()) << to_string(dtype) << " " << to_string(redop);
      }
    }
  }
}

// One way, both ways with different lengths, op after op on the same windows.
TEST_P(FusedStep, RecordsOfDifferentLengthsInAnyOrderOfBlocks) {
  std::mt19937_64 random(2);
  for (std::uint64_t run = 0; run < times_of(GetParam(), 60); ++run) {
    SteppingWorld world(2, 3, random(), GetParam());
    std::uint64_t sealed = 0;
    for (int k = 0; k < 4; ++k) {
      const std::uint64_t there = random() % 3 == 0 ? 0 : 1 + random() % 36000;
      const std::uint64_t back = random() % 3 == 0 ? 0 : 1 + random() % 6000;
      StepCase c;
      c.resident = 1 + static_cast<std::uint32_t>(random() % 3);
      c.seed = random();
      world.exchange(c, {0, there, back, 0});
      ASSERT_NO_FATAL_FAILURE(world.expect_right()) << "run " << run << " op " << k;
      // A direction without a record reserves nothing.
      const FusedCut cut = fused_cut(there * 4, 2, 3);
      if (there > 0) sealed += RecordLayout::of(there * 4, cut.segment_bytes).segments();
      EXPECT_EQ(world.sealing(0, 1).segments, sealed);
      EXPECT_EQ(world.opening(0, 1).segments, sealed);
    }
    EXPECT_EQ(world.sealing(0, 1).in_use, 0u);
    EXPECT_EQ(world.opening(1, 0).in_use, 0u);
  }
}

TEST_P(FusedStep, EveryByteOfASegmentIsReadOnce) {
  const std::uint64_t elements[2] = {37345, 5100};  // from rank 0, from rank 1
  SteppingWorld world(2, 3, 3, GetParam());
  world.count_reads();
  world.exchange(StepCase{}, {0, elements[0], elements[1], 0});
  ASSERT_NO_FATAL_FAILURE(world.expect_right());
  for (std::uint32_t from = 0; from < 2; ++from) {
    const FusedCut cut = fused_cut(elements[from] * 4, 2, 3);
    const RecordLayout layout = RecordLayout::of(elements[from] * 4, cut.segment_bytes);
    std::vector<std::uint32_t> wanted(fused_window_bytes(2, 3));
    for (std::uint32_t k = 0; k < layout.segments(); ++k) {
      const std::uint64_t slot = world.region().slot_offset(k % cut.columns, k / cut.columns);
      for (std::uint64_t i = 0; i < layout.payload_of(k) + kTagBytes; ++i) ++wanted[slot + i];
    }
    EXPECT_TRUE(world.reads[1 - from].counts == wanted);
    EXPECT_EQ(world.reads[1 - from].strays, 0u);
  }
}

bool all_poison(DType dtype, std::span<std::byte> memory) {
  Bytes poisoned(memory.size());
  poison(dtype, poisoned);
  return std::ranges::equal(memory, poisoned);
}

TEST_P(FusedStep, AHostileWindowOfAStepOneWayIsAnErrorAtTheReceiver) {
  for (const char* const harm : {"bit", "flag", "poison"}) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SteppingWorld world(2, 2, seed, GetParam());
      world.on_post = [&](const Post& post) {
        if (!post.flag || post.column != 0 || post.ticket != 2 || post.value == kPoison) return true;
        if (harm[0] == 'b') world.region_at(0, 1)[world.region().slot_offset(0, 2) + 7] ^= std::byte{1};
        if (harm[0] == 'p') FusedWorld::word_at(post.word).store(kPoison);
        return harm[0] == 'b';
      };
      StepCase c;
      c.seed = seed;
      world.exchange(c, {0, 22000, 0, 0});
      (void)world.expect_right_or_failed(0);
      const std::uint32_t found = world.expect_right_or_failed(1);
      const bool aborted = found == status_of(Code::aborted);  // also by who waits for a credit
      EXPECT_TRUE(harm[0] == 'b'   ? found == status_of(Code::data_tag)
                  : harm[0] == 'f' ? found == status_of(Code::timeout) || aborted
                                   : aborted)
          << harm << " " << found;
      EXPECT_TRUE(all_poison(c.dtype, world.output_span(1).first(22000 * 4)));
      // Also the direction that has had no record yet.
      EXPECT_EQ(world.sealing(1, 0).verdict, found);
      world.on_post = [](const Post&) { return true; };
      world.exchange(c, {0, 0, 100, 0});
      EXPECT_EQ(world.sealing(1, 0).segments, 0u);
      EXPECT_NE(world.verdict(0), 0u);
      EXPECT_TRUE(all_poison(c.dtype, world.output_span(0).last(100 * 4)));
    }
  }
}

TEST_P(FusedStep, AVerdictOfARingIsTheStepsVerdict) {
  for (const bool sealing : {false, true}) {
    SteppingWorld world(2, 1, 4, GetParam());
    KeyState& ring = sealing ? world.sealing(0, 1) : world.opening(1, 0);
    ring.verdict = status_of(Code::data_tag);
    world.exchange(StepCase{},
                   {0, sealing ? 0u : 900u, sealing ? 900u : 0u, 0});  // its direction has no record
    EXPECT_EQ(world.verdict(0), status_of(Code::data_tag));
    EXPECT_EQ(world.sealing(0, 1).verdict, status_of(Code::data_tag));
    EXPECT_EQ(world.opening(1, 0).verdict, status_of(Code::data_tag));
    EXPECT_EQ(world.verdict(1),
              sealing ? 0 : status_of(Code::aborted));  // what it sealed, it did not wait for
    // Rank 0 has sealed nothing.
    const auto slots = world.windows[1]->span().first(world.region().words_begin());
    EXPECT_TRUE(std::ranges::all_of(slots, [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(FusedStepRules, StepsThatNoScheduleHasAreRefused) {
  FusedWorld world(2, 1, 5);
  DeviceOp op;
  DeviceSend send;
  send.peer = 1;
  const auto refused = [&](const RankStep& step) {
    const auto job = world.job_of(op, 0, step);
    return !job && job.error().code == Code::unsupported;
  };
  EXPECT_FALSE(refused({{send}, {}, {}}));
  EXPECT_TRUE(refused({{send, send}, {}, {}}));
  DeviceSend scaled = send;
  scaled.scale = 0.5;
  EXPECT_TRUE(refused({{scaled}, {}, {}}));
  DeviceSend mine = send;
  mine.peer = 0;
  EXPECT_TRUE(refused({{mine}, {}, {}}));
  DeviceRecv recv;
  recv.peer = 1;
  recv.elements = 3;
  EXPECT_FALSE(refused({{send}, {recv}, {}}));
  EXPECT_TRUE(refused({{send}, {recv}, {false, true}}));  // in lockstep, of another length
  EXPECT_TRUE(refused({{}, {recv, recv}, {}}));
}

}  // namespace
}  // namespace sealring::cuda::test
