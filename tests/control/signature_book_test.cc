// Claim: two ranks' calls are compared whenever both windows hold the seq, whatever the order of issue and
// hearing. How: two books wired by hand; fast and slow ranks, groups heard of before they begin, strangers,
// many groups.
#include "sealring/control/signature_book.h"

#include <gtest/gtest.h>

#include "tests/control/control_world.h"

namespace sealring {
namespace {

using testing::group_id_of;

OpContext op_of(std::uint64_t seq, DType dtype = DType::bf16, std::uint8_t group = 1) {
  OpContext op;
  op.group_id = group_id_of(group);
  op.seq = seq;
  op.op = Op::all_reduce;
  op.redop = RedOp::sum;
  op.dtype = dtype;
  op.elements = 10;
  return op;
}

std::optional<Mismatch> tell(SignatureBook& from, Rank from_rank, SignatureBook& to, Rank to_rank) {
  std::optional<Mismatch> found;
  for (const Heartbeat& beat : from.beats_for(to_rank)) {
    if (auto mismatch = to.heard(from_rank, beat); mismatch && !found) found = mismatch;
  }
  return found;
}

TEST(SignatureBook, FindsADifferenceInEitherOrder) {
  SignatureBook a(0), b(1);
  EXPECT_FALSE(a.issued(op_of(1), {0, 1}));
  EXPECT_FALSE(b.issued(op_of(1), {0, 1}));
  EXPECT_FALSE(tell(a, 0, b, 1));
  EXPECT_FALSE(a.issued(op_of(2), {0, 1}));
  EXPECT_FALSE(tell(a, 0, b, 1));
  const auto at_issue = b.issued(op_of(2, DType::f16), {0, 1});  // heard first, issued later
  ASSERT_TRUE(at_issue);
  EXPECT_EQ(at_issue->seq, 2u);
  EXPECT_EQ(at_issue->peer, 0);
  EXPECT_EQ(at_issue->theirs, digest_of(op_of(2)));
  const auto at_hearing = tell(b, 1, a, 0);  // issued first, heard later
  ASSERT_TRUE(at_hearing);
  EXPECT_EQ(at_hearing->seq, 2u);
  EXPECT_EQ(at_hearing->peer, 1);
}

TEST(SignatureBook, EveryFieldIsCompared) {
  std::vector<OpContext> others(6, op_of(5));
  others[0].op = Op::reduce_scatter;
  others[1].redop = RedOp::max;
  others[2].dtype = DType::f16;
  others[3].algorithm = Algorithm::one_hop;
  others[4].root = 0;
  others[5].elements = 11;
  for (const OpContext& other : others) {
    SignatureBook a(0), b(1);
    (void)a.issued(op_of(5), {0, 1});
    (void)b.issued(other, {0, 1});
    EXPECT_TRUE(tell(a, 0, b, 1)) << other.describe();
  }
}

TEST(SignatureBook, AFastRankIsStillComparedWithinTheWindow) {
  SignatureBook fast(0), slow(1);
  for (std::uint64_t seq = 0; seq < 64; ++seq) (void)fast.issued(op_of(seq), {0, 1});
  (void)slow.issued(op_of(0, DType::f16), {0, 1});
  const auto found = tell(fast, 0, slow, 1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->seq, 0u);

  SignatureBook faster(0), slower(1);
  for (std::uint64_t seq = 0; seq < 65; ++seq) (void)faster.issued(op_of(seq), {0, 1});
  (void)slower.issued(op_of(0, DType::f16), {0, 1});
  EXPECT_FALSE(tell(faster, 0, slower, 1));  // 0 has left the window
}

TEST(SignatureBook, ABeatCarriesWhatIsNewAndAlwaysTheLast) {
  SignatureBook book(0);
  EXPECT_EQ(book.beats_for(1).size(), 1u);
  EXPECT_TRUE(book.beats_for(1)[0].groups.empty());
  (void)book.issued(op_of(1), {0, 1});
  (void)book.issued(op_of(2), {0, 1});
  EXPECT_EQ(book.beats_for(1)[0].groups[0].marks.size(), 2u);
  book.beat_sent();
  ASSERT_EQ(book.beats_for(1)[0].groups[0].marks.size(), 1u);
  EXPECT_EQ(book.beats_for(1)[0].groups[0].marks[0].seq, 2u);
  for (std::uint64_t seq = 3; seq < 300; ++seq) (void)book.issued(op_of(seq), {0, 1});
  const auto beat = book.beats_for(1)[0].groups[0];
  EXPECT_EQ(beat.marks.size(), GroupBeat::kMarksMax);
  EXPECT_EQ(beat.last_seq, 299u);
  EXPECT_EQ(beat.marks.front().seq, 299u - 63u);
}

TEST(SignatureBook, OnlyMembersSpeakAndListen) {
  SignatureBook a(0), stranger(2);
  (void)a.issued(op_of(1), {0, 1});
  (void)stranger.issued(op_of(1, DType::f16), {0, 2});
  EXPECT_TRUE(a.beats_for(2)[0].groups.empty());
  EXPECT_FALSE(tell(stranger, 2, a, 0));
  EXPECT_FALSE(a.last_heard(group_id_of(1), 2));
  // Heard before the group began here: dropped once the members are known.
  SignatureBook late(0);
  EXPECT_FALSE(tell(stranger, 2, late, 0));
  EXPECT_FALSE(late.issued(op_of(1), {0, 1}));
}

TEST(SignatureBook, ManyGroupsNeedSeveralBeats) {
  SignatureBook a(0), b(1);
  for (std::uint8_t group = 0; group < 100; ++group) (void)a.issued(op_of(1, DType::bf16, group), {0, 1});
  EXPECT_EQ(a.beats_for(1).size(), 4u);
  for (const Heartbeat& beat : a.beats_for(1)) EXPECT_LE(encode(beat).size(), 64u * 1024u);
  (void)b.issued(op_of(1, DType::f16, 99), {0, 1});
  EXPECT_TRUE(tell(a, 0, b, 1));
}

TEST(SignatureBook, ForeignGroupsAreBounded) {
  SignatureBook book(0);
  for (std::uint32_t i = 0; i < 5000; ++i) {
    Heartbeat beat;
    beat.groups.resize(1);
    store_be(beat.groups[0].group.data(), i);
    EXPECT_FALSE(book.heard(1, beat));
  }
  // A group of this rank's own still works after the flood.
  (void)book.issued(op_of(1), {0, 1});
  SignatureBook other(1);
  (void)other.issued(op_of(1, DType::f16), {0, 1});
  EXPECT_TRUE(tell(other, 1, book, 0));
}

TEST(SignatureBook, ForgottenGroupsAreSilent) {
  SignatureBook a(0);
  (void)a.issued(op_of(1), {0, 1});
  a.forget(group_id_of(1));
  EXPECT_EQ(a.beats_for(1)[0].groups.size(), 1u) << "its last op was not told yet";
  a.beat_sent();
  EXPECT_TRUE(a.beats_for(1)[0].groups.empty());
  EXPECT_TRUE(a.members(group_id_of(1)).empty());
  (void)a.issued(op_of(1, DType::bf16, 2), {0, 1});
  a.beat_sent();
  a.forget(group_id_of(2));
  EXPECT_TRUE(a.beats_for(1)[0].groups.empty());
  a.forget(group_id_of(3));  // never known
}

TEST(SignatureBook, APeerThatLeftDesertsWhatItNeverCalled) {
  SignatureBook a(0), b(1);
  (void)a.issued(op_of(0), {0, 1});
  (void)b.issued(op_of(0), {0, 1});
  (void)b.issued(op_of(0, DType::bf16, 2), {0, 1});
  EXPECT_FALSE(tell(b, 1, a, 0));
  EXPECT_FALSE(a.deserted());
  a.left(1);
  EXPECT_FALSE(a.deserted()) << "op 0 was called by both";
  (void)a.issued(op_of(0, DType::bf16, 2), {0, 1});
  EXPECT_FALSE(a.deserted()) << "heard of before it began here";
  (void)a.issued(op_of(0, DType::bf16, 3), {0, 2});
  EXPECT_FALSE(a.deserted()) << "a group without that peer";
  (void)a.issued(op_of(1), {0, 1});
  (void)a.issued(op_of(2), {0, 1});
  const auto found = a.deserted();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->group_id, group_id_of(1));
  EXPECT_EQ(found->seq, 1u);
  EXPECT_EQ(found->peer, 1);
  a.forget(group_id_of(1));
  EXPECT_FALSE(a.deserted()) << "ended here too";
}

TEST(SignatureBook, OldNewsAndOldOpsAreIgnored) {
  SignatureBook a(0), b(1);
  (void)a.issued(op_of(5), {0, 1});
  EXPECT_FALSE(a.issued(op_of(4), {0, 1}));
  (void)b.issued(op_of(5), {0, 1});
  EXPECT_FALSE(tell(b, 1, a, 0));
  EXPECT_FALSE(tell(b, 1, a, 0));  // repeated by the next beat
  EXPECT_EQ(a.last_heard(group_id_of(1), 1), 5u);
}

}  // namespace
}  // namespace sealring
