// Claim: only a rank that holds CONN[i->j] becomes a stream; strangers neither get in nor keep ranks out.
// How: the proof's layout byte by byte; raw sockets play every stranger against a real listener.
#include "sealring/transport/connection_proof.h"

#include <sys/resource.h>

#include <filesystem>

#include "sealring/transport/socket.h"
#include "tests/transport/ranks.h"

namespace sealring::testing {
namespace {

const ProofFields kFields{3, 1, group_named(9), Kind::pair, 2};

TEST(ConnectionProof, LayoutOfTheAnswer) {
  ProofChallenge challenge;
  challenge.fill(std::byte{0x11});
  const SecretBytes key = test_mac(3, 1);
  const ProofAnswer answer = make_answer(kFields, challenge, key.view());
  // [protocol A.4] {u32 i, u32 j, group_id[0..8), u8 kind, u16 lane, 45 zero bytes}
  const std::string fields =
      "00000003"
      "00000001"
      "0909090909090909"
      "01"
      "0002" +
      std::string(90, '0');
  EXPECT_EQ(to_hex(ByteView(answer).first(64)), fields);
  const Bytes message =
      *from_hex(to_hex(as_bytes(std::string_view("SEALRING1/conn\0", 15))) + to_hex(challenge) + fields);
  EXPECT_EQ(to_hex(ByteView(answer).subspan(64)), to_hex(hmac_sha256(key.view(), {ByteView(message)})));
  const Bytes ok =
      *from_hex(to_hex(as_bytes(std::string_view("SEALRING1/conn-ok\0", 18))) + to_hex(challenge) + fields);
  const SecretBytes back = test_mac(1, 3);
  EXPECT_EQ(to_hex(make_reply(answer, challenge, back.view())),
            to_hex(hmac_sha256(back.view(), {ByteView(ok)})));
  EXPECT_EQ(parse_answer(answer), kFields);
  EXPECT_TRUE(check_answer(answer, challenge, key.view()));
}

TEST(ConnectionProof, EveryBitOfTheAnswerCounts) {
  ProofChallenge challenge{};
  const SecretBytes key = test_mac(3, 1);
  const ProofAnswer good = make_answer(kFields, challenge, key.view());
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    ProofAnswer bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(check_answer(bad, challenge, key.view())) << bit;
  }
  challenge[31] = std::byte{1};
  EXPECT_FALSE(check_answer(good, challenge, key.view())) << "an answer to another challenge";
  EXPECT_FALSE(check_answer(good, ProofChallenge{}, test_mac(1, 3).view())) << "the other direction's key";
}

TEST(ConnectionProof, FieldsOutOfRangeAreMalformed) {
  const auto parse = [](const ProofFields& fields, std::size_t at = 0, std::byte value = {}) {
    ProofAnswer answer{};
    const auto encoded = fields.encode();
    std::copy(encoded.begin(), encoded.end(), answer.begin());
    if (at != 0) answer[at] = value;
    return parse_answer(answer);
  };
  EXPECT_TRUE(parse(kFields));
  EXPECT_TRUE(parse({3, 1, {}, Kind::p2p, 0}));
  EXPECT_TRUE(parse({3, 1, {}, Kind::ctl, 0}));
  EXPECT_FALSE(parse({3, 3, {}, Kind::pair, 0}));
  EXPECT_FALSE(parse({3, 1, {}, Kind::ctl, 1}));
  EXPECT_FALSE(parse({3, 1, {}, Kind::conn, 0}));
  EXPECT_FALSE(parse({3, 1, {}, static_cast<Kind>(0), 0}));
  EXPECT_FALSE(parse({1024, 1, {}, Kind::pair, 0}));
  EXPECT_FALSE(parse({3, 1024, {}, Kind::pair, 0}));
  EXPECT_FALSE(parse(kFields, 1, std::byte{1}));
  for (std::size_t at = 19; at < 64; ++at) EXPECT_FALSE(parse(kFields, at, std::byte{1})) << at;
}

/// Blocking reads and writes of a stranger, with a bound.
bool read_exactly(const Fd& fd, std::span<std::byte> into) {
  const Deadline deadline = seconds(10);
  while (!into.empty() && !deadline.expired()) {
    const auto got = recv_some(fd, into);
    if (got < 0) return false;
    into = into.subspan(static_cast<std::size_t>(got));
    if (got == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return into.empty();
}
bool closed_by_peer(const Fd& fd, int within_s) {
  std::array<std::byte, 256> sink;
  const Deadline deadline = seconds(within_s);
  while (!deadline.expired()) {
    if (recv_some(fd, sink) < 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

class Strangers : public ::testing::Test {
 protected:
  Strangers() : cluster_("tcp", 2) {}
  Fd knock() const {
    Fd fd = *begin_connect(*parse_address(cluster_.transports[0]->address()), "test");
    for (int i = 0; i < 1000 && connect_error(fd) != 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return fd;
  }
  /// Answers a challenge of rank 0 as rank 1 with `key`; gives the 96 bytes sent.
  ProofAnswer answer(const Fd& fd, const SecretBytes& key, Kind kind = Kind::pair) const {
    ProofChallenge challenge;
    EXPECT_TRUE(read_exactly(fd, challenge));
    const ProofAnswer out = make_answer({1, 0, group_, kind, 0}, challenge, key.view());
    EXPECT_EQ(send_some(fd, out), static_cast<std::ptrdiff_t>(out.size()));
    return out;
  }
  void expect_that_ranks_meet() {
    cluster_.open(group_);
    cluster_.each([&](Rank me) {
      const Rank peer = 1 - me;
      PatternSource source(me, 300000, 70000);
      PatternSink sink(peer, 300000, 50000);
      const Send send{{group_, peer, Kind::pair, 0}, &source};
      const Recv recv{{group_, peer, Kind::pair, 0}, &sink};
      Stream stream;
      ASSERT_TRUE(cluster_.at(me).exchange({&send, 1}, {&recv, 1}, stream, seconds(20)).has_value());
      EXPECT_EQ(sink.wrong(), 0u);
    });
  }
  const std::array<std::byte, 8> group_ = group_named(5);
  Cluster cluster_;
};

/// Cases that wait for the 5 s to pass.
class SlowStrangers : public Strangers {};

TEST_F(Strangers, ConnectAndClose) {
  for (int i = 0; i < 50; ++i) knock();
  expect_that_ranks_meet();
}

TEST_F(SlowStrangers, SevenBytesThenSilence) {
  const Fd fd = knock();
  send_some(fd, Bytes(7, std::byte{1}));
  expect_that_ranks_meet();
  EXPECT_TRUE(closed_by_peer(fd, 8)) << "nobody may sit there for more than 5 s";
}

TEST_F(Strangers, AMebibyteOfJunkIsCutOff) {
  const Fd fd = knock();
  Bytes junk(1 << 20, std::byte{0xA5});
  send_some(fd, junk);
  EXPECT_TRUE(closed_by_peer(fd, 3)) << "97 bytes are enough to know";
  expect_that_ranks_meet();
}

TEST_F(Strangers, AProofAndOneByteMore) {
  const Fd fd = knock();
  ProofChallenge challenge;
  ASSERT_TRUE(read_exactly(fd, challenge));
  Bytes out = to_bytes(make_answer({1, 0, group_, Kind::pair, 0}, challenge, test_mac(1, 0).view()));
  out.push_back(std::byte{0});
  send_some(fd, out);
  EXPECT_TRUE(closed_by_peer(fd, 3));
  expect_that_ranks_meet();
}

TEST_F(Strangers, TwoHundredHalfOpenSockets) {
  std::vector<Fd> fds;
  for (int i = 0; i < 200; ++i)
    fds.push_back(*begin_connect(*parse_address(cluster_.transports[0]->address()), "test"));
  const auto begin = Clock::now();
  expect_that_ranks_meet();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5 * slowness()));
}

TEST_F(Strangers, AWrongKeyAndAWrongDirectionAreClosedAndTheSlotStaysFree) {
  std::thread opening([&] {
    const auto opened = cluster_.at(0).open_group(cluster_.links(0, group_, {Kind::pair}, 1), seconds(20));
    EXPECT_TRUE(opened.has_value());
  });
  const Fd wrong = knock(), reflected = knock(), kind = knock();
  answer(wrong, test_mac(7, 7));
  answer(reflected, test_mac(0, 1));
  answer(kind, test_mac(1, 0), Kind::p2p);  // rightly proven, but no such slot
  EXPECT_TRUE(closed_by_peer(wrong, 4));
  EXPECT_TRUE(closed_by_peer(reflected, 4));
  EXPECT_TRUE(closed_by_peer(kind, 4));
  EXPECT_TRUE(cluster_.at(1).open_group(cluster_.links(1, group_, {Kind::pair}, 1), seconds(20)).has_value());
  opening.join();
}

TEST_F(Strangers, AReplayedRecordingIsRefused) {
  ProofAnswer recorded;
  {
    std::thread opening([&] {
      EXPECT_TRUE(
          cluster_.at(0).open_group(cluster_.links(0, group_, {Kind::pair}, 1), seconds(20)).has_value());
    });
    const Fd fd = knock();
    recorded = answer(fd, test_mac(1, 0));  // a good handshake, made by hand
    opening.join();
    Hash256 reply;
    EXPECT_TRUE(read_exactly(fd, reply));
    cluster_.at(0).close_group(group_);
  }
  std::thread opening([&] {
    EXPECT_TRUE(
        cluster_.at(0).open_group(cluster_.links(0, group_, {Kind::pair}, 1), seconds(20)).has_value());
  });
  const Fd fd = knock();
  ProofChallenge challenge;
  ASSERT_TRUE(read_exactly(fd, challenge));
  send_some(fd, recorded);
  EXPECT_TRUE(closed_by_peer(fd, 4));
  EXPECT_TRUE(cluster_.at(1).open_group(cluster_.links(1, group_, {Kind::pair}, 1), seconds(20)).has_value());
  opening.join();
}

TEST_F(Strangers, TheRightProofForAFilledSlotChangesNothing) {
  Cluster three("tcp", 3);
  std::vector<std::thread> threads;
  std::atomic<int> opened{0};
  const auto open = [&](Rank me) {
    threads.emplace_back([&, me] {
      const auto result = three.at(me).open_group(three.links(me, group_, {Kind::pair}, 1), seconds(30));
      EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message());
      ++opened;
    });
  };
  open(0);
  open(1);
  std::this_thread::sleep_for(
      std::chrono::milliseconds(100));  // rank 1 has its stream to 0; rank 2 is missing
  const auto second_proof = [&] {
    Fd fd = *begin_connect(*parse_address(three.transports[0]->address()), "test");
    ProofChallenge challenge;
    EXPECT_TRUE(read_exactly(fd, challenge));
    send_some(fd, make_answer({1, 0, group_, Kind::pair, 0}, challenge, test_mac(1, 0).view()));
    EXPECT_TRUE(closed_by_peer(fd, 4));
  };
  second_proof();
  EXPECT_EQ(opened.load(), 0);
  open(2);
  for (std::thread& thread : threads) thread.join();
  second_proof();
  three.each([&](Rank me) {
    if (me == 2) return;
    const Rank peer = 1 - me;
    PatternSource source(me, 1000, 1000);
    PatternSink sink(peer, 1000, 1000);
    const Send send{{group_, peer, Kind::pair, 0}, &source};
    const Recv recv{{group_, peer, Kind::pair, 0}, &sink};
    Stream stream;
    EXPECT_TRUE(three.at(me).exchange({&send, 1}, {&recv, 1}, stream, seconds(20)).has_value());
    EXPECT_EQ(sink.wrong(), 0u);
  });
}

TEST_F(Strangers, AReplyThatTheConnectorRejectsLeavesThePlaceTaken) {
  std::thread opening([&] {
    EXPECT_TRUE(
        cluster_.at(0).open_group(cluster_.links(0, group_, {Kind::pair}, 1), seconds(20)).has_value());
  });
  {
    const Fd fd = knock();
    answer(fd, test_mac(1, 0));
    Hash256 reply;
    EXPECT_TRUE(read_exactly(fd, reply));
  }  // rejected: it closes
  opening.join();
  const auto again = cluster_.at(1).open_group(cluster_.links(1, group_, {Kind::pair}, 1),
                                               Deadline::in(std::chrono::milliseconds(500)));
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, Code::timeout);
  EXPECT_EQ(again.error().peer, 0);
}

TEST_F(Strangers, AConnectorDoesNotTakeAForeignListenerForItsPeer) {
  const Fd listener = *listen_on(*parse_address("127.0.0.1:1").map([](SocketAddress a) {
    a.set_port(0);
    return a;
  }),
                                 "test");
  std::atomic<bool> stop{false};
  std::thread foreign([&] {
    std::vector<Fd> held;
    while (!stop) {
      Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK));
      if (fd.valid()) {
        send_some(fd, Bytes(64, std::byte{0x77}));  // a challenge and a made-up reply
        held.push_back(std::move(fd));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  GroupLinks links = cluster_.links(1, group_, {Kind::pair}, 1);
  links.peers[0].address = local_address(listener).text();
  const auto result = cluster_.at(1).open_group(links, Deadline::in(std::chrono::milliseconds(400)));
  stop = true;
  foreign.join();
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::timeout);
  EXPECT_EQ(result.error().peer, 0);
  EXPECT_NE(result.error().what.find("did not prove to be that rank"), std::string::npos)
      << result.error().what;
}

TEST_F(Strangers, AnAddressThatIsNoneNamesTheRank) {
  GroupLinks links = cluster_.links(1, group_, {Kind::pair}, 1);
  links.peers[0].address = "somewhere:http";
  const auto result = cluster_.at(1).open_group(links, seconds(5));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::peer_lost);
  EXPECT_EQ(result.error().peer, 0);
}

TEST_F(Strangers, AWrongGroupKeyTimesOutNamingThePeer) {
  std::thread acceptor([&] {
    const auto result = cluster_.at(0).open_group(cluster_.links(0, group_, {Kind::pair}, 1),
                                                  Deadline::in(std::chrono::milliseconds(400)));
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, Code::timeout);
    EXPECT_EQ(result.error().peer, 1);
  });
  GroupLinks links = cluster_.links(1, group_, {Kind::pair}, 1);
  links.peers[0].mac_to_peer = test_mac(5, 6);
  const auto result = cluster_.at(1).open_group(links, Deadline::in(std::chrono::milliseconds(400)));
  acceptor.join();
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::timeout);
  EXPECT_EQ(result.error().peer, 0);
}

TEST_F(SlowStrangers, AnEarlyRankWaitsForALateOne) {
  std::thread early([&] {
    const auto result = cluster_.at(1).open_group(cluster_.links(1, group_, {Kind::pair}, 2), seconds(30));
    EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(6200));  // longer than an unproven socket may wait
  EXPECT_TRUE(cluster_.at(0).open_group(cluster_.links(0, group_, {Kind::pair}, 2), seconds(30)).has_value());
  early.join();
}

std::size_t entries_of(const char* directory) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

TEST(TcpTransport, FiftyLivesLeaveNoDescriptorAndNoThread) {
  { Cluster warm("tcp", 2); }
  const std::size_t fds = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
  for (int i = 0; i < 50; ++i) {
    Cluster cluster("tcp", 2);
    cluster.open(group_named(1), {Kind::pair, Kind::ctl}, 2);
    const auto control = cluster.at(0).control_streams();
    if (i % 2 == 0) cluster.each([&](Rank me) { cluster.at(me).close_group(group_named(1)); });
  }
  EXPECT_EQ(entries_of("/proc/self/fd"), fds);
  // A joined thread's entry may linger for a moment.
  for (int i = 0; i < 200 && entries_of("/proc/self/task") != threads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(entries_of("/proc/self/task"), threads);
}

TEST(TcpTransport, PortsThatAreTakenAreNamed) {
  TcpConfig config;
  config.reach_host = "127.0.0.1";
  auto first = make_tcp_transport(config);
  ASSERT_TRUE(first.has_value());
  const std::uint16_t port = parse_address((*first)->address())->port();
  config.port_min = config.port_max = port;
  const auto taken = make_tcp_transport(config);
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().code, Code::port);
  EXPECT_NE(taken.error().what.find(std::to_string(port)), std::string::npos);
  config.port_max = static_cast<std::uint16_t>(std::min(65535, port + 50));
  const auto next = make_tcp_transport(config);
  ASSERT_TRUE(next.has_value());
  EXPECT_GT(parse_address((*next)->address())->port(), port);
  config.port_min = 30000;
  config.port_max = 29000;
  EXPECT_EQ(make_tcp_transport(config).error().code, Code::port);
}

TEST(TcpTransport, SpeaksIpv6) {
  TcpConfig config;
  config.reach_host = "::1";
  auto made = make_tcp_transport(config);
  if (!made && made.error().code == Code::interface_name) GTEST_SKIP() << "this machine has no IPv6";
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_TRUE((*made)->address().starts_with("[::1]:")) << (*made)->address();
  EXPECT_TRUE((*made)->describe().starts_with("tcp lo [::1]:"));
  Cluster cluster("tcp", 0);
  cluster.transports.push_back(std::move(*made));
  cluster.transports.push_back(*make_tcp_transport(config));
  cluster.open(group_named(2));
}

TEST(TcpTransport, TheLimitOfOpenFilesIsNamed) {
  Cluster cluster("tcp", 2);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit low = old;
  low.rlim_cur = entries_of("/proc/self/fd") + 6;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::array<Code, 2> codes{};
  std::string what;
  std::mutex mutex;
  cluster.each([&](Rank me) {
    const auto result = cluster.at(me).open_group(cluster.links(me, group_named(1), {Kind::pair}, 16),
                                                  Deadline::in(std::chrono::milliseconds(700)));
    const std::lock_guard lock(mutex);
    codes[me] = result ? Code::ok : result.error().code;
    if (!result && result.error().code == Code::fd_limit) what = result.error().what;
  });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_EQ(codes[1], Code::fd_limit) << what;
  EXPECT_NE(what.find(std::to_string(low.rlim_cur)), std::string::npos) << what;
}

}  // namespace
}  // namespace sealring::testing
