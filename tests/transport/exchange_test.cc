// Claim: exchange() moves every byte in order, both directions at once, over loopback and tcp alike.
// How: ranks as threads swap patterned bytes of random sizes; provoked errors are compared by code and rank.
#include "tests/transport/ranks.h"

namespace sealring::testing {
namespace {

class Exchange : public ::testing::TestWithParam<const char*> {
 protected:
  const std::array<std::byte, 8> group_ = group_named(7);
  StreamId to(Rank peer, Lane lane = 0, Kind kind = Kind::pair) const { return {group_, peer, kind, lane}; }
};

std::uint64_t seed_of(Rank from, Rank to, std::uint64_t lane, std::uint64_t move) {
  return ((from * 64u + to) * 64u + lane) * 4096u + move;
}

/// Everybody sends `moves` moves on every lane to everybody, all in one exchange. Sizes follow from the seed
/// alone.
void all_to_all(Cluster& cluster, std::array<std::byte, 8> group, Lane lanes, unsigned moves,
                std::uint64_t round, std::uint64_t bytes_max) {
  const auto bytes_of = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed + round * 1000003);
    return random() % 5 == 0 ? random() % 3 : random() % (bytes_max + 1);
  };
  cluster.each([&](Rank me) {
    std::vector<std::unique_ptr<PatternSource>> sources;
    std::vector<std::unique_ptr<PatternSink>> sinks;
    std::vector<Send> sends;
    std::vector<Recv> recvs;
    for (Rank peer = 0; peer < cluster.world(); ++peer) {
      for (Lane lane = 0; peer != me && lane < lanes; ++lane) {
        for (unsigned move = 0; move < moves; ++move) {
          const std::uint64_t out = seed_of(me, peer, lane, move), in = seed_of(peer, me, lane, move);
          sources.push_back(std::make_unique<PatternSource>(out, bytes_of(out), 1 + out * 7919 % 300000));
          sinks.push_back(std::make_unique<PatternSink>(in, bytes_of(in), 1 + in * 104729 % 200000));
          sends.push_back({{group, peer, Kind::pair, lane}, sources.back().get()});
          recvs.push_back({{group, peer, Kind::pair, lane}, sinks.back().get()});
        }
      }
    }
    Stream stream;
    const auto result = cluster.at(me).exchange(sends, recvs, stream, seconds(60));
    ASSERT_TRUE(result.has_value()) << result.error().message();
    for (const auto& sink : sinks) {
      EXPECT_TRUE(sink->done());
      EXPECT_EQ(sink->wrong(), 0u);
    }
  });
}

TEST_P(Exchange, SwapsOneLargeMoveBothWays) {
  Cluster cluster(GetParam(), 2);
  cluster.open(group_);
  cluster.each([&](Rank me) {
    const Rank peer = 1 - me;
    PatternSource source(me, 24 << 20, 8 << 20);  // far beyond what any socket buffer or ring holds
    PatternSink sink(peer, 24 << 20, 1 << 20);
    const Send send{to(peer), &source};
    const Recv recv{to(peer), &sink};
    Stream stream;
    const auto result = cluster.at(me).exchange({&send, 1}, {&recv, 1}, stream, seconds(60));
    ASSERT_TRUE(result.has_value()) << result.error().message();
    EXPECT_TRUE(sink.done());
    EXPECT_EQ(sink.wrong(), 0u);
  });
}

TEST_P(Exchange, AllToAllOfRandomSizesOnManyLanes) {
  for (const Rank world : {Rank{2}, Rank{3}, Rank{4}}) {
    Cluster cluster(GetParam(), world);
    cluster.open(group_, {Kind::pair, Kind::p2p, Kind::ctl}, 3);
    for (std::uint64_t round = 0; round < 4; ++round) all_to_all(cluster, group_, 3, 5, round, 150000);
  }
}

TEST_P(Exchange, ManySmallExchangesKeepTheStreamInStep) {
  Cluster cluster(GetParam(), 3);
  cluster.open(group_);
  cluster.each([&](Rank me) {
    const Rank next = static_cast<Rank>((me + 1) % 3), previous = static_cast<Rank>((me + 2) % 3);
    for (std::uint64_t i = 0; i < 500; ++i) {
      PatternSource source(i * 8 + me, i % 97, 13);
      PatternSink sink(i * 8 + previous, i % 97, 11);
      const Send send{to(next), &source};
      const Recv recv{to(previous), &sink};
      Stream stream;
      const auto result = cluster.at(me).exchange({&send, 1}, {&recv, 1}, stream, seconds(60));
      ASSERT_TRUE(result.has_value()) << result.error().message();
      ASSERT_TRUE(sink.done());
      ASSERT_EQ(sink.wrong(), 0u);
    }
  });
}

TEST_P(Exchange, AHoldingSinkLeavesItsStreamUnread) {
  Cluster cluster(GetParam(), 3);
  cluster.open(group_);
  std::atomic<bool> first_may_send{false};
  cluster.each([&](Rank me) {
    Stream stream;
    if (me == 0) {  // takes rank 1's bytes only when rank 2's are complete
      PatternSink second(2, 3 << 20, 100000);
      PatternSink first(1, 4 << 20, 100000, &second);
      const Recv recvs[] = {{to(1), &first}, {to(2), &second}};
      const auto result = cluster.at(0).exchange({}, recvs, stream, seconds(60));
      ASSERT_TRUE(result.has_value()) << result.error().message();
      EXPECT_GT(first.holds(), 0u);
      EXPECT_TRUE(first.done() && second.done());
      EXPECT_EQ(first.wrong() + second.wrong(), 0u);
      return;
    }
    if (me == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    PatternSource source(me, me == 1 ? 4 << 20 : 3 << 20, 1 << 20);
    const Send send{to(0), &source};
    const auto result = cluster.at(me).exchange({&send, 1}, {}, stream, seconds(60));
    EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message());
  });
}

TEST_P(Exchange, SinksThatAllHoldAreAnErrorNotAHang) {
  Cluster cluster(GetParam(), 2);
  cluster.open(group_);
  PatternSink never(0, 10, 10);
  PatternSink holding(1, 10, 10, &never);
  const Recv recv{to(1), &holding};
  Stream stream;
  const auto result = cluster.at(0).exchange({}, {&recv, 1}, stream, seconds(60));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::invalid_argument);
}

TEST_P(Exchange, SourceAndSinkErrorsEndIt) {
  struct Failing final : WireSource, WireSink {
    Result<ByteView> next() override { return fail(Code::key_limit, "test", "no more"); }
    Result<std::optional<std::span<std::byte>>> buffer() override { return std::span<std::byte>(held); }
    Result<void> filled() override { return fail(Code::data_tag, "test", "bad"); }
    std::array<std::byte, 4> held{};
  } failing;
  Cluster cluster(GetParam(), 2);
  cluster.open(group_);
  Stream stream;
  const Send bad_send{to(1), &failing};
  const auto sent = cluster.at(0).exchange({&bad_send, 1}, {}, stream, seconds(60));
  ASSERT_FALSE(sent.has_value());
  EXPECT_EQ(sent.error().code, Code::key_limit);
  PatternSource source(1, 4, 4);
  const Send good_send{to(0), &source};
  ASSERT_TRUE(cluster.at(1).exchange({&good_send, 1}, {}, stream, seconds(60)).has_value());
  const Recv bad_recv{to(1), &failing};
  const auto received = cluster.at(0).exchange({}, {&bad_recv, 1}, stream, seconds(60));
  ASSERT_FALSE(received.has_value());
  EXPECT_EQ(received.error().code, Code::data_tag);
}

TEST_P(Exchange, AnUnopenedStreamIsRefused) {
  Cluster cluster(GetParam(), 2);
  cluster.open(group_);
  PatternSource source(1, 4, 4);
  const Send send{to(1, 5), &source};
  Stream stream;
  const auto result = cluster.at(0).exchange({&send, 1}, {}, stream, seconds(60));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::invalid_argument);
}

TEST_P(Exchange, TimeoutNamesTheSilentRanks) {
  Cluster cluster(GetParam(), 4);
  cluster.open(group_);
  PatternSource source(1, 100, 100);
  const Send send{to(0), &source};
  Stream stream;
  ASSERT_TRUE(cluster.at(1).exchange({&send, 1}, {}, stream, seconds(60)).has_value());
  PatternSink one(1, 100, 100), two(2, 100, 100), three(3, 100, 100);
  const Recv recvs[] = {{to(1), &one}, {to(2), &two}, {to(3), &three}};
  const auto start = Clock::now();
  const auto result = cluster.at(0).exchange({}, recvs, stream, Deadline::in(std::chrono::milliseconds(200)));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::timeout);
  EXPECT_NE(result.error().what.find("ranks 2, 3"), std::string::npos) << result.error().what;
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(200));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2 * slowness()));
  EXPECT_TRUE(one.done());
  PatternSink lone(2, 100, 100);
  const Recv recv{to(2), &lone};
  const auto single =
      cluster.at(0).exchange({}, {&recv, 1}, stream, Deadline::in(std::chrono::milliseconds(50)));
  ASSERT_FALSE(single.has_value());
  EXPECT_EQ(single.error().code, Code::timeout);
  EXPECT_EQ(single.error().peer, 2);
}

TEST_P(Exchange, TimeoutWhenAPeerTakesNothing) {
  Cluster cluster(GetParam(), 2);
  cluster.open(group_);
  PatternSource source(1, 64 << 20, 1 << 20);
  const Send send{to(1), &source};
  Stream stream;
  const auto result =
      cluster.at(0).exchange({&send, 1}, {}, stream, Deadline::in(std::chrono::milliseconds(300)));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::timeout);
  EXPECT_EQ(result.error().peer, 1);
}

TEST_P(Exchange, AbortWakesEveryExchangeAndFailsLaterOnes) {
  Cluster cluster(GetParam(), 3);
  cluster.open(group_, {Kind::pair, Kind::p2p, Kind::ctl});
  PatternSink one(1, 10, 10), two(2, 10, 10);
  std::vector<std::thread> threads;
  for (Rank peer : {Rank{1}, Rank{2}}) {
    threads.emplace_back([&, peer] {
      const Recv recv{to(peer), peer == 1 ? &one : &two};
      Stream stream;
      const auto result = cluster.at(0).exchange({}, {&recv, 1}, stream, seconds(60));
      ASSERT_FALSE(result.has_value());
      EXPECT_EQ(result.error().code, Code::aborted);
    });
  }
  threads.emplace_back([&] {
    const StreamId ids[] = {to(1, 0, Kind::p2p), to(2, 0, Kind::p2p)};
    const auto result = cluster.at(0).wait_readable(ids, 1, seconds(60));
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, Code::aborted);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto start = Clock::now();
  cluster.at(0).abort();
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(1 * slowness()));
  Stream stream;
  PatternSource source(0, 1, 1);
  const Send send{to(1), &source};
  const auto later = cluster.at(0).exchange({&send, 1}, {}, stream, seconds(60));
  ASSERT_FALSE(later.has_value());
  EXPECT_EQ(later.error().code, Code::aborted);
  // The control streams go on.
  auto here = cluster.at(0).control_streams(), there = cluster.at(1).control_streams();
  ASSERT_TRUE(here.has_value() && there.has_value());
  ASSERT_TRUE((*here)->send(1, as_bytes("still here")).has_value());
  const auto events = (*there)->wait(seconds(20));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].bytes, to_bytes(as_bytes("still here")));
}

TEST_P(Exchange, AClosedPeerIsLost) {
  Cluster cluster(GetParam(), 3);
  cluster.open(group_);
  PatternSource source(2, 70, 70);
  const Send send{to(0), &source};
  Stream stream;
  ASSERT_TRUE(cluster.at(2).exchange({&send, 1}, {}, stream, seconds(60)).has_value());
  cluster.at(2).close_group(group_);
  PatternSink sink(2, 100, 100);  // 70 bytes come, then the end
  const Recv recv{to(2), &sink};
  const auto received = cluster.at(0).exchange({}, {&recv, 1}, stream, seconds(60));
  ASSERT_FALSE(received.has_value());
  EXPECT_EQ(received.error().code, Code::peer_lost);
  EXPECT_EQ(received.error().peer, 2);
  PatternSource large(1, 64 << 20, 1 << 20);
  const Send lost{to(2), &large};
  const auto sent = cluster.at(1).exchange({&lost, 1}, {}, stream, seconds(60));
  ASSERT_FALSE(sent.has_value());
  EXPECT_EQ(sent.error().code, Code::peer_lost);
  EXPECT_EQ(sent.error().peer, 2);
}

TEST_P(Exchange, BytesSentBeforeACloseAreStillReceived) {
  Cluster cluster(GetParam(), 2);
  cluster.open(group_);
  PatternSource source(1, 5000, 1000);
  const Send send{to(0), &source};
  Stream stream;
  ASSERT_TRUE(cluster.at(1).exchange({&send, 1}, {}, stream, seconds(60)).has_value());
  cluster.at(1).close_group(group_);
  PatternSink sink(1, 5000, 700);
  const Recv recv{to(1), &sink};
  ASSERT_TRUE(cluster.at(0).exchange({}, {&recv, 1}, stream, seconds(60)).has_value());
  EXPECT_TRUE(sink.done());
}

TEST_P(Exchange, WaitReadableGivesTheReadyStreamAndEatsNothing) {
  constexpr std::size_t kLargest = (1 << 20) + kTagBytes;  // a largest segment
  Cluster cluster(GetParam(), 3);
  cluster.open(group_, {Kind::p2p});
  const StreamId ids[] = {to(1, 0, Kind::p2p), to(2, 0, Kind::p2p)};
  const auto early = cluster.at(0).wait_readable(ids, 10, Deadline::in(std::chrono::milliseconds(50)));
  ASSERT_FALSE(early.has_value());
  EXPECT_EQ(early.error().code, Code::timeout);
  std::thread sender([&] {
    PatternSource source(2, kLargest, 50000);
    const Send send{to(0, 0, Kind::p2p), &source};
    Stream stream;
    EXPECT_TRUE(cluster.at(2).exchange({&send, 1}, {}, stream, seconds(60)).has_value());
  });
  const auto ready = cluster.at(0).wait_readable(ids, kLargest, seconds(60));
  ASSERT_TRUE(ready.has_value()) << ready.error().message();
  EXPECT_EQ(*ready, 1u);
  PatternSink sink(2, kLargest, 70000);
  const Recv recv{ids[1], &sink};
  Stream stream;
  ASSERT_TRUE(cluster.at(0).exchange({}, {&recv, 1}, stream, seconds(60)).has_value());
  EXPECT_TRUE(sink.done());
  EXPECT_EQ(sink.wrong(), 0u);
  sender.join();
}

TEST_P(Exchange, WaitReadableTellsALostPeer) {
  Cluster cluster(GetParam(), 2);
  cluster.open(group_, {Kind::p2p});
  const StreamId id = to(1, 0, Kind::p2p);
  std::thread closer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    cluster.at(1).close_group(group_);
  });
  const auto result = cluster.at(0).wait_readable({&id, 1}, 1, seconds(60));
  closer.join();
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::peer_lost);
  EXPECT_EQ(result.error().peer, 1);
}

TEST_P(Exchange, DisjointExchangesRunAtTheSameTime) {
  Cluster cluster(GetParam(), 2);
  const auto other = group_named(9);
  cluster.open(group_);
  cluster.open(other);
  std::vector<std::thread> threads;
  for (const auto& group : {group_, other}) {
    threads.emplace_back([&, group] { all_to_all(cluster, group, 1, 6, 3, 900000); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Exchange, GroupsOpenAtTheSameTime) {
  Cluster cluster(GetParam(), 3);
  std::vector<std::thread> threads;
  for (std::uint8_t number = 1; number <= 6; ++number) {
    threads.emplace_back([&, number] { cluster.open(group_named(number), {Kind::pair, Kind::p2p}, 2); });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uint8_t number = 1; number <= 6; ++number)
    all_to_all(cluster, group_named(number), 2, 2, number, 20000);
}

TEST_P(Exchange, OpenTimesOutNamingWhoIsMissing) {
  Cluster cluster(GetParam(), 3);
  std::vector<std::thread> threads;
  for (const Rank me : {Rank{0}, Rank{1}}) {
    threads.emplace_back([&, me] {
      const auto result = cluster.at(me).open_group(cluster.links(me, group_, {Kind::pair}, 2),
                                                    Deadline::in(std::chrono::milliseconds(400)));
      ASSERT_FALSE(result.has_value());
      EXPECT_EQ(result.error().code, Code::timeout);
      EXPECT_EQ(result.error().peer, 2);
      EXPECT_NE(result.error().what.find("rank 2"), std::string::npos) << result.error().what;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Exchange, ReopensAGroupManyTimes) {
  Cluster cluster(GetParam(), 2);
  for (unsigned i = 0; i < 50; ++i) {
    cluster.open(group_, {Kind::pair, Kind::p2p, Kind::ctl}, 2);
    all_to_all(cluster, group_, 2, 1, i, 3000);
    cluster.each([&](Rank me) { cluster.at(me).close_group(group_); });
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Exchange, ::testing::Values("loopback", "tcp"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace sealring::testing
