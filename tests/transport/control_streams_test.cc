// Claim: control streams carry bytes in order, tell a close once, wake on demand and never block the sender.
// How: the same cases over loopback and tcp; a rank that is killed or stopped is played by the loopback hub.
#include "tests/transport/ranks.h"

namespace sealring::testing {
namespace {

class ControlPlane : public ::testing::TestWithParam<const char*> {
 protected:
  void start(Rank world) {
    cluster_ = std::make_unique<Cluster>(GetParam(), world);
    cluster_->open(group_named(1), {Kind::pair, Kind::ctl});
    for (Rank rank = 0; rank < world; ++rank) {
      auto made = cluster_->at(rank).control_streams();
      ASSERT_TRUE(made.has_value());
      streams_.push_back(std::move(*made));
    }
  }
  /// Everything that comes from `peer` until `bytes` are there or it has closed.
  Bytes take(Rank me, Rank peer, std::size_t bytes, bool* closed = nullptr) {
    Bytes all;
    const Deadline deadline = seconds(20);
    while (all.size() < bytes && !deadline.expired()) {
      for (const ControlEvent& event : streams_[me]->wait(deadline)) {
        EXPECT_EQ(event.peer, peer);
        all.insert(all.end(), event.bytes.begin(), event.bytes.end());
        if (closed != nullptr && event.closed) *closed = true;
        if (event.closed) return all;
      }
    }
    return all;
  }
  std::unique_ptr<Cluster> cluster_;
  std::vector<std::unique_ptr<ControlStreams>> streams_;
};

TEST_P(ControlPlane, BytesArriveInOrderFromTheirSender) {
  start(3);
  Bytes sent;
  for (unsigned i = 0; i < 200; ++i) {
    Bytes frame(1 + i % 50);
    for (std::size_t j = 0; j < frame.size(); ++j) frame[j] = pattern(5, sent.size() + j);
    ASSERT_TRUE(streams_[1]->send(0, frame).has_value());
    sent.insert(sent.end(), frame.begin(), frame.end());
  }
  EXPECT_EQ(take(0, 1, sent.size()), sent);
}

TEST_P(ControlPlane, AFrameFarLargerThanASocketTakesGoesThroughTheQueue) {
  start(2);
  Bytes sent(900000);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = pattern(6, i);
  ASSERT_TRUE(streams_[0]->send(1, sent).has_value());
  std::thread pump([&] { streams_[0]->wait(Deadline::in(std::chrono::milliseconds(500 * slowness()))); });
  EXPECT_EQ(take(1, 0, sent.size()), sent);
  pump.join();
}

TEST_P(ControlPlane, APeerThatTakesNothingIsLostAtOneMebibyte) {
  start(2);
  const Bytes frame(65536);
  Result<void> result;
  std::size_t frames = 0;
  const auto start_time = Clock::now();
  for (; result && frames < 2000; ++frames) result = streams_[0]->send(1, frame);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::peer_lost);
  EXPECT_EQ(result.error().peer, 1);
  EXPECT_GE(frames, 16u);
  EXPECT_LT(Clock::now() - start_time, std::chrono::seconds(5 * slowness())) << "sending must not wait";
}

TEST_P(ControlPlane, WakeAndDeadlineEndAWait) {
  start(2);
  const auto begin = Clock::now();
  EXPECT_TRUE(streams_[0]->wait(Deadline::in(std::chrono::milliseconds(50))).empty());
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(50));
  std::thread waker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    streams_[0]->wake();
  });
  EXPECT_TRUE(streams_[0]->wait(seconds(60)).empty());
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5 * slowness()));
  waker.join();
  streams_[0]->wake();  // before the wait: not lost
  EXPECT_TRUE(streams_[0]->wait(seconds(60)).empty());
}

TEST_P(ControlPlane, ACloseIsToldOnceAfterTheLastBytes) {
  start(3);
  ASSERT_TRUE(streams_[1]->send(0, as_bytes("bye")).has_value());
  streams_[1]->close();
  bool closed = false;
  Bytes bytes = take(0, 1, 1000, &closed);
  EXPECT_EQ(bytes, to_bytes(as_bytes("bye")));
  EXPECT_TRUE(closed);
  EXPECT_TRUE(streams_[0]->wait(Deadline::in(std::chrono::milliseconds(50))).empty());
  EXPECT_EQ(streams_[0]->send(1, as_bytes("x")).error().code, Code::peer_lost);
  EXPECT_EQ(streams_[1]->send(0, as_bytes("x")).error().code, Code::aborted);
  ASSERT_TRUE(streams_[2]->send(0, as_bytes("here")).has_value());
  EXPECT_EQ(take(0, 2, 4), to_bytes(as_bytes("here")));
}

TEST_P(ControlPlane, CloseEndsAWaitInAnotherThread) {
  start(2);
  std::thread waiting([&] { streams_[0]->wait(seconds(60)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const auto begin = Clock::now();
  streams_[0]->close();
  waiting.join();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5 * slowness()));
}

TEST_P(ControlPlane, ADestroyedTransportIsAClose) {
  start(2);
  streams_[1].reset();
  cluster_->transports[1].reset();
  bool closed = false;
  EXPECT_TRUE(take(0, 1, 1000, &closed).empty());
  EXPECT_TRUE(closed);
}

INSTANTIATE_TEST_SUITE_P(Transports, ControlPlane, ::testing::Values("loopback", "tcp"),
                         [](const auto& instance) { return std::string(instance.param); });

class LoopbackFaults : public ::testing::Test {
 protected:
  LoopbackFaults() : cluster_("loopback", 3) {
    cluster_.open(group_, {Kind::pair, Kind::ctl});
    for (Rank rank = 0; rank < 3; ++rank) control_.push_back(*cluster_.at(rank).control_streams());
  }
  Result<void> send(Rank from, Rank to, std::uint64_t bytes, Deadline deadline) {
    PatternSource source(from, bytes, 100000);
    const Send one{{group_, to, Kind::pair, 0}, &source};
    Stream stream;
    return cluster_.at(from).exchange({&one, 1}, {}, stream, deadline);
  }
  Result<void> receive(Rank from, Rank to, std::uint64_t bytes, Deadline deadline) {
    PatternSink sink(from, bytes, 100000);
    const Recv one{{group_, from, Kind::pair, 0}, &sink};
    Stream stream;
    auto result = cluster_.at(to).exchange({}, {&one, 1}, stream, deadline);
    EXPECT_EQ(sink.wrong(), 0u);
    return result;
  }
  const std::array<std::byte, 8> group_ = group_named(4);
  Cluster cluster_;
  std::vector<std::unique_ptr<ControlStreams>> control_;
};

TEST_F(LoopbackFaults, AKilledRankIsLostToItsPeersAfterItsLastBytes) {
  ASSERT_TRUE(send(1, 0, 500, seconds(20)).has_value());
  cluster_.hub->kill(1);
  EXPECT_TRUE(receive(1, 0, 500, seconds(20)).has_value());
  const auto lost = receive(1, 0, 1, seconds(20));
  ASSERT_FALSE(lost.has_value());
  EXPECT_EQ(lost.error().code, Code::peer_lost);
  EXPECT_EQ(lost.error().peer, 1);
  EXPECT_EQ(send(2, 1, 8 << 20, seconds(20)).error().code, Code::peer_lost);
  EXPECT_EQ(send(1, 0, 1, seconds(20)).error().code, Code::aborted);
  const auto events = control_[2]->wait(seconds(20));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].peer, 1);
  EXPECT_TRUE(events[0].closed);
  EXPECT_TRUE(send(2, 0, 10, seconds(20)).has_value()) << "the others go on";
}

TEST_F(LoopbackFaults, AKillWakesWhoeverWaits) {
  std::thread waiting([&] { EXPECT_EQ(receive(1, 0, 10, seconds(60)).error().code, Code::peer_lost); });
  std::thread killed([&] { EXPECT_EQ(receive(0, 1, 10, seconds(60)).error().code, Code::aborted); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  cluster_.hub->kill(1);
  waiting.join();
  killed.join();
}

TEST_F(LoopbackFaults, AFrozenRankIsSilentUntilItThaws) {
  cluster_.hub->freeze(1, true);
  std::thread sender([&] { EXPECT_TRUE(send(1, 0, 3 << 20, seconds(60)).has_value()); });
  ASSERT_TRUE(control_[1]->send(0, as_bytes("heartbeat")).has_value());
  EXPECT_TRUE(control_[0]->wait(Deadline::in(std::chrono::milliseconds(50))).empty());
  const auto silent = receive(1, 0, 3 << 20, Deadline::in(std::chrono::milliseconds(100)));
  ASSERT_FALSE(silent.has_value());
  EXPECT_EQ(silent.error().code, Code::timeout);
  EXPECT_EQ(silent.error().peer, 1);
  cluster_.hub->freeze(1, false);
  EXPECT_TRUE(receive(1, 0, 3 << 20, seconds(60)).has_value());
  sender.join();
  std::thread thawed([&] { control_[1]->wait(Deadline::in(std::chrono::milliseconds(200))); });
  const auto events = control_[0]->wait(seconds(20));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].bytes, to_bytes(as_bytes("heartbeat")));
  thawed.join();
}

}  // namespace
}  // namespace sealring::testing
