// Claim: under the condition of progress.h no interleaving of a fused kernel's columns hangs, whichever
// columns are resident; without it one does.
// How: a model of flags and credits; every interleaving where there are few, random ones where there are
// many, and lags and slots on both sides of the bound.
#include <gtest/gtest.h>

#include "tests/device/progress_model.h"

namespace sealring::cuda::test {
namespace {

// At the bound: one slot less would hang.
std::vector<Pipeline> at_the_bound(std::uint32_t ranks) {
  std::vector<Pipeline> out;
  for (std::uint32_t pull = 0; pull <= 3; ++pull) {
    if (ranks == 2) {
      out.push_back({0, pull, pull + 1, 0});
      continue;
    }
    for (std::uint32_t reduce = 0; reduce <= pull; ++reduce)
      out.push_back({reduce, pull, reduce + 1, pull - reduce + 1});
  }
  return out;
}

// Residency of each rank as the digits of `code` to the base of columns.
void set_residency(ModelShape& shape, std::uint32_t code) {
  for (std::uint32_t& resident : shape.resident) {
    resident = 1 + code % shape.columns;
    code /= shape.columns;
  }
}

TEST(Progress, TheConditionIsExactlyWhatTheModelNeeds) {
  std::mt19937_64 random(1);
  constexpr std::uint32_t kSegments = 7;  // more than any number of slots below
  for (std::uint32_t d = 0; d <= 4; ++d) {
    for (std::uint32_t slots = 1; slots <= 5; ++slots) {
      const Pipeline two{0, d, slots, 0};
      EXPECT_EQ(ProgressModel(ModelShape::of(two, 2, 1, kSegments)).run(random), progresses(two, true))
          << "two ranks, lag " << d << " slots " << slots;
      for (std::uint32_t pull = 0; pull <= 4; ++pull) {
        for (std::uint32_t gather = 1; gather <= 5; ++gather) {
          const Pipeline p{d, pull, slots, gather};
          for (std::uint32_t ranks = 3; ranks <= 4; ++ranks) {
            EXPECT_EQ(ProgressModel(ModelShape::of(p, ranks, 1, kSegments)).run(random), progresses(p, false))
                << ranks << " ranks, lags " << d << " " << pull << " slots " << slots << " " << gather;
          }
        }
      }
    }
  }
}

TEST(Progress, NoInterleavingOfTwoRanksHangsWhateverIsResident) {
  for (const Pipeline& pipeline : at_the_bound(2)) {
    if (pipeline.pull_lag > 2) continue;
    ModelShape shape = ModelShape::of(pipeline, 2, 3, 3);
    for (std::uint32_t code = 0; code < 9; ++code) {
      set_residency(shape, code);
      std::size_t states = 0;
      EXPECT_EQ(ProgressModel(shape).hangs(&states), 0u) << "lag " << pipeline.pull_lag << " code " << code;
      EXPECT_GT(states, 40u);
    }
  }
}

TEST(Progress, NoInterleavingOfThreeRanksHangs) {
  for (const Pipeline& pipeline : at_the_bound(3)) {
    if (pipeline.pull_lag > 2) continue;
    std::size_t states = 0;
    EXPECT_EQ(ProgressModel(ModelShape::of(pipeline, 3, 1, 4)).hangs(&states), 0u);
    EXPECT_GT(states, 100u);
  }
}

TEST(Progress, RandomInterleavingsOfThreeColumnsEnd) {
  std::mt19937_64 random(2);
  for (std::uint32_t ranks = 2; ranks <= 4; ++ranks) {
    std::vector<Pipeline> pipelines = at_the_bound(ranks);
    pipelines.push_back(ranks == 2 ? kTwoRankPipeline : kManyRankPipeline);
    for (const Pipeline& pipeline : pipelines) {
      ModelShape shape = ModelShape::of(pipeline, ranks, 3, 9);
      for (int run = 0; run < 40; ++run) {
        set_residency(shape, static_cast<std::uint32_t>(random()));
        ASSERT_TRUE(ProgressModel(shape).run(random)) << ranks << " ranks, run " << run;
      }
    }
  }
}

TEST(Progress, AsManySlotsAsTheLagHang) {
  // [two ranks] Both wait for the credit of a segment that the other pulls behind the push it waits in.
  std::size_t states = 0;
  EXPECT_GT(ProgressModel(ModelShape::of({0, 2, 2, 0}, 2, 1, 3)).hangs(&states), 0u);
  EXPECT_GT(states, 3u);
  std::mt19937_64 random(3);
  for (std::uint32_t ranks = 3; ranks <= 4; ++ranks) {
    EXPECT_FALSE(ProgressModel(ModelShape::of({2, 4, 2, 4}, ranks, 3, 9)).run(random));
    EXPECT_FALSE(ProgressModel(ModelShape::of({2, 4, 4, 2}, ranks, 3, 9)).run(random));
    EXPECT_FALSE(ProgressModel(ModelShape::of({2, 1, 4, 4}, ranks, 3, 9)).run(random));
  }
}

TEST(Progress, ColumnsThatStartInAnotherOrderOnEachRankMayHang) {
  ModelShape shape = ModelShape::of(kTwoRankPipeline, 2, 3, 9);
  shape.started[1] = {2, 1, 0};
  shape.resident = {1, 1};
  std::mt19937_64 random(4);
  EXPECT_FALSE(ProgressModel(shape).run(random));
}

}  // namespace
}  // namespace sealring::cuda::test
