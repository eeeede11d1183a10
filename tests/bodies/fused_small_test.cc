// Claim: small fused steps of two ranks, which go through lines, give the exact result or an error and a
// poisoned output, whatever is done to the lines; windows hold ciphertext alone, and what is used of them is
// read once. How: the kernel's body runs on the host under a random scheduler, with an adversary at every
// line; results are the CPU's, records OpenSSL's.
#include "sealring/device/cuda/fused_small.h"

#include <gtest/gtest.h>

#include "tests/bodies/fused_steps.h"

namespace sealring::cuda::test {
namespace {

class SmallWorld : public SteppingWorld {
 public:
  SmallWorld(std::uint32_t columns, std::uint64_t seed) : SteppingWorld(2, columns, seed) {
    small_bytes_max = kSmallBytesMax;
  }
  /// Line `line` of a place's buffer in the window of `to`.
  std::byte* line_at(std::uint32_t to, std::uint32_t place, std::uint64_t ticket, std::uint32_t line) {
    return region_at(1 - to, to) + small_offset(region(), place, ticket) + line * kLineBytes;
  }
};

TEST(FusedSmall, AllReducesOfEverySizeUpToTwoSegmentsAndFurther) {
  for (std::uint64_t elements = 0; elements <= 4096; elements += elements < 1100 ? 1 : 17) {
    SmallWorld world(1 + static_cast<std::uint32_t>(elements % 5), elements);
    world.all_reduce({elements, DType::f32, RedOp::sum, elements % 2 == 1, 1024, elements});
    ASSERT_NO_FATAL_FAILURE(world.expect_right()) << elements;
  }
}

TEST(FusedSmall, EveryTypeAndOperation) {
  std::mt19937_64 random(1);
  for (const DType dtype : all_dtypes()) {
    for (const RedOp redop : all_redops()) {
      if (redop != RedOp::none && !reduction_supported(dtype, redop)) continue;
      SmallWorld world(4, random());
      const StepCase c{1 + random() % 3000, dtype, redop, random() % 2 == 0, 1024, random()};
      redop == RedOp::none ? world.all_gather(c) : world.reduce_scatter(c);
      ASSERT_NO_FATAL_FAILURE(world.expect_right()) << to_string(dtype) << " " << to_string(redop);
      if (redop != RedOp::none) world.all_reduce(c);
      ASSERT_NO_FATAL_FAILURE(world.expect_right()) << to_string(dtype) << " " << to_string(redop);
    }
  }
}

// Both buffers of every place, in any order of blocks; large steps, and steps one way, between small ones.
TEST(FusedSmall, SmallAndLargeStepsFollowOneAnotherInAnyOrderOfBlocks) {
  std::mt19937_64 random(2);
  for (int run = 0; run < 40; ++run) {
    SmallWorld world(4, random());
    std::uint64_t small = 0;
    for (int k = 0; k < 8; ++k) {
      StepCase c{random() % 30000,
                 DType::f32,
                 RedOp::sum,
                 random() % 2 == 0,
                 1 + static_cast<std::uint32_t>(random() % 4),
                 random()};
      small += c.elements * 4 <= kSmallBytesMax ? 1 : 0;
      world.all_reduce(c);
      ASSERT_NO_FATAL_FAILURE(world.expect_right())
          << "run " << run << " op " << k << ": " << c.elements << ", in place " << c.in_place;
      if (random() % 3 != 0) continue;
      c.in_place = false;
      world.exchange(c, {0, 1 + random() % 3000, 0, 0});
      ASSERT_NO_FATAL_FAILURE(world.expect_right()) << "run " << run << " op " << k;
    }
    EXPECT_EQ(world.states[0]->small_tickets[0], small);
    EXPECT_EQ(world.states[1]->small_tickets[0], small);
    EXPECT_EQ(world.sealing(0, 1).segments, world.opening(0, 1).segments);
    EXPECT_EQ(world.sealing(0, 1).in_use, 0u);
  }
}

TEST(FusedSmall, EveryLineIsUsedOnceAndHoldsTheStandardRecord) {
  constexpr std::uint64_t kElements = 7001;
  SmallWorld world(3, 3);
  world.count_reads();
  const StepCase c{kElements, DType::u8, RedOp::max, false, 1024, 3};
  world.all_reduce(c);
  ASSERT_NO_FATAL_FAILURE(world.expect_right());
  const RecordLayout layout = RecordLayout::of(kElements, kSmallSegment);
  std::vector<std::uint32_t> wanted(world.windows[0]->span().size());
  for (std::uint32_t k = 0; k < layout.segments(); ++k) {
    const std::uint64_t at = small_offset(world.region(), k, 0);
    std::fill_n(wanted.begin() + static_cast<long>(at), small_lines(layout.payload_of(k)) * kLineBytes, 1u);
  }
  for (std::uint32_t to = 0; to < 2; ++to) {
    EXPECT_TRUE(world.reads[to].counts == wanted);
    EXPECT_EQ(world.reads[to].strays, 0u);
    const std::uint32_t from = 1 - to;
    const KeyWords& words = world.sealing(from, to).slots[0].words;
    Nonce iv;
    std::memcpy(iv.data(), words.iv, iv.size());
    const Aead aead = *Aead::make(Suite::chacha20_poly1305, std::as_bytes(std::span(words.key)));
    for (std::uint32_t k = 0; k < layout.segments(); ++k) {
      RecordContext r;
      r.suite = Suite::chacha20_poly1305;
      std::memcpy(r.th3.data(), world.group().th3.data(), r.th3.size());
      std::memcpy(r.group_id.data(), world.group().group_id.data(), r.group_id.size());
      r.sender = world.group().members[from];
      r.receiver = world.group().members[to];
      r.op = Op::all_reduce;
      r.redop = c.redop;
      r.dtype = c.dtype;
      r.algorithm = Algorithm::one_shot;
      r.segment = k;
      r.segments = layout.segments();
      r.payload_bytes = layout.payload_of(k);
      r.elements = kElements;
      r.element_offset = layout.payload_offset(k);
      r.group_size = 2;
      Bytes wire;
      for (std::uint32_t line = 0; line < small_lines(r.payload_bytes); ++line) {
        const std::byte* const at = world.line_at(to, k, 0, line);
        wire.insert(wire.end(), at, at + kLinePayload);
      }
      // Behind the tag nothing of the block's memory.
      EXPECT_TRUE(std::all_of(wire.begin() + static_cast<long>(r.payload_bytes + kTagBytes), wire.end(),
                              [](std::byte b) { return b == std::byte{0}; }));
      Tag tag;
      std::memcpy(tag.data(), wire.data() + r.payload_bytes, tag.size());
      Bytes plain(r.payload_bytes);
      const Aad aad = aad_of(r);
      ASSERT_TRUE(aead.open(nonce_of(iv, k), std::as_bytes(std::span(aad)),
                            ByteView(wire).first(r.payload_bytes), tag, plain));
      EXPECT_TRUE(std::equal(plain.begin(), plain.end(),
                             world.inputs[from].begin() + static_cast<long>(layout.payload_offset(k))));
    }
  }
}

/// Runs small steps in which `harm` strikes at a line; rank 1, whose window it is, must fail with one of
/// `codes` and a poisoned output, and nobody may have a wrong result. Harm says whether the line goes
/// through.
void expect_failure(std::set<Code> codes, const std::function<bool(SmallWorld&, std::byte*, Chunk&)>& harm) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SmallWorld world(3, seed);
    const StepCase c{4500, DType::f32, RedOp::sum, seed % 2 == 0, 2, seed};  // 9 segments
    world.all_reduce(c);
    world.all_reduce(c);
    ASSERT_NO_FATAL_FAILURE(world.expect_right());
    world.on_line = [&](Rank from, std::byte* at, Chunk& line) { return from != 0 || harm(world, at, line); };
    world.all_reduce(c);
    const std::uint32_t found = world.expect_right_or_failed(1);
    EXPECT_TRUE(codes.contains(static_cast<Code>(found))) << found << " seed " << seed;
    Bytes poisoned(4 * c.elements);
    poison(c.dtype, poisoned);
    EXPECT_TRUE(std::ranges::equal(world.output_span(1), poisoned));
    EXPECT_TRUE(world.expect_right_or_failed(0) == 0 || std::ranges::equal(world.output_span(0), poisoned));
    // Nothing works after it, and nothing more is sealed.
    const std::uint64_t sealed = world.sealing(1, 0).segments;
    world.on_line = [](Rank, std::byte*, Chunk&) { return true; };
    world.all_reduce(c);
    EXPECT_EQ(world.verdict(1), found);
    EXPECT_NE(world.verdict(0), 0u);
    EXPECT_EQ(world.sealing(1, 0).segments, sealed);
    EXPECT_TRUE(std::ranges::equal(world.output_span(1), poisoned));
  }
}

TEST(FusedSmallHostile, AFlippedBitIsADataTag) {
  for (const std::uint32_t line : {0u, 100u, kSmallLines - 1}) {  // of the payload, of the tag
    for (const std::uint32_t word : {0u, 2u}) {
      expect_failure({Code::data_tag}, [=](SmallWorld& world, std::byte* at, Chunk& sent) {
        if (at == world.line_at(1, 4, 2, line)) sent.words[word] ^= 1u << 31;
        return true;
      });
    }
  }
}

TEST(FusedSmallHostile, AnOldLineUnderTheRightNumberIsADataTag) {
  expect_failure({Code::data_tag}, [](SmallWorld& world, std::byte* at, Chunk& sent) {
    const std::uint32_t number = sent.words[3];
    if (at == world.line_at(1, 4, 2, 7)) std::memcpy(&sent, at, sizeof sent);  // of the step before last
    sent.words[3] = number;
    return true;
  });
}

TEST(FusedSmallHostile, LinesThatChangePlacesAreADataTag) {
  std::map<std::byte*, Chunk> held;
  expect_failure({Code::data_tag}, [&](SmallWorld& world, std::byte* at, Chunk& sent) {
    std::byte *const one = world.line_at(1, 4, 2, 7), *const other = world.line_at(1, 4, 2, 8);
    if (at == one) held[at] = sent;
    if (at == one) return false;
    if (at == other) {
      std::memcpy(one, &sent, sizeof sent);
      sent = held[one];
    }
    return true;
  });
}

// Of either rank: the peer waits, too, for what is behind it.
TEST(FusedSmallHostile, ALineThatNeverComesIsATimeout) {
  for (const std::uint32_t wrong : {0u, 1u, 2u, 4u, ~0u}) {  // 3 is right
    expect_failure({Code::timeout, Code::aborted}, [=](SmallWorld& world, std::byte* at, Chunk& sent) {
      if (at == world.line_at(1, 4, 2, 7)) sent.words[3] = wrong;
      return true;
    });
  }
}

TEST(FusedSmallHostile, PoisonEndsTheStepAtOnce) {
  expect_failure({Code::aborted}, [](SmallWorld& world, std::byte* at, Chunk&) {
    if (at != world.line_at(1, 4, 2, 7)) return true;
    for (std::uint32_t column = 0; column < 3; ++column)
      FusedWorld::word_at(world.region_at(0, 1) + world.region().flag_offset(column, 0)).store(kPoison);
    return false;
  });
}

// A number before its line: what is read then is not the line.
TEST(FusedSmallHostile, ForgedNumbersNeverMakeAWrongResult) {
  int failed = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SmallWorld world(2, seed);
    world.on_line = [&](Rank from, std::byte*, Chunk& sent) {
      if (from == 0 && world.random() % 4 == 0) {  // another line has its number early
        const auto place = static_cast<std::uint32_t>(world.random() % 6);
        const auto line = static_cast<std::uint32_t>(world.random() % kSmallLines);
        std::memcpy(world.line_at(1, place, 0, line) + kLinePayload, &sent.words[3], 4);
      }
      return true;
    };
    const StepCase c{3000, DType::f32, RedOp::sum, seed % 2 == 0, 2, seed};
    world.all_reduce(c);
    (void)world.expect_right_or_failed(0);
    failed += world.expect_right_or_failed(1) == status_of(Code::data_tag) ? 1 : 0;
  }
  EXPECT_GT(failed, 5);
}

TEST(FusedSmall, AWindowNeverHoldsPlaintext) {
  SmallWorld world(2, 7);
  std::uint64_t looks = 0;
  world.on_line = [&](Rank from, std::byte*, Chunk&) {
    if (++looks % 40 != 0) return true;
    for (const auto& window : world.windows) {
      const std::string_view text(reinterpret_cast<const char*>(window->data()), window->span().size());
      for (std::size_t at = 0; at + 12 < world.inputs[from].size(); at += 1000) {
        const std::string_view part(reinterpret_cast<const char*>(world.inputs[from].data() + at), 9);
        EXPECT_EQ(text.find(part), std::string_view::npos);
      }
    }
    return true;
  };
  world.all_reduce({2500, DType::f32, RedOp::sum});
  ASSERT_NO_FATAL_FAILURE(world.expect_right());
  EXPECT_GT(looks, 1000u);
}

TEST(FusedSmall, WhichStepsAreSmallIsSeenAlikeByBothEnds) {
  SmallWorld world(2, 8);
  DeviceOp op;
  op.dtype = DType::f32;
  const auto small = [&](std::uint64_t out, std::uint64_t in) {
    DeviceSend send;
    DeviceRecv recv;
    send.elements = out;
    recv.elements = in;
    send.peer = recv.peer = 1;
    const FusedJob mine = *world.job_of(op, 0, {{send}, {recv}, {}});
    send.elements = in;
    recv.elements = out;
    send.peer = recv.peer = 0;
    const FusedJob theirs = *world.job_of(op, 1, {{send}, {recv}, {}});
    EXPECT_EQ(mine.small, theirs.small);
    EXPECT_EQ(mine.push[0].job.layout.segment_bytes, theirs.pull[0].job.layout.segment_bytes);
    EXPECT_EQ(mine.push[0].columns, theirs.pull[0].columns);
    return mine.small != 0;
  };
  EXPECT_TRUE(small(0, 0));
  EXPECT_TRUE(small(16384, 16384));
  EXPECT_FALSE(small(16385, 16385));
  EXPECT_FALSE(small(10, 11));
}

}  // namespace
}  // namespace sealring::cuda::test
