// Claim: under the condition of progress.h no interleaving of a fused step's columns hangs, whichever records
// it has and whichever columns are resident; without it one does.
// How: a model of flags and credits; every interleaving where there are few, random ones where there are
// many, and lags and slots on both sides of the bound.
#include <gtest/gtest.h>

#include "tests/device/progress_model.h"

namespace sealring::cuda::test {
namespace {

// Residency of each rank as the digits of `code` to the base of columns.
void set_residency(ModelStep& step, std::uint32_t code) {
  for (std::uint32_t& resident : step.resident) {
    resident = 1 + code % step.columns;
    code /= step.columns;
  }
}

std::size_t hangs(ModelStep step, std::uint32_t lag_segments, std::uint32_t slots,
                  std::size_t* states = nullptr) {
  step.lag_segments = lag_segments;
  step.slots = slots;
  return ProgressModel(step).hangs(states);
}

// Two ranks and a column: so many segments from rank 0, and from rank 1.
ModelStep both_ways(std::uint32_t there, std::uint32_t back) {
  std::vector<ModelRecord> records;
  if (there > 0) records.push_back({0, 1, there, 1});
  if (back > 0) records.push_back({1, 0, back, 1});
  return ModelStep::of(2, 1, records);
}

TEST(Progress, OfTwoRanksTheConditionIsExact) {
  std::mt19937_64 random(1);
  for (std::uint32_t lag = 0; lag <= 4; ++lag) {
    for (std::uint32_t slots = 1; slots <= 6; ++slots) {
      ModelStep step = ModelStep::all_to_all(2, 1, 9);  // more segments than slots
      step.lag_segments = lag;
      step.slots = slots;
      EXPECT_EQ(ProgressModel(step).run(random), progresses(lag, slots))
          << "lag " << lag << " slots " << slots;
    }
  }
}

TEST(Progress, NoInterleavingOfTwoRanksHangsWhateverTheLengths) {
  for (std::uint32_t lag = 1; lag <= 3; ++lag) {
    for (std::uint32_t there = 0; there <= 6; ++there) {
      for (std::uint32_t back = 0; back <= 6; ++back) {
        EXPECT_EQ(hangs(both_ways(there, back), lag, lag + 2), 0u)
            << "lag " << lag << ", " << there << " there, " << back << " back";
      }
    }
  }
}

TEST(Progress, NoInterleavingOfTwoRanksHangsWhateverIsResident) {
  // The second record is shared by fewer columns than the first.
  for (const std::uint32_t columns_back : {3u, 2u, 1u}) {
    ModelStep step = ModelStep::of(2, 3, {{0, 1, 17, 3}, {1, 0, 8, columns_back}});
    for (std::uint32_t code = 0; code < 9; ++code) {
      set_residency(step, code);
      std::size_t states = 0;
      EXPECT_EQ(hangs(step, 1, 3, &states), 0u) << code;
      EXPECT_GT(states, 40u);
    }
  }
}

ModelStep by_items(ModelStep step, std::uint32_t slots) {
  step.by_items = true;
  step.slots = slots;
  return step;
}

TEST(Progress, NoInterleavingOfItemsHangsWhateverTheLengths) {
  for (std::uint32_t there = 0; there <= 8; ++there) {
    for (std::uint32_t back = 0; back <= 8; ++back) {
      const ModelStep step = both_ways(there, back);
      for (const std::uint32_t slots : {3u, kFusedSlots})
        EXPECT_EQ(ProgressModel(by_items(step, slots)).hangs(), 0u) << there << " there, " << back << " back";
    }
  }
  for (const std::uint32_t columns_back : {3u, 2u, 1u}) {
    ModelStep step = ModelStep::of(2, 3, {{0, 1, 17, 3}, {1, 0, 8, columns_back}});
    for (std::uint32_t code = 0; code < 9; ++code) {
      set_residency(step, code);
      std::size_t states = 0;
      EXPECT_EQ(ProgressModel(by_items(step, 3)).hangs(&states), 0u) << code;
      EXPECT_GT(states, 40u);
    }
  }
  std::mt19937_64 random(7);
  EXPECT_FALSE(ProgressModel(by_items(ModelStep::all_to_all(2, 1, 9), 1)).run(random));
}

TEST(Progress, ItemsAreEverySegmentOnceAndPushesOneAhead) {
  for (std::uint32_t pushes = 0; pushes <= 6; ++pushes) {
    for (std::uint32_t pulls = 0; pulls <= 6; ++pulls) {
      const Items items{pushes, pulls};
      std::uint32_t pushed = 0, pulled = 0;
      for (std::uint32_t order = 0; order < items.count(); ++order) {
        const Item item = items.at(order);
        EXPECT_EQ(item.segment, item.push ? pushed : pulled);
        (item.push ? pushed : pulled) += 1;
        EXPECT_TRUE(item.push ? pushed <= pulled + 2 || pulled == pulls
                              : pushed > pulled || pushed == pushes);
      }
      EXPECT_EQ(pushed, pushes);
      EXPECT_EQ(pulled, pulls);
    }
  }
}

TEST(Progress, NoInterleavingOfMoreRanksHangs) {
  std::size_t states = 0;
  EXPECT_EQ(hangs(ModelStep::all_to_all(3, 1, 6), 1, 3, &states), 0u);
  EXPECT_GT(states, 100u);
  EXPECT_EQ(hangs(ModelStep::all_to_all(3, 1, 7), kLagSegments, kFusedSlots, &states), 0u);
  EXPECT_GT(states, 100u);
  EXPECT_EQ(hangs(ModelStep::all_to_all(4, 1, 5), 1, 3, &states), 0u);
  EXPECT_GT(states, 100u);
  // A ring; a root that is sent to; a root that sends; one pair beside it.
  for (std::uint32_t segments = 4; segments <= 5; ++segments) {
    EXPECT_EQ(
        hangs(ModelStep::of(3, 1, {{0, 1, segments, 1}, {1, 2, segments, 1}, {2, 0, segments, 1}}), 1, 3),
        0u);
    EXPECT_EQ(hangs(ModelStep::of(4, 1, {{1, 0, segments, 1}, {2, 0, 5, 1}, {3, 0, 1, 1}}), 1, 3), 0u);
    EXPECT_EQ(
        hangs(ModelStep::of(4, 1, {{0, 1, segments, 1}, {0, 2, 5, 1}, {2, 3, 6, 1}, {3, 2, 2, 1}}), 1, 3),
        0u);
  }
}

TEST(Progress, RanksNeedNotHaveTheSameLag) {
  for (std::uint32_t there = 0; there <= 8; ++there) {
    for (std::uint32_t back = 0; back <= 8; ++back) {
      ModelStep step = both_ways(there, back);
      step.lags = {1, kLagSegments};
      EXPECT_EQ(ProgressModel(step).hangs(), 0u) << there << " there, " << back << " back";
    }
  }
  ModelStep ring = ModelStep::of(3, 1, {{0, 1, 6, 1}, {1, 2, 3, 1}, {2, 0, 5, 1}});
  ring.lags = {1, kLagSegments, 1};
  EXPECT_EQ(ProgressModel(ring).hangs(), 0u);
  // The model takes these lags: with too few slots for both it hangs.
  std::mt19937_64 random(6);
  ModelStep step = ModelStep::all_to_all(2, 1, 9);
  step.lags = {kFusedSlots - 1, kFusedSlots - 1};
  EXPECT_FALSE(ProgressModel(step).run(random));
}

TEST(Progress, RandomStepsOfRanksWithDifferentStridesEnd) {
  std::mt19937_64 random(2);
  for (int run = 0; run < 3000; ++run) {
    const auto ranks = static_cast<std::uint32_t>(2 + random() % 4);
    const auto columns = static_cast<std::uint32_t>(1 + random() % 3);
    std::vector<ModelRecord> records;
    for (std::uint32_t from = 0; from < ranks; ++from) {
      for (std::uint32_t to = 0; to < ranks; ++to) {
        if (from == to || random() % 3 == 0) continue;
        records.push_back({from, to, static_cast<std::uint32_t>(1 + random() % 20),
                           static_cast<std::uint32_t>(1 + random() % columns)});
      }
    }
    ModelStep step = ModelStep::of(ranks, columns, records);
    set_residency(step, static_cast<std::uint32_t>(random()));
    step.lag_segments = 1 + static_cast<std::uint32_t>(random() % 3);
    step.slots = step.lag_segments + 2;
    ASSERT_TRUE(ProgressModel(step).run(random)) << ranks << " ranks, run " << run;
  }
}

TEST(Progress, OneSlotLessHangs) {
  std::size_t states = 0;
  EXPECT_GT(hangs(ModelStep::all_to_all(2, 1, 5), kLagSegments, kFusedSlots - 1, &states), 0u);
  EXPECT_GT(states, 3u);
  std::mt19937_64 random(3);
  for (std::uint32_t ranks = 3; ranks <= 4; ++ranks) {
    ModelStep step = ModelStep::all_to_all(ranks, 1, 9);
    step.slots = kFusedSlots - 1;
    step.lag_segments = kLagSegments + 1;  // two too few
    EXPECT_FALSE(ProgressModel(step).run(random)) << ranks;
  }
}

TEST(Progress, LessThanASegmentOfLagHangs) {
  std::mt19937_64 random(4);
  for (std::uint32_t ranks = 2; ranks <= 4; ++ranks) {
    ModelStep step = ModelStep::all_to_all(ranks, 1, 3);
    step.lag_segments = 0;  // a flag is waited for before it can be posted
    EXPECT_FALSE(ProgressModel(step).run(random)) << ranks;
    step.lag_turns = ranks - 1;  // a segment
    EXPECT_TRUE(ProgressModel(step).run(random)) << ranks;
  }
}

TEST(Progress, ColumnsThatStartInAnotherOrderOnEachRankMayHang) {
  ModelStep step = ModelStep::all_to_all(2, 3, 3);
  step.started[1] = {2, 1, 0};
  step.resident = {1, 1};
  std::mt19937_64 random(5);
  EXPECT_FALSE(ProgressModel(step).run(random));
}

}  // namespace
}  // namespace sealring::cuda::test
