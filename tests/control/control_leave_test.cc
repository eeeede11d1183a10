// Claim: an orderly end is no loss, tells who stayed, and does not hide a death.
// How: ranks as threads on in-memory streams that leave together, alone, while another dies, or not at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "sealring/control/control.h"
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

TEST(ControlLeave, APeerThatLeftIsNoLoss) {
  World world(3, quick());
  const auto left =
      std::async(std::launch::async, [&] { return world.controls[2]->leave(Deadline::in(100ms)); });
  left.wait();
  std::this_thread::sleep_for(patient(100ms));
  for (const Verdict& verdict : world.verdicts) EXPECT_FALSE(verdict.dead());
}

TEST(ControlLeave, WhatAPeerCalledBeforeItLeftIsNotMissed) {
  World world(2, quick());
  world.begin(1, world.op(0));
  world.controls[1]->forget_group(world.op(0).group_id);  // at once: no beat has told of the op
  auto left = std::async(std::launch::async, [&] { return world.controls[1]->leave(Deadline::in(100ms)); });
  left.wait();
  world.begin(0, world.op(0));
  std::this_thread::sleep_for(patient(100ms));
  EXPECT_FALSE(world.verdicts[0].dead());
}

TEST(ControlLeave, AnOperationThatAPeerLeftWithoutIsALoss) {
  for (const bool before : {true, false}) {
    World world(3, quick());
    world.begin_all(world.op(0));
    if (before) world.begin(0, world.op(1));
    auto left = std::async(std::launch::async, [&] { return world.controls[2]->leave(Deadline::in(100ms)); });
    left.wait();
    if (!before) world.begin(0, world.op(1));
    const Error error = world.ending(0);
    EXPECT_EQ(error.code, Code::peer_lost);
    EXPECT_EQ(error.peer, 2);
    EXPECT_THAT(error.what, HasSubstr("rank 2 has left the session without operation 1 of the world group"));
    EXPECT_EQ(world.ending(1).code, Code::aborted);
  }
}

TEST(ControlLeave, LeaveNamesThoseWhoStayed) {
  World world(3, quick());
  auto first =
      std::async(std::launch::async, [&] { return world.controls[1]->leave(Deadline::in(patient(300ms))); });
  const auto result = world.controls[0]->leave(Deadline::in(patient(200ms)));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::timeout);
  EXPECT_EQ(result.error().peer, 2);
  EXPECT_EQ(first.get().error().peer, 2);
  for (const Verdict& verdict : world.verdicts) EXPECT_FALSE(verdict.dead());
}

TEST(ControlLeave, ADeathWhileLeavingIsTold) {
  World world(3, quick());
  auto leaving =
      std::async(std::launch::async, [&] { return world.controls[0]->leave(Deadline::in(patient(2s))); });
  std::this_thread::sleep_for(50ms);
  world.fail_op(1, make_error(Code::data_tag, "bad"));
  const auto result = leaving.get();
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::aborted);
  EXPECT_EQ(world.ending(2).code, Code::aborted);
}

TEST(ControlLeave, DestructionWithoutLeaveIsALossForTheOthers) {
  World world(2, quick());
  world.controls[1].reset();
  const Error error = world.ending(0);
  EXPECT_EQ(error.code, Code::peer_lost);
  EXPECT_THAT(error.what, HasSubstr("without a farewell"));
}

TEST(ControlLeave, AVerdictThatOutlivesItsControlIsHarmless) {
  auto world = std::make_unique<World>(2, quick());
  leave_all(*world);
  world->controls.clear();
  world->verdicts[0].set(make_error(Code::aborted, "late"));
  EXPECT_TRUE(world->verdicts[0].dead());
}

TEST(ControlLeave, StartsDeadIfTheVerdictIs) {
  testing::MemoryHub hub(2);
  Verdict verdict;
  verdict.set(make_error(Code::aborted, "before the start"));
  auto keys = testing::keys_for(0, 2);
  ControlConfig config = quick();
  config.world = 2;
  auto control = Control::start(config, *keys, hub.streams(0), verdict).value();
  control->announce_death(*verdict.error(), Deadline::in(100ms));
  EXPECT_EQ(verdict.error()->what, "before the start");
}

}  // namespace
}  // namespace sealring
