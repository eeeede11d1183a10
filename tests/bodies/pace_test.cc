// Claim: a column that is more than a turn ahead of one beside it waits until that one has caught up, and
// never longer than its looks; columns of other lengths, and those that have ended, keep nobody; a seat is
// one column's and is free again when it ends. How: the functions that the kernels run are run on the host,
// with a neighbour that moves while it is looked at.
#include "sealring/device/cuda/pace.h"

#include <gtest/gtest.h>

#include <vector>

namespace sealring::cuda {
namespace {

constexpr std::uint32_t kTurns = 20, kMultiprocessor = 3;

class Pace : public testing::Test {
 protected:
  PaceSeat seat(std::uint32_t turns = kTurns) { return take_seat(rows.data(), kMultiprocessor, turns); }
  std::uint32_t& word(const PaceSeat& of) { return rows[of.row].at[of.slot]; }
  /// Looks in vain before `turn`.
  template <class Move>
  int looks(PaceSeat& mine, std::uint32_t turn, Move move) {
    int out = 0;
    keep_pace(rows.data(), mine, turn, [&] {
      ++out;
      move(out);
    });
    return out;
  }
  int looks(PaceSeat& mine, std::uint32_t turn) {
    return looks(mine, turn, [](int) {});
  }

  std::vector<PaceRow> rows = std::vector<PaceRow>(kPaceRows);
};

TEST_F(Pace, ATurnAheadIsNoReasonToWait) {
  PaceSeat mine = seat();
  word(seat()) = pace_word(kTurns, 4);
  EXPECT_EQ(looks(mine, 5), 0);
  EXPECT_EQ(looks(mine, 4), 0);
  EXPECT_EQ(looks(mine, 3), 0);
}

TEST_F(Pace, TwoTurnsAheadWaitsForTheLastOfThem) {
  PaceSeat mine = seat();
  const PaceSeat far = seat();
  word(seat()) = pace_word(kTurns, 5);
  EXPECT_EQ(looks(mine, 6, [&](int look) { word(far) = pace_word(kTurns, look < 7 ? 4 : 5); }), 7);
  EXPECT_LT(mine.slot, kPaceBlocks);
}

TEST_F(Pace, AWaitInVainEndsAndIsTheLastOne) {
  PaceSeat mine = seat(), stuck = seat();
  const PaceSeat had = mine;
  EXPECT_EQ(looks(mine, 2), static_cast<int>(kPaceLooks));
  EXPECT_EQ(word(had), 0u);
  EXPECT_EQ(looks(mine, 10), 0);
  EXPECT_EQ(word(had), 0u);
  EXPECT_EQ(word(stuck), pace_word(kTurns, 0));
}

TEST_F(Pace, OthersThatAreOfNoConcern) {
  PaceSeat mine = seat();
  const PaceSeat longer = seat(kTurns + 1), shorter = seat(kTurns - 1);
  EXPECT_EQ(looks(mine, kTurns), 0);
  EXPECT_NE(longer.slot, shorter.slot);
  PaceSeat ended = seat();
  leave_seat(rows.data(), ended);
  EXPECT_EQ(looks(mine, kTurns), 0);
  const PaceSeat elsewhere = take_seat(rows.data(), kMultiprocessor + 1, kTurns);
  EXPECT_EQ(elsewhere.row, kMultiprocessor + 1);
  EXPECT_EQ(looks(mine, kTurns), 0);
}

TEST_F(Pace, SeatsAreOneColumnsEachAndComeBack) {
  std::vector<PaceSeat> all;
  for (std::uint32_t i = 0; i < kPaceBlocks; ++i) {
    all.push_back(seat());
    EXPECT_EQ(all.back().slot, i);
  }
  PaceSeat none = seat();
  EXPECT_EQ(none.slot, kPaceBlocks);
  EXPECT_EQ(looks(none, 9), 0);
  leave_seat(rows.data(), none);
  leave_seat(rows.data(), all[2]);
  EXPECT_EQ(seat().slot, 2u);
  leave_seat(rows.data(), all[2]);  // has none any more
  EXPECT_EQ(seat().slot, kPaceBlocks);
}

TEST_F(Pace, ShortColumnsAndThoseTooLongToCountTakeNone) {
  EXPECT_EQ(seat(kPaceTurnsMin - 1).slot, kPaceBlocks);
  EXPECT_EQ(seat(kPaceTurnsMin).slot, 0u);
  EXPECT_EQ(seat(0xFFFE).slot, 1u);
  EXPECT_EQ(seat(0xFFFF).slot, kPaceBlocks);
  EXPECT_TRUE(is_behind(pace_word(0xFFFE, 0xFFFB), pace_word(0xFFFE, 0xFFFD)));
  EXPECT_FALSE(is_behind(pace_word(0xFFFE, 0xFFFC), pace_word(0xFFFE, 0xFFFD)));
}

TEST_F(Pace, MoreMultiprocessorsThanRowsShareThem) {
  EXPECT_EQ(take_seat(rows.data(), kPaceRows + 7, kTurns).row, 7u);
}

}  // namespace
}  // namespace sealring::cuda
