// Claim: real sessions on loopback cost as many seals and opens as the schedule says: 4(n-1) per ring
// all-reduce a rank. How: small worlds, three schedules, counters of every rank; sums are checked inside; the
// study's 60 for n = 4, k = 5.
#include "sealring/study/count_law.h"

#include <gtest/gtest.h>

namespace sealring {
namespace {

TEST(CountLaw, RingIsFourTimesRanksMinusOne) {
  for (const std::uint16_t ranks : {std::uint16_t{2}, std::uint16_t{3}, std::uint16_t{4}}) {
    const auto record = count_operations(ranks, 5, "ring", 840);
    ASSERT_TRUE(record) << record.error().message();
    EXPECT_EQ(record->counted_per_rank, 4u * 5u * (ranks - 1u));
    EXPECT_EQ(record->counted_per_rank, record->predicted_per_rank);
    EXPECT_EQ(record->counted_cluster, record->counted_per_rank * ranks);
    EXPECT_EQ(record->sealed_bytes_per_rank, record->predicted_sealed_bytes);
  }
}

TEST(CountLaw, OneHopSealsEachSumOnce) {
  const auto record = count_operations(4, 2, "one-hop", 840);
  ASSERT_TRUE(record) << record.error().message();
  EXPECT_EQ(record->counted_per_rank, record->predicted_per_rank);
  EXPECT_LT(record->counted_per_rank, 4u * 2u * 3u);
}

TEST(CountLaw, OneShotSealsOnceAndOpensFromEveryPeer) {
  for (const std::uint16_t ranks : {std::uint16_t{2}, std::uint16_t{3}, std::uint16_t{4}}) {
    const auto record = count_operations(ranks, 5, "one-shot", 840);
    ASSERT_TRUE(record) << record.error().message();
    EXPECT_EQ(record->counted_per_rank, 5u * ranks);
    EXPECT_EQ(record->counted_per_rank, record->predicted_per_rank);
    EXPECT_EQ(record->sealed_bytes_per_rank, record->predicted_sealed_bytes);
  }
}

TEST(CountLaw, UnknownAlgorithmIsAnError) {
  EXPECT_EQ(count_operations(2, 1, "sideways", 8).error().code, Code::invalid_argument);
}

TEST(SetupTimes, EveryWorldStarts) {
  const auto setups = measure_setups(1);
  ASSERT_TRUE(setups) << setups.error().message();
  ASSERT_EQ(setups->size(), 4u);
  for (const SetupRecord& each : *setups) EXPECT_GT(each.setup_ms.at(0), 0);
}

}  // namespace
}  // namespace sealring
