// Claim: who lives is known, a death reaches every rank within 2 s with its reason and what differed, and
// nobody on
//        the wire can fake either.
// How: 2 to 4 ranks as threads on in-memory streams; killed and frozen ranks; every harm to a frame; orderly
// ends.
#include "sealring/control/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "sealring/control/frame.h"
#include "tests/control/control_world.h"

namespace sealring {
namespace {

using testing::eventually;
using testing::leave_all;
using testing::make_error;
using testing::patient;
using testing::quick;
using testing::World;
using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Deadline soon() { return Deadline::in(2s); }

TEST(Control, AliveWhileNothingHappensAndLeavesInOrder) {
  World world(4, quick());
  for (std::uint64_t seq = 0; seq < 200; ++seq) {
    world.begin_all(world.op(seq));
    world.finish_all(world.op(seq));
  }
  std::this_thread::sleep_for(100ms);
  for (const Verdict& verdict : world.verdicts) EXPECT_FALSE(verdict.dead());
  leave_all(world);
  world.controls.clear();
  for (const Verdict& verdict : world.verdicts) EXPECT_FALSE(verdict.dead());
}

TEST(Control, AWorldOfOneNeedsNobody) {
  World world(1, quick());
  world.begin_all(world.op(0));
  EXPECT_TRUE(world.controls[0]->leave(soon()).has_value());
  EXPECT_TRUE(world.controls[0]->leave(soon()).has_value());  // again: nothing more to do
  World dying(1, quick());
  dying.fail_op(0, make_error(Code::out_of_memory, "no memory"));
  EXPECT_EQ(dying.verdicts[0].error()->code, Code::out_of_memory);
}

TEST(Control, HeartbeatsComeInTheirTime) {
  ControlConfig config;
  config.heartbeat = 50ms;
  World world(2, config);
  EXPECT_TRUE(eventually([&] { return world.hub.sent_bytes(0) >= 3 * (4 + 3 + 16); }));
  const auto before = world.hub.sent_bytes(0);
  std::this_thread::sleep_for(500ms);
  // At most one a period, whatever the machine does; an empty one has 3 bytes of payload.
  EXPECT_LE((world.hub.sent_bytes(0) - before) / (4 + 3 + 16), 11u);
}

struct FieldCase {
  const char* field;
  std::function<void(OpContext&)> change;
};

TEST(Control, EveryDifferingFieldIsFoundAndNamedOnBothRanks) {
  const std::vector<FieldCase> cases{{"op", [](OpContext& op) { op.op = Op::reduce_scatter; }},
                                     {"dtype", [](OpContext& op) { op.dtype = DType::f16; }},
                                     {"elements", [](OpContext& op) { op.elements = 4095; }},
                                     {"redop", [](OpContext& op) { op.redop = RedOp::avg; }},
                                     {"root", [](OpContext& op) { op.root = 1; }},
                                     {"algorithm", [](OpContext& op) { op.algorithm = Algorithm::one_hop; }}};
  for (const FieldCase& one : cases) {
    World world(2, quick());
    world.begin_all(world.op(0));
    world.finish_all(world.op(0));
    OpContext other = world.op(1);
    one.change(other);
    world.begin(0, world.op(1));
    world.begin(1, other);  // both now sit in their op; nobody calls in again
    for (Rank rank = 0; rank < 2; ++rank) {
      const Error error = world.ending(rank);
      const OpContext& mine = rank == 0 ? world.op(1) : other;
      const OpContext& theirs = rank == 0 ? other : world.op(1);
      if (error.code == Code::aborted) {
        EXPECT_THAT(error.what, HasSubstr("SR-E605 OP_MISMATCH"));
      } else {
        EXPECT_EQ(error.code, Code::op_mismatch);
        EXPECT_EQ(error.peer, 1 - rank);
      }
      EXPECT_EQ(error.diagnosis, "operation 1 of the world group: rank " + std::to_string(1 - rank) +
                                     " called " + theirs.describe() + ", this rank called " +
                                     mine.describe() + "; they differ in " + one.field);
    }
    EXPECT_TRUE(world.verdicts[0].error()->code == Code::op_mismatch ||
                world.verdicts[1].error()->code == Code::op_mismatch);
  }
}

TEST(Control, AMismatchIsFoundWithinAboutTwoHeartbeats) {
  ControlConfig config;
  config.heartbeat = 100ms;
  World world(2, config);
  std::this_thread::sleep_for(30ms);
  OpContext other = world.op(0);
  other.elements = 1;
  world.begin(0, world.op(0));
  world.begin(1, other);
  EXPECT_TRUE(eventually([&] { return world.verdicts[0].dead() && world.verdicts[1].dead(); }, 250ms));
}

TEST(Control, OneOddRankOfFourIsNamedByAll) {
  World world(4, quick());
  OpContext odd = world.op(0);
  odd.dtype = DType::f32;
  for (const Rank rank : world.members) world.begin(rank, rank == 2 ? odd : world.op(0));
  for (const Rank rank : std::initializer_list<Rank>{0, 1, 3}) {
    EXPECT_THAT(world.ending(rank).diagnosis,
                StartsWith("operation 0 of the world group: rank 2 called all_reduce fp32"));
  }
  EXPECT_THAT(
      world.ending(2).diagnosis,
      StartsWith("operation 0 of the world group: ranks 0, 1, 3 called all_reduce bf16 x 4096 sum ring, this "
                 "rank called all_reduce fp32"));
}

TEST(Control, SubgroupsAreComparedAmongTheirMembersOnly) {
  World world(3, quick());
  OpContext sub = world.op(0), other = world.op(0);
  sub.group_id = other.group_id = testing::group_id_of(0xBB);
  other.elements = 5;
  world.controls[0]->op_started(sub, {0, 1});
  world.controls[2]->op_started(other, {2});  // another group's number by the same name: not a member of mine
  std::this_thread::sleep_for(patient(150ms));
  EXPECT_FALSE(world.verdicts[0].dead());
  world.controls[1]->op_started(other, {0, 1});
  const Error error = world.ending(0);
  EXPECT_EQ(error.diagnosis,
            "operation 0 of group bbbbbbbb: rank 1 called all_reduce bf16 x 5 sum ring, this rank called "
            "all_reduce "
            "bf16 x 4096 sum ring; they differ in elements");
}

TEST(Control, ForgottenGroupsAreNotCompared) {
  World world(2, quick());
  OpContext other = world.op(0);
  other.elements = 1;
  world.begin(0, world.op(0));
  std::this_thread::sleep_for(patient(100ms));  // told
  world.controls[0]->forget_group(world.op(0).group_id);
  world.controls[1]->forget_group(world.op(0).group_id);
  world.begin(1, other);
  std::this_thread::sleep_for(patient(100ms));
  EXPECT_FALSE(world.verdicts[0].dead());
  EXPECT_FALSE(world.verdicts[1].dead());
}

TEST(Control, TheLastOpOfAForgottenGroupIsStillTold) {
  World world(2, quick());
  OpContext other = world.op(0);
  other.elements = 1;
  world.begin(0, world.op(0));
  world.controls[0]->forget_group(world.op(0).group_id);
  world.begin(1, other);
  const Code first = world.ending(0).code, second = world.ending(1).code;  // who finds it tells the other
  EXPECT_TRUE(first == Code::op_mismatch || second == Code::op_mismatch);
}

TEST(Control, PointToPointIsRecordedButNotCompared) {
  World world(2, quick());
  OpContext mine = world.op(0), theirs = world.op(0);
  mine.op = theirs.op = Op::send;
  theirs.elements = 1;
  world.begin(0, mine);
  world.begin(1, theirs);
  std::this_thread::sleep_for(patient(100ms));
  EXPECT_FALSE(world.verdicts[0].dead());
}

TEST(Control, AnAbortReachesAllWithItsReasonWithinTwoSeconds) {
  World world(4, quick());
  world.begin_all(world.op(0));
  const auto before = Clock::now();
  world.fail_op(2, make_error(Code::data_tag, "a segment was not accepted", "data.open", 1));
  EXPECT_LT(Clock::now() - before, patient(2000ms));
  for (const Rank rank : std::initializer_list<Rank>{0, 1, 3}) {
    EXPECT_TRUE(eventually([&] { return world.verdicts[rank].dead(); }, 1000ms));
    const Error error = world.ending(rank);
    EXPECT_EQ(error.code, Code::aborted);
    EXPECT_EQ(error.rank, rank);
    EXPECT_EQ(error.peer, 2);
    EXPECT_THAT(error.what,
                StartsWith("rank 2 reported SR-E602 DATA_TAG about rank 1 at data.open: a segment was not "
                           "accepted"));
    EXPECT_EQ(error.diagnosis, "");  // all called the same
  }
  EXPECT_EQ(world.verdicts[2].error()->code, Code::data_tag);
}

TEST(Control, ADataTagWithDifferingCallsSaysWhich) {
  ControlConfig config;
  config.heartbeat = 10s;  // no beat comes in time: the recorders alone must tell
  World world(2, config);
  OpContext other = world.op(0);
  other.dtype = DType::f16;
  world.begin(0, world.op(0));
  world.begin(1, other);
  world.fail_op(0, make_error(Code::data_tag, "a segment was not accepted", "data.open", 1));
  EXPECT_EQ(world.verdicts[0].error()->code, Code::data_tag);
  EXPECT_THAT(world.verdicts[0].error()->diagnosis, HasSubstr("they differ in dtype"));
  EXPECT_THAT(world.ending(1).diagnosis, HasSubstr("they differ in dtype"));
}

TEST(Control, ATimeoutNamesTheRankThatNeverCalled) {
  World world(3, quick());
  world.begin_all(world.op(16));
  world.finish_all(world.op(16));
  world.begin(0, world.op(17));
  world.begin(2, world.op(17));
  world.fail_op(0, make_error(Code::timeout, "operation 17 took too long", "op.wait"));
  EXPECT_EQ(world.verdicts[0].error()->diagnosis, "rank 1 has not issued operation 17 of the world group");
  EXPECT_EQ(world.ending(2).diagnosis, "rank 1 has not issued operation 17 of the world group");
  EXPECT_THAT(world.ending(1).diagnosis,
              StartsWith("this rank has not issued operation 17 of the world group, which rank 0 waits in"));
}

TEST(Control, HostileReasonsArePrintableAndBounded) {
  World world(2, quick());
  world.fail_op(0, make_error(Code::data_tag, "x\n  fake second line\x1b[2J" + std::string(5000, 'y')));
  const Error error = world.ending(1);
  EXPECT_EQ(error.code, Code::aborted);
  EXPECT_EQ(std::count(error.what.begin(), error.what.end(), '\n'), 0);
  EXPECT_LE(error.what.size(), 1200u);
  EXPECT_THAT(error.what, HasSubstr("x\\x0a  fake second line\\x1b[2J"));
}

TEST(Control, AnyoneMaySetTheVerdictAndTheTeardownFollows) {
  World world(3, quick());
  world.verdicts[1].set(make_error(Code::key_limit, "no number left"));  // nobody calls announce_death
  for (const Rank rank : std::initializer_list<Rank>{0, 2}) {
    EXPECT_TRUE(eventually([&] { return world.verdicts[rank].dead(); }));
    EXPECT_THAT(world.verdicts[rank].error()->what, HasSubstr("rank 1 reported SR-E701 KEY_LIMIT"));
  }
}

TEST(Control, CallbacksMayCallBackFromTheControlThread) {
  World world(2, quick());
  std::atomic<int> calls{0};
  for (const Rank rank : world.members) {
    world.verdicts[rank].on_death([&world, &calls, rank](const Error& error) {
      world.controls[rank]->op_finished(world.op(0).group_id, 0, false);
      world.controls[rank]->announce_death(error, soon());
      world.controls[rank]->forget_group(world.op(0).group_id);
      ++calls;
    });
  }
  world.begin_all(world.op(0));
  world.hub.kill(1);
  EXPECT_EQ(world.ending(0).code, Code::peer_lost);
  EXPECT_TRUE(eventually([&] { return calls.load() >= 1; }));
}

TEST(Control, AnnouncingIsIdempotentAndComesFromAnyThread) {
  World world(2, quick());
  const Error error = make_error(Code::data_tag, "first");
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) callers.emplace_back([&] { world.controls[0]->announce_death(error, soon()); });
  for (std::thread& caller : callers) caller.join();
  world.controls[0]->announce_death(make_error(Code::timeout, "later"), soon());
  EXPECT_EQ(world.verdicts[0].error()->what, "first");
  EXPECT_THAT(world.ending(1).what, HasSubstr("first"));
}

TEST(Control, AKilledPeerIsLostOnEveryRank) {
  World world(3, quick());
  world.begin_all(world.op(0));
  const auto before = Clock::now();
  world.hub.kill(1);
  for (const Rank rank : std::initializer_list<Rank>{0, 2}) {
    const Error error = world.ending(rank);
    if (error.code == Code::aborted) {
      EXPECT_THAT(error.what, HasSubstr("SR-E603 PEER_LOST about rank 1"));
    } else {
      EXPECT_EQ(error.code, Code::peer_lost);
      EXPECT_EQ(error.peer, 1);
      EXPECT_EQ(error.stage, "control.stream");
    }
  }
  // The dead are not waited for.
  EXPECT_LT(Clock::now() - before, patient(500ms));
}

TEST(Control, SilenceIsAnErrorOnlyWhereAsked) {
  ControlConfig config = quick();
  World world(2, config);
  world.hub.freeze(1, true);
  std::this_thread::sleep_for(200ms);
  EXPECT_FALSE(world.verdicts[0].dead());
  world.hub.freeze(1, false);
  leave_all(world);

  config.silence_max = patient(200ms);
  World strict(2, config);
  std::this_thread::sleep_for(patient(300ms));
  EXPECT_FALSE(strict.verdicts[0].dead());
  strict.hub.freeze(1, true);
  const Error error = strict.ending(0);
  EXPECT_EQ(error.code, Code::peer_lost);
  EXPECT_EQ(error.peer, 1);
  EXPECT_THAT(error.what, StartsWith("rank 1 has been silent for "));
  strict.hub.freeze(1, false);
  EXPECT_EQ(strict.ending(1).code, Code::aborted);
}

TEST(Control, AFrozenPeerDoesNotKeepADeathWaitingPastItsTime) {
  World world(3, quick());
  world.begin(0, world.op(0));
  world.begin(1, world.op(0));
  world.hub.freeze(2, true);
  std::this_thread::sleep_for(patient(600ms));
  const auto before = Clock::now();
  world.fail_op(0, make_error(Code::timeout, "operation 0 took too long", "op.wait"));
  EXPECT_LT(Clock::now() - before, patient(1000ms));
  EXPECT_THAT(world.verdicts[0].error()->diagnosis, StartsWith("rank 2 has not answered for "));
  EXPECT_EQ(world.ending(1).code, Code::aborted);
  world.hub.freeze(2, false);
  EXPECT_THAT(world.ending(2).what, HasSubstr("rank 0 reported SR-E601 TIMEOUT"));
}

TEST(Control, ACallersShorterDeadlineHolds) {
  World world(2, quick());
  world.hub.freeze(1, true);
  const auto before = Clock::now();
  const Error error = make_error(Code::data_tag, "bad");
  world.verdicts[0].set(error);
  world.controls[0]->announce_death(error, Deadline::in(50ms));
  EXPECT_LT(Clock::now() - before, patient(200ms));
  world.hub.freeze(1, false);
}

}  // namespace
}  // namespace sealring
