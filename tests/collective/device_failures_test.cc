// Claim: whatever goes wrong on a device ends the session on all ranks in time, by its code, with every
// pending
//   output poisoned; nothing hangs, and everything later is refused.
// How: the double of a device flips bits, stalls, loses its host or is aborted, while ops are under way.
#include <gmock/gmock.h>

#include "tests/collective/device_job.h"

namespace sealring::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

JobOptions options(std::uint16_t world, std::chrono::milliseconds timeout = std::chrono::minutes(1)) {
  JobOptions out;
  out.world = world;
  out.config.timeout = timeout;
  return out;
}

/// Everything later fails by its ticket, poisoned, and seals nothing.
void expect_refused(DeviceJob& job, Rank rank) {
  Communicator& comm = job.comm(rank);
  const std::uint64_t sealed = comm.counters().sealed_segments;
  Floats data(5000);
  const auto result = run(comm.all_reduce(data.tensor(), data.tensor(), {}));
  ASSERT_FALSE(result);
  job.device(rank).drain();
  EXPECT_TRUE(data.poisoned());
  EXPECT_FALSE(run(comm.barrier()));
  EXPECT_FALSE(run(job.job.comm(rank).barrier()));
  EXPECT_EQ(comm.counters().sealed_segments, sealed);
}

TEST(DeviceFailures, AFlippedBitEndsTheSessionOnAllRanks) {
  for (const int segment : {0, 7}) {
    DeviceJob job(options(3));
    job.add_group();
    job.faults(1).flip_in = segment;
    const auto begin = Clock::now();
    std::atomic<int> tags{0};
    job.job.each([&](Rank rank) {
      Floats data(40'000);
      const auto result = run(job.comm(rank).all_reduce(data.tensor(), data.tensor(), {}));
      ASSERT_FALSE(result) << "each rank needs records of each other";
      EXPECT_THAT((std::vector{Code::data_tag, Code::aborted}), ::testing::Contains(result.error().code))
          << result.error().message();
      if (result.error().code == Code::data_tag) ++tags;
      EXPECT_TRUE(data.poisoned());
      EXPECT_TRUE(job.job.session(rank).error());
    });
    EXPECT_LT(Clock::now() - begin, seconds(3 * slow_factor()));
    EXPECT_GE(tags, 1);
    job.job.each([&](Rank rank) { expect_refused(job, rank); });
  }
}

TEST(DeviceFailures, ADifferentCallIsNamed) {
  DeviceJob job(options(2));
  job.add_group();
  job.faults(0).delay_us = job.faults(1).delay_us = 50'000;  // both have called when the first fails
  job.job.each([&](Rank rank) {
    Floats data(rank == 0 ? 5000 : 5001);
    const auto result = run(job.comm(rank).all_reduce(data.tensor(), data.tensor(), {}));
    ASSERT_FALSE(result);
    EXPECT_TRUE(data.poisoned());
    if (result.error().code != Code::aborted) {
      EXPECT_THAT(result.error().message(), HasSubstr("differ in elements"));
    }
  });
}

TEST(DeviceFailures, APeerThatNeverComesIsATimeoutThatNamesTheOp) {
  DeviceJob job(options(2, std::chrono::milliseconds(600 * slow_factor())));
  job.add_group();
  const auto begin = Clock::now();
  Floats data(1000), behind(1000);
  const auto ticket = job.comm(0).all_reduce(data.tensor(), data.tensor(), {});
  const auto later = job.comm(0).all_reduce(behind.tensor(), behind.tensor(), {});
  ASSERT_TRUE(ticket && later);
  const auto early = ticket->wait(Deadline::in(std::chrono::milliseconds(10)));
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().stage, "ticket.wait");
  EXPECT_FALSE(ticket->done());
  const auto result = ticket->wait(Deadline::in(seconds(30)));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::timeout) << result.error().message();
  EXPECT_THAT(result.error().what, HasSubstr("operation 0 (all_reduce fp32 x 1000 sum one-shot) of group "));
  EXPECT_THAT(result.error().diagnosis, HasSubstr("rank 1 has not issued operation 0"));
  EXPECT_FALSE(later->wait(Deadline::in(seconds(30))));
  EXPECT_LT(Clock::now() - begin, seconds(5 * slow_factor()));
  EXPECT_TRUE(data.poisoned() && behind.poisoned());
  job.job.each([&](Rank rank) { expect_refused(job, rank); });
}

TEST(DeviceFailures, ADeviceThatDoesNotMoveIsATimeoutOfTheCommunicatorsOwn) {
  DeviceJob job(options(2));
  job.add_group();
  job.faults(0).stalled = job.faults(1).stalled = true;
  const auto begin = Clock::now();
  std::vector<Floats> data(2, Floats(1000));
  job.job.each([&](Rank rank) {
    job.comm(rank).set_timeout(std::chrono::milliseconds(300 * slow_factor()));
    const auto result = run(job.comm(rank).all_reduce(data[rank].tensor(), data[rank].tensor(), {}));
    ASSERT_FALSE(result);
    EXPECT_THAT(result.error().message(), HasSubstr("SR-E601"));
  });
  EXPECT_LT(Clock::now() - begin, seconds(7 * slow_factor()));
  job.faults(0).stalled = job.faults(1).stalled = false;
  job.job.each([&](Rank rank) {
    job.device(rank).drain();
    EXPECT_TRUE(data[rank].poisoned());
  });
}

TEST(DeviceFailures, GroupsIssuedInDifferentOrdersAreALaunchOrder) {
  DeviceJob job(options(2, std::chrono::milliseconds(1000 * slow_factor())));
  job.add_group();
  job.add_group();
  job.job.each([&](Rank rank) {
    Floats first(1000), second(1000);
    const auto one = job.comm(rank, rank).all_reduce(first.tensor(), first.tensor(), {});
    const auto other = job.comm(rank, 1u - rank).all_reduce(second.tensor(), second.tensor(), {});
    ASSERT_TRUE(one && other);
    // Who gives up first goes on to what its peer waits for, which may then come to its exact end.
    const auto result = one->wait(Deadline::in(seconds(30)));
    EXPECT_TRUE(result ? first.all(2.0f) : first.poisoned());
    const auto last = other->wait(Deadline::in(seconds(30)));
    EXPECT_TRUE(last ? second.all(2.0f) : second.poisoned());
    EXPECT_FALSE(run(job.job.comm(rank).barrier()));
  });
  const Error errors[] = {*job.job.session(0).error(), *job.job.session(1).error()};
  const Error& named = errors[errors[0].code == Code::launch_order ? 0 : 1];
  EXPECT_EQ(named.code, Code::launch_order) << named.message();
  EXPECT_THAT(named.what, HasSubstr("which waits behind it here"));
  EXPECT_NE(named.what.find("of group "), named.what.rfind("of group ")) << "both are named: " << named.what;
  for (const Error& each : errors) EXPECT_THAT(each.message(), HasSubstr("SR-E606"));
}

TEST(DeviceFailures, ADeathElsewhereFreesWhoWaitsOnTheDevice) {
  DeviceJob job(options(2));
  job.add_group();
  Floats data(1000);
  const auto ticket = job.comm(0).all_reduce(data.tensor(), data.tensor(), {});
  ASSERT_TRUE(ticket);
  const auto begin = Clock::now();
  Error death;
  death.code = Code::noise;
  death.stage = "test";
  death.what = "made up";
  job.job.session(1).abort(death);
  const auto result = ticket->wait(Deadline::in(seconds(30)));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::aborted);
  EXPECT_THAT(result.error().message(), HasSubstr("made up"));
  EXPECT_TRUE(data.poisoned());
  EXPECT_LT(Clock::now() - begin, seconds(3 * slow_factor()));
  job.job.each([&](Rank rank) { expect_refused(job, rank); });
}

TEST(DeviceFailures, AnAbortedDeviceIsAnAbortedSession) {
  DeviceJob job(options(2));
  job.add_group();
  Floats data(1000);
  const auto ticket = job.comm(0).recv(data.tensor(), 1, 0);
  ASSERT_TRUE(ticket);
  job.device(0).group(0)->abort();
  const auto result = ticket->wait(Deadline::in(seconds(30)));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::aborted);
  EXPECT_THAT(result.error().what, HasSubstr("send fp32 x 1000"));
  EXPECT_TRUE(data.poisoned());
}

TEST(DeviceFailures, WhatCannotBeEnqueuedEndsTheSession) {
  DeviceJob job(options(2));
  job.add_group();
  job.faults(0).refuse_exchange = true;
  job.job.each([&](Rank rank) {
    Floats data(1000);
    const auto result = run(job.comm(rank).all_reduce(data.tensor(), data.tensor(), {}));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, rank == 0 ? Code::cuda : Code::aborted) << result.error().message();
    EXPECT_TRUE(data.poisoned());
  });
}

TEST(DeviceFailures, ACommunicatorDestroyedUnderWayEndsTheSession) {
  DeviceJob job(options(2));
  ASSERT_TRUE(job.job.connected()) << job.job.first_error();
  std::vector<std::shared_ptr<Communicator>> comms(2);
  job.job.each([&](Rank rank) {
    auto made = job.split(rank, job.everybody(), job.place(rank), "short");
    ASSERT_TRUE(made) << made.error().message();
    comms[rank] = *made;
  });
  Floats data(1000);
  const auto ticket = comms[0]->all_reduce(data.tensor(), data.tensor(), {});
  ASSERT_TRUE(ticket);
  comms[0].reset();
  ASSERT_TRUE(ticket->done());
  EXPECT_FALSE(ticket->wait(Deadline::in(seconds(1))));
  EXPECT_TRUE(data.poisoned());
  EXPECT_TRUE(job.job.session(0).error());
}

}  // namespace
}  // namespace sealring::testing
