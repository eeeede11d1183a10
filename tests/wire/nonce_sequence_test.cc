// Claim: no number of a key is handed out twice, limits are refused before anything is reserved, rotation is
// due
//        exactly at its limits, and a permit can only shrink.
// How: a truth table at every edge of both limits, sums that would wrap, splits and moves followed number by
// number.
#include "sealring/wire/nonce_sequence.h"

#include <gtest/gtest.h>

#include <set>
#include <type_traits>
#include <utility>

namespace sealring {
namespace {

static_assert(!std::is_copy_constructible_v<SealPermit> && !std::is_copy_assignable_v<SealPermit>);
static_assert(!std::is_default_constructible_v<SealPermit>, "a permit comes from a NonceSequence alone");
static_assert(std::is_nothrow_move_constructible_v<SealPermit>);
static_assert(!std::is_copy_constructible_v<NonceSequence> && !std::is_move_constructible_v<NonceSequence>);

constexpr std::uint64_t kMost = ~std::uint64_t{0};

KeyBudget budget_of(std::uint64_t segments_max, std::uint64_t bytes_max) {
  KeyBudget budget;
  budget.segments_max = segments_max;
  budget.bytes_max = bytes_max;
  return budget;
}

TEST(NonceSequence, DefaultsAreTheProtocols) {
  const KeyBudget budget;
  EXPECT_EQ(budget.bytes_rotate, 274877906944u);   // 2^38
  EXPECT_EQ(budget.segments_rotate, 2147483648u);  // 2^31
  EXPECT_EQ(budget.ops_rotate, 16777216u);         // 2^24
  EXPECT_EQ(budget.bytes_max, 1099511627776u);     // 2^40
  EXPECT_EQ(budget.segments_max, 4294967295u);     // 2^32 - 1
}

TEST(NonceSequence, NumbersStartAtZeroAndFollowOneAnother) {
  NonceSequence sequence{KeyBudget{}};
  EXPECT_EQ(sequence.take(3, 10).value().first(), 0u);
  EXPECT_EQ(sequence.take(1, 0).value().first(), 3u);
  EXPECT_EQ(sequence.take(5, 7).value().first(), 4u);
  EXPECT_EQ(sequence.segments(), 9u);
  EXPECT_EQ(sequence.bytes(), 17u);
  EXPECT_EQ(sequence.ops(), 3u);
}

struct LimitCase {
  std::uint64_t segments_max, bytes_max;      // the budget
  std::uint64_t segments_first, bytes_first;  // taken before
  std::uint64_t segments, bytes;              // asked for
  bool granted;
};

TEST(NonceSequence, HardLimitTruthTable) {
  const LimitCase cases[] = {
      {10, 100, 0, 0, 10, 100, true},
      {10, 100, 0, 0, 11, 0, false},
      {10, 100, 0, 0, 1, 101, false},
      {10, 100, 9, 0, 1, 0, true},
      {10, 100, 9, 0, 2, 0, false},
      {10, 100, 10, 0, 1, 0, false},
      {10, 100, 10, 0, 0, 0, true},
      {10, 100, 0, 99, 1, 1, true},
      {10, 100, 0, 99, 1, 2, false},
      {10, 100, 0, 100, 1, 0, true},
      {10, 100, 0, 100, 1, 1, false},
      {10, 100, 10, 100, 1, 1, false},
      {10, 100, 1, 1, kMost, 1, false},
      {10, 100, 1, 1, 1, kMost, false},
      {10, 100, 1, 1, kMost, kMost, false},
      {kMost, kMost, 1, 1, kMost, 0, false},
      {kMost, kMost, 1, 1, kMost - 1, kMost - 1, true},
      {0, 0, 0, 0, 1, 0, false},
      {0, 0, 0, 0, 0, 1, false},
  };
  for (const LimitCase& one : cases) {
    NonceSequence sender(budget_of(one.segments_max, one.bytes_max));
    NonceSequence receiver(budget_of(one.segments_max, one.bytes_max));
    ASSERT_TRUE(sender.take(one.segments_first, one.bytes_first).has_value());
    ASSERT_TRUE(receiver.advance(one.segments_first, one.bytes_first).has_value());
    const auto permit = sender.take(one.segments, one.bytes);
    const auto first = receiver.advance(one.segments, one.bytes);
    ASSERT_EQ(permit.has_value(), one.granted) << one.segments << " " << one.bytes;
    ASSERT_EQ(first.has_value(), one.granted) << "both ends decide alike";
    if (one.granted) {
      EXPECT_EQ(permit->first(), one.segments_first);
      EXPECT_EQ(*first, one.segments_first);
      EXPECT_EQ(permit->remaining(), one.segments);
    } else {
      EXPECT_EQ(permit.error().code, Code::key_limit);
      EXPECT_EQ(sender.segments(), one.segments_first) << "a refusal reserves nothing";
      EXPECT_EQ(sender.bytes(), one.bytes_first);
      EXPECT_EQ(sender.ops(), 1u);
    }
  }
}

TEST(NonceSequence, DefaultHardLimitsAtTheirEdges) {
  NonceSequence segments{KeyBudget{}};
  EXPECT_FALSE(segments.take(1ull << 32, 0).has_value());
  EXPECT_TRUE(segments.take((1ull << 32) - 1, 0).has_value());
  EXPECT_FALSE(segments.take(1, 0).has_value());
  NonceSequence bytes{KeyBudget{}};
  EXPECT_FALSE(bytes.take(1, (1ull << 40) + 1).has_value());
  EXPECT_TRUE(bytes.take(1, 1ull << 40).has_value());
  EXPECT_FALSE(bytes.take(1, 1).has_value());
}

TEST(NonceSequence, RotationIsDueExactlyAtEachLimit) {
  KeyBudget budget;
  budget.segments_rotate = 10;
  budget.bytes_rotate = 1000;
  budget.ops_rotate = 100;
  NonceSequence segments(budget), bytes(budget), ops(budget);
  EXPECT_FALSE(segments.rotation_due());
  (void)segments.take(9, 0);
  EXPECT_FALSE(segments.rotation_due());
  (void)segments.take(1, 0);
  EXPECT_TRUE(segments.rotation_due());
  (void)bytes.take(1, 999);
  EXPECT_FALSE(bytes.rotation_due());
  (void)bytes.take(1, 1);
  EXPECT_TRUE(bytes.rotation_due());
  for (int i = 0; i < 99; ++i) (void)ops.take(0, 0);
  EXPECT_FALSE(ops.rotation_due());
  (void)ops.take(0, 0);
  EXPECT_TRUE(ops.rotation_due());
  // One op may pass the rotation limit in one step: it belongs whole to the epoch it began in.
  NonceSequence large(budget);
  EXPECT_TRUE(large.take(500, 1 << 20).has_value());
  EXPECT_TRUE(large.rotation_due());
}

TEST(NonceSequence, BothEndsStayEqualOverAnyWalk) {
  KeyBudget budget;
  budget.segments_max = 5000;
  budget.bytes_max = 100000;
  budget.segments_rotate = 2500;
  NonceSequence sender(budget), receiver(budget);
  std::uint64_t state = 7;
  std::set<std::uint64_t> spent;
  for (int i = 0; i < 4000; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const std::uint64_t segments = state % 7, bytes = (state >> 8) % 100;
    ASSERT_EQ(sender.rotation_due(), receiver.rotation_due());
    auto permit = sender.take(segments, bytes);
    const auto first = receiver.advance(segments, bytes);
    ASSERT_EQ(permit.has_value(), first.has_value());
    if (!permit) continue;
    ASSERT_EQ(permit->first(), *first);
    while (permit->remaining() > 0)
      ASSERT_TRUE(spent.insert(permit->spend()).second) << "a number came twice";
  }
  EXPECT_LE(spent.size(), 5000u);
  EXPECT_EQ(spent.size(), sender.segments());
}

TEST(SealPermit, SpendsEachNumberOnce) {
  NonceSequence sequence{KeyBudget{}};
  (void)sequence.take(7, 0);
  SealPermit permit = sequence.take(3, 0).value();
  EXPECT_EQ(permit.spend(), 7u);
  EXPECT_EQ(permit.spend(), 8u);
  EXPECT_EQ(permit.remaining(), 1u);
  EXPECT_EQ(permit.spend(), 9u);
  EXPECT_EQ(permit.remaining(), 0u);
}

TEST(SealPermit, SplitCutsTheFrontOffAtEverySize) {
  for (std::uint64_t front_segments = 0; front_segments <= 6; ++front_segments) {
    NonceSequence sequence{KeyBudget{}};
    SealPermit rest = sequence.take(6, 0).value();
    SealPermit front = rest.split(front_segments);
    EXPECT_EQ(front.first(), 0u);
    EXPECT_EQ(front.remaining(), front_segments);
    EXPECT_EQ(rest.first(), front_segments);
    EXPECT_EQ(rest.remaining(), 6 - front_segments);
    std::uint64_t expected = 0;
    while (front.remaining() > 0) EXPECT_EQ(front.spend(), expected++);
    while (rest.remaining() > 0) EXPECT_EQ(rest.spend(), expected++);
    EXPECT_EQ(expected, 6u);
  }
}

TEST(SealPermit, AMovedFromPermitIsEmpty) {
  NonceSequence sequence{KeyBudget{}};
  SealPermit first = sequence.take(4, 0).value();
  SealPermit second = std::move(first);
  EXPECT_EQ(first.remaining(), 0u);  // NOLINT: what is left behind is the point
  EXPECT_EQ(second.remaining(), 4u);
  SealPermit third = sequence.take(2, 0).value();
  third = std::move(second);
  EXPECT_EQ(second.remaining(), 0u);  // NOLINT
  EXPECT_EQ(third.first(), 0u);
  EXPECT_EQ(third.remaining(), 4u);
}

TEST(SealPermitDeathTest, SpendingOrSplittingPastTheEndAborts) {
  NonceSequence sequence{KeyBudget{}};
  SealPermit permit = sequence.take(1, 0).value();
  EXPECT_DEATH((void)permit.split(2), "SR_CHECK");
  (void)permit.spend();
  EXPECT_DEATH((void)permit.spend(), "SR_CHECK");
  SealPermit source = sequence.take(1, 0).value();
  SealPermit target = std::move(source);
  EXPECT_DEATH((void)source.spend(), "SR_CHECK");  // NOLINT: a moved-from permit has nothing to spend
  EXPECT_EQ(target.spend(), 1u);
}

}  // namespace
}  // namespace sealring
