// Claim: the fused all_reduce of two ranks gives the exact sum or an error and a poisoned output, whatever is
// done to its windows and in whatever order its blocks run; windows hold ciphertext alone and are read once.
// How: the kernel's body runs on the host under a random scheduler, with an adversary at every post; sums are
// compared with the CPU's, segments with OpenSSL's.
#include <gtest/gtest.h>

#include "tests/bodies/fused_rig.h"

namespace sealring::cuda::test {
namespace {

struct FusedOp {
  std::uint64_t elements = 0;
  DType dtype = DType::f32;
  RedOp redop = RedOp::sum;
  std::uint32_t resident = 1024;
  bool in_place = false;
  std::uint64_t seed = 1;
};

/// Two ranks and their all_reduces.
class FusedPair : public FusedWorld {
 public:
  FusedPair(Suite suite, std::uint32_t columns, std::uint64_t seed)
      : FusedWorld(2, columns, seed, suite), shape(region()), outputs(2) {}

  /// Inputs and outputs stay in `inputs` and `outputs`.
  void run(const FusedOp& op) {
    DeviceOp device_op;
    device_op.op = Op::all_reduce;
    device_op.redop = op.redop;
    device_op.dtype = op.dtype;
    device_op.algorithm = Algorithm::one_shot;
    device_op.elements = op.elements;
    std::vector<std::vector<RankStep>> steps;
    for (const Rank rank : {Rank{0}, Rank{1}}) steps.push_back({step_of(op, rank)});
    FusedWorld::run(device_op, steps, op.resident, op.seed);
  }
  /// What the CPU makes of the inputs.
  Bytes expected(const FusedOp& op) const { return reduced_by_cpu(op.dtype, op.redop, inputs[0], inputs[1]); }
  void fill_inputs(const FusedOp& op) {
    inputs.clear();
    for (int rank = 0; rank < 2; ++rank) inputs.push_back(random_elements(random, op.dtype, op.elements));
  }

  WindowShape shape;
  std::vector<Bytes> inputs;
  std::vector<std::unique_ptr<Shifted>> outputs;

 private:
  RankStep step_of(const FusedOp& op, Rank rank) {
    auto& output = outputs[rank];
    output = std::make_unique<Shifted>(inputs[rank].size(), op.seed % 2 == 0 ? 0 : op.seed % 16);
    if (op.in_place) output->set(inputs[rank]);
    const std::byte* const input = op.in_place ? output->data() : inputs[rank].data();
    const auto peer = static_cast<Rank>(1 - rank);
    DeviceSend send;
    send.peer = peer;
    send.data = input;
    send.elements = op.elements;
    DeviceRecv recv;
    recv.peer = peer;
    recv.dst = output->data();
    recv.elements = op.elements;
    recv.local = input;
    recv.divisor = op.redop == RedOp::avg ? 2 : 1;
    return RankStep{{send}, {recv}, {true, true}};
  }
};

bool equal(std::span<std::byte> a, const Bytes& b) { return std::ranges::equal(a, b); }

/// Of a rank: the exact sum with verdict 0, or poison with one of the errors. Gives the verdict.
std::uint32_t expect_sum_or_poison(FusedPair& pair, const FusedOp& op, Rank rank) {
  const std::uint32_t verdict = pair.verdict(rank);
  const auto got = pair.outputs[rank]->span();
  if (verdict == 0) {
    EXPECT_TRUE(equal(got, pair.expected(op))) << "a wrong sum passed for right, rank " << rank;
  } else {
    Bytes poisoned(got.size());
    poison(op.dtype, poisoned);
    EXPECT_TRUE(equal(got, poisoned)) << "the output of a failed op is not poisoned, rank " << rank;
    EXPECT_TRUE(verdict == status_of(Code::data_tag) || verdict == status_of(Code::timeout) ||
                verdict == status_of(Code::aborted))
        << verdict;
  }
  EXPECT_TRUE(pair.outputs[rank]->margin_untouched());
  return verdict;
}

void expect_sum(FusedPair& pair, const FusedOp& op) {
  for (const Rank rank : {Rank{0}, Rank{1}})
    ASSERT_EQ(expect_sum_or_poison(pair, op, rank), 0u)
        << op.elements << " x " << to_string(op.dtype) << " seed " << op.seed;
}

class Fused : public ::testing::TestWithParam<Suite> {};
class FusedHostile : public Fused {};
class FusedRecord : public Fused {};
const auto kSuites = ::testing::Values(Suite::chacha20_poly1305, Suite::aes_256_gcm);
INSTANTIATE_TEST_SUITE_P(Suites, Fused, kSuites, name_of_suite);
INSTANTIATE_TEST_SUITE_P(Suites, FusedHostile, kSuites, name_of_suite);
INSTANTIATE_TEST_SUITE_P(Suites, FusedRecord,
                         ::testing::Values(Suite::chacha20_poly1305, Suite::aes_256_gcm, Suite::aes_128_gcm),
                         name_of_suite);

TEST_P(Fused, SizesUpTo4096AreTheCpusSum) {
  for (const std::uint64_t elements : sizes_up_to_4096(GetParam())) {
    FusedOp op;
    op.elements = elements;
    op.in_place = elements % 2 == 1;
    op.seed = elements;
    FusedPair pair(GetParam(), 1 + static_cast<std::uint32_t>(elements % 3), elements);
    pair.fill_inputs(op);
    pair.run(op);
    ASSERT_NO_FATAL_FAILURE(expect_sum(pair, op));
  }
}

TEST_P(Fused, EveryTypeAndOperationWithOddTails) {
  std::mt19937_64 random(1);
  for (const DType dtype : all_dtypes()) {
    for (const RedOp redop : all_redops()) {
      if (redop == RedOp::none || !reduction_supported(dtype, redop)) continue;
      for (const bool in_place : {false, true}) {
        FusedOp op;
        op.elements = 1 + random() % 6000;
        op.dtype = dtype;
        op.redop = redop;
        op.in_place = in_place;
        op.seed = random();
        FusedPair pair(GetParam(), 2, op.seed);
        pair.fill_inputs(op);
        pair.run(op);
        ASSERT_NO_FATAL_FAILURE(expect_sum(pair, op)) << to_string(redop);
      }
    }
  }
}

TEST_P(FusedRecord, SegmentsOfTheirLargestSizeAreFusedToo) {
  FusedOp op;
  op.elements = 7 * kFusedSegmentMax / 4;
  op.seed = 2;  // aligned output
  FusedPair pair(GetParam(), 1, 1);
  pair.fill_inputs(op);
  pair.run(op);
  ASSERT_NO_FATAL_FAILURE(expect_sum(pair, op));
}

// Columns that are not resident start when others have ended; op follows op on the same windows.
TEST_P(Fused, NoOrderOfBlocksHangsOrChangesTheSum) {
  std::mt19937_64 random(3);
  for (std::uint64_t run = 0; run < times_of(GetParam(), 60); ++run) {
    FusedPair pair(GetParam(), 3, random());
    for (int k = 0; k < 4; ++k) {
      FusedOp op;
      op.elements = random() % 48000;  // up to 8 segments a column
      op.resident = 1 + static_cast<std::uint32_t>(random() % 3);
      op.in_place = random() % 2 == 0;
      op.seed = random();
      pair.fill_inputs(op);
      pair.run(op);
      ASSERT_NO_FATAL_FAILURE(expect_sum(pair, op)) << "run " << run << " op " << k;
    }
    EXPECT_EQ(pair.sealing(0, 1).segments, pair.opening(0, 1).segments);
    EXPECT_EQ(pair.sealing(0, 1).in_use, 0u);
  }
}

// How often each byte of a window must be read: once for each segment that lies in it.
TEST_P(Fused, EveryByteOfASegmentIsReadOnce) {
  for (const std::uint64_t elements : {0ull, 1ull, 5000ull, 12345ull, 22001ull}) {
    FusedOp op;
    op.elements = elements;
    FusedPair pair(GetParam(), 2, 4);
    pair.count_reads();
    pair.fill_inputs(op);
    pair.run(op);
    ASSERT_NO_FATAL_FAILURE(expect_sum(pair, op));
    const FusedCut cut = fused_cut(elements * 4, 2, 2);
    const RecordLayout layout = RecordLayout::of(elements * 4, cut.segment_bytes);
    std::vector<std::uint32_t> wanted(fused_window_bytes(2, 2));
    for (std::uint32_t k = 0; k < layout.segments(); ++k) {
      const std::uint64_t slot = pair.shape.slot_offset(k % cut.columns, k / cut.columns);
      for (std::uint64_t i = 0; i < layout.payload_of(k) + kTagBytes; ++i) ++wanted[slot + i];
    }
    for (const Rank rank : {Rank{0}, Rank{1}}) {
      EXPECT_TRUE(pair.reads[rank].counts == wanted);
      EXPECT_EQ(pair.reads[rank].strays, 0u);
    }
  }
}

// While nothing has been overwritten, what lies in a window is the record of protocol C.3.
TEST_P(FusedRecord, SegmentsAreStandardRecords) {
  FusedOp op;
  op.elements = 3900;  // 4 segments in one column
  FusedPair pair(GetParam(), 1, 5);
  pair.fill_inputs(op);
  pair.run(op);
  ASSERT_NO_FATAL_FAILURE(expect_sum(pair, op));
  const RecordLayout layout =
      RecordLayout::of(4 * op.elements, fused_cut(4 * op.elements, 2, 1).segment_bytes);
  ASSERT_EQ(layout.segments(), WindowShape::kSlots);
  for (const Rank from : {Rank{0}, Rank{1}}) {
    const KeyWords& words = pair.sealing(from, 1 - from).slots[0].words;
    Nonce iv;
    std::memcpy(iv.data(), words.iv, iv.size());
    const Aead aead =
        *Aead::make(GetParam(), std::as_bytes(std::span(words.key)).first(suite_key_bytes(GetParam())));
    RecordContext c;
    c.suite = GetParam();
    c.op = Op::all_reduce;
    c.redop = RedOp::sum;
    c.dtype = DType::f32;
    c.algorithm = Algorithm::one_shot;
    c.elements = op.elements;
    c.group_size = 2;
    c.sender = pair.group().members[from];
    c.receiver = pair.group().members[1 - from];
    std::memcpy(c.th3.data(), pair.group().th3.data(), c.th3.size());
    std::memcpy(c.group_id.data(), pair.group().group_id.data(), c.group_id.size());
    c.segments = layout.segments();
    for (std::uint32_t k = 0; k < layout.segments(); ++k) {
      c.segment = k;
      c.payload_bytes = layout.payload_of(k);
      c.element_offset = layout.payload_offset(k) / 4;
      const std::byte* const at = pair.windows[1 - from]->data() + pair.shape.slot_offset(0, k);
      Tag tag;
      std::memcpy(tag.data(), at + c.payload_bytes, tag.size());
      Bytes plain(c.payload_bytes);
      const Aad aad = aad_of(c);
      ASSERT_TRUE(
          aead.open(nonce_of(iv, k), std::as_bytes(std::span(aad)), {at, c.payload_bytes}, tag, plain));
      EXPECT_TRUE(std::equal(plain.begin(), plain.end(),
                             pair.inputs[from].begin() + static_cast<long>(layout.payload_offset(k))));
    }
  }
}

TEST_P(Fused, AWindowNeverHoldsPlaintext) {
  FusedOp op;
  op.elements = 36000;  // 5 segments in one column
  op.dtype = DType::u8;
  FusedPair pair(GetParam(), 1, 6);
  const std::string motto = "plaintext of a tensor";
  for (int rank = 0; rank < 2; ++rank) {
    pair.inputs.emplace_back(op.elements);
    for (std::size_t i = 0; i < op.elements; ++i)
      pair.inputs.back()[i] = static_cast<std::byte>(motto[i % motto.size()]);
  }
  std::uint64_t looks = 0;
  const auto search = [&](Rank, std::byte*, std::uint64_t) {
    ++looks;
    for (const auto& window : pair.windows) {
      const std::string_view text(reinterpret_cast<const char*>(window->data()), window->span().size());
      ASSERT_EQ(text.find("text of a"), std::string_view::npos);
    }
  };
  pair.on_look = search;
  pair.run(op);
  ASSERT_NO_FATAL_FAILURE(expect_sum(pair, op));
  EXPECT_GT(looks, 10u);
}

/// 11 segments of 8 KiB for two columns: column 0 has the tickets 0 to 5 and uses slots again.
constexpr std::uint64_t kHarmedElements = 22000;

/// Runs one op in which `harm` strikes; nobody may end with a wrong sum, and rank 1, whose window it is, must
/// fail with one of `codes`. Harm gets the pair and a post and says whether the post goes through.
void expect_failure(Suite suite, std::set<Code> codes,
                    const std::function<bool(FusedPair&, const Post&)>& harm) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    FusedOp op;
    op.elements = kHarmedElements;
    op.seed = seed;
    FusedPair pair(suite, 2, seed);
    pair.segment_bytes = 8 * 1024;
    pair.on_post = [&](const Post& post) { return harm(pair, post); };
    pair.fill_inputs(op);
    pair.run(op);
    const std::uint32_t other = expect_sum_or_poison(pair, op, 0);
    const std::uint32_t verdict = expect_sum_or_poison(pair, op, 1);
    EXPECT_TRUE(codes.contains(static_cast<Code>(verdict))) << verdict << " seed " << seed;
    if (codes.contains(Code::timeout) && verdict == status_of(Code::aborted)) {
      EXPECT_EQ(other, status_of(Code::timeout));  // it has waited for this one
    }
    // Nothing works after it, and nothing more is sealed.
    const std::uint64_t sealed = pair.sealing(1, 0).segments;
    pair.run(op);
    EXPECT_EQ(pair.verdict(1), verdict);
    expect_sum_or_poison(pair, op, 1);
    EXPECT_EQ(pair.sealing(1, 0).segments, sealed);
    EXPECT_EQ(pair.sealing(1, 0).verdict, verdict);
    EXPECT_EQ(pair.opening(0, 1).verdict, verdict);
  }
}

bool is_flag(const Post& post, std::uint64_t ticket) {
  return post.flag && post.to == 1 && post.column == 0 && post.ticket == ticket && post.value != kPoison;
}
std::byte* slot_of(FusedPair& pair, std::uint64_t ticket) {
  return pair.windows[1]->data() + pair.shape.slot_offset(0, ticket);
}

TEST_P(FusedHostile, AFlippedBitIsADataTag) {
  for (const std::uint32_t byte : {0u, 15u, 1000u, 8191u, 8192u, 8207u}) {  // of the payload, of the tag
    expect_failure(GetParam(), {Code::data_tag}, [byte](FusedPair& pair, const Post& post) {
      if (is_flag(post, 4)) slot_of(pair, 4)[byte] ^= std::byte{4};
      return true;
    });
  }
}

TEST_P(FusedHostile, AnOldSegmentOfTheSameSlotIsADataTag) {
  Bytes old;
  expect_failure(GetParam(), {Code::data_tag}, [&](FusedPair& pair, const Post& post) {
    const std::uint64_t bytes = pair.shape.slot_bytes;
    if (is_flag(post, 1)) old.assign(slot_of(pair, 1), slot_of(pair, 1) + bytes);
    if (is_flag(post, 5)) std::ranges::copy(old, slot_of(pair, 5));
    return true;
  });
}

// What is not authentic is told although what comes behind it never comes.
TEST_P(FusedHostile, AFlippedBitInFrontOfAFlagThatNeverComesIsADataTag) {
  expect_failure(GetParam(), {Code::data_tag}, [](FusedPair& pair, const Post& post) {
    if (is_flag(post, 4)) slot_of(pair, 4)[9] ^= std::byte{1};
    return !is_flag(post, 5);
  });
}

TEST_P(FusedHostile, SwappedSegmentsAreADataTag) {
  std::byte* held = nullptr;
  expect_failure(GetParam(), {Code::data_tag}, [&](FusedPair& pair, const Post& post) {
    if (is_flag(post, 2)) {
      held = post.word;
      return false;
    }
    if (is_flag(post, 3)) {
      std::swap_ranges(slot_of(pair, 2), slot_of(pair, 2) + pair.shape.slot_bytes, slot_of(pair, 3));
      FusedPair::word_at(held).store(3);
    }
    return true;
  });
}

TEST_P(FusedHostile, AFlagThatNeverComesIsATimeout) {
  for (const std::uint64_t wrong : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{7}}) {
    // The columns of a block of AES-GCM come one after the other here: the peer may wait for the next one.
    const std::set<Code> codes = suite_has_gcm_key(GetParam()) ? std::set<Code>{Code::timeout, Code::aborted}
                                                               : std::set<Code>{Code::timeout};
    expect_failure(GetParam(), codes, [wrong](FusedPair&, const Post& post) {
      if (!is_flag(post, 5)) return true;
      FusedPair::word_at(post.word).store(wrong);  // 0, all ones, one too many (6 is right)
      return false;
    });
  }
}

TEST_P(FusedHostile, ACreditThatNeverComesIsATimeoutOrPoison) {
  for (const std::uint64_t wrong : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{3}}) {
    expect_failure(GetParam(), {Code::timeout, Code::aborted}, [wrong](FusedPair&, const Post& post) {
      if (post.flag || post.to != 1 || post.column != 0 || post.ticket != 1) return true;
      FusedPair::word_at(post.word).store(wrong);
      return false;
    });
  }
}

/// An op in which words of rank `to` sometimes come early; gives how many were refused there.
int refused_of_early_words(Suite suite, Rank to, bool flags) {
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= times_of(suite, 40); ++seed) {
    FusedOp op;
    op.elements = kHarmedElements;
    op.seed = seed;
    FusedPair pair(suite, 2, seed);
    pair.segment_bytes = 8 * 1024;
    pair.on_look = [&](Rank rank, std::byte* word, std::uint64_t expected) {
      const bool is_flag_word = word < pair.windows[rank]->data() + pair.shape.credit_offset(0, 0);
      if (rank == to && is_flag_word == flags && pair.random() % 4 == 0)
        FusedPair::word_at(word).store(expected);
    };
    pair.fill_inputs(op);
    pair.run(op);
    const bool at_0 = expect_sum_or_poison(pair, op, 0) == status_of(Code::data_tag);
    const bool at_1 = expect_sum_or_poison(pair, op, 1) == status_of(Code::data_tag);
    refused += at_0 || at_1 ? 1 : 0;
  }
  return refused;
}

// The slot is read before its segment lies in it, or while an older one does.
TEST_P(FusedHostile, AnEarlyFlagIsADataTag) { EXPECT_GT(refused_of_early_words(GetParam(), 1, true), 0); }

// A slot is overwritten before it was read: that one is refused at the peer, if it was not read by then.
TEST_P(FusedHostile, AnEarlyCreditNeverMakesAWrongSum) { (void)refused_of_early_words(GetParam(), 0, false); }

TEST_P(FusedHostile, TogglingFlagsNeverMakeAWrongSum) {
  for (std::uint64_t seed = 1; seed <= times_of(GetParam(), 30); ++seed) {
    FusedOp op;
    op.elements = kHarmedElements;
    op.seed = seed;
    FusedPair pair(GetParam(), 2, seed);
    pair.segment_bytes = 8 * 1024;
    pair.on_look = [&](Rank, std::byte*, std::uint64_t) {
      const std::uint64_t slot = pair.random() % WindowShape::kSlots;
      std::byte* const word = pair.windows[1]->data() + pair.shape.flag_offset(0, slot);
      const std::uint64_t value = FusedPair::word_at(word).load();
      if (value == kPoison) return;
      FusedPair::word_at(word).store(pair.random() % 2 == 0 ? value ^ 1 : value + WindowShape::kSlots);
    };
    pair.fill_inputs(op);
    pair.run(op);
    expect_sum_or_poison(pair, op, 0);
    expect_sum_or_poison(pair, op, 1);
  }
}

TEST_P(FusedHostile, PoisonEndsTheOpAtOnce) {
  expect_failure(GetParam(), {Code::aborted}, [](FusedPair&, const Post& post) {
    if (!is_flag(post, 5)) return true;
    FusedPair::word_at(post.word).store(kPoison);
    return false;
  });
}

TEST_P(Fused, AnAbortWordEndsTheOpOnBothRanks) {
  FusedOp op;
  op.elements = 10000;
  FusedPair pair(GetParam(), 1, 7);
  std::uint64_t looks = 0;
  pair.on_look = [&](Rank, std::byte*, std::uint64_t) {
    if (++looks == 40) pair.states[0]->abort = 1;
  };
  pair.on_post = [](const Post& post) { return !post.flag || post.ticket < 3 || post.value == kPoison; };
  pair.fill_inputs(op);
  pair.run(op);
  EXPECT_EQ(expect_sum_or_poison(pair, op, 0), status_of(Code::aborted));
  EXPECT_EQ(expect_sum_or_poison(pair, op, 1), status_of(Code::aborted));
}

TEST_P(Fused, AnOpWithoutAKeySealsNothing) {
  FusedOp op;
  op.elements = 3000;
  FusedPair pair(GetParam(), 1, 8);
  pair.sealing(0, 1).budget.segments_max = 1;
  pair.fill_inputs(op);
  pair.run(op);
  EXPECT_EQ(pair.verdict(0), status_of(Code::key_limit));
  EXPECT_EQ(pair.verdict(1), status_of(Code::aborted));
  const auto slots = pair.windows[1]->span().first(pair.shape.words_begin());
  EXPECT_TRUE(std::ranges::all_of(slots, [](std::byte b) { return b == std::byte{0}; }));
}

}  // namespace
}  // namespace sealring::cuda::test
