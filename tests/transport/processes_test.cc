// Claim: over tcp, a process that is killed is lost at once, and one that is stopped is a timeout with its
// name. How: rank 1 is a forked process that opens the group and then waits; rank 0 sends it signals and
// watches.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/transport/ranks.h"

namespace sealring::testing {
namespace {

constexpr std::uint64_t kReadyBytes = 10;

class Processes : public ::testing::Test {
 protected:
  //  rank 0 (this process) <--- pair, ctl ---> rank 1 (child)
  void SetUp() override {
    int to_parent[2], to_child[2];
    ASSERT_EQ(::pipe(to_parent), 0);
    ASSERT_EQ(::pipe(to_child), 0);
    child_ = ::fork();
    if (child_ == 0) be_rank_one(to_parent[1], to_child[0]);
    mine_ = *make_tcp_transport({"", 0, 0, "127.0.0.1"});
    std::array<char, 64> theirs{}, own{};
    mine_->address().copy(own.data(), own.size() - 1);
    ASSERT_EQ(::write(to_child[1], own.data(), own.size()), static_cast<ssize_t>(own.size()));
    ASSERT_EQ(::read(to_parent[0], theirs.data(), theirs.size()), static_cast<ssize_t>(theirs.size()));
    for (const int fd : {to_parent[0], to_parent[1], to_child[0], to_child[1]}) ::close(fd);
    const auto opened = mine_->open_group(links(0, theirs.data()), seconds(20));
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    ASSERT_TRUE(receive(kReadyBytes, seconds(20)).has_value());
  }
  void TearDown() override {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

  GroupLinks links(Rank me, const char* address) const {
    GroupLinks out;
    out.me = me;
    out.group = group_;
    out.kinds = {Kind::pair, Kind::ctl};
    const Rank peer = 1 - me;
    out.peers.push_back({peer, test_mac(me, peer), test_mac(peer, me), address});
    return out;
  }
  /// Opens, says that it is ready, then waits for bytes that never come.
  [[noreturn]] void be_rank_one(int to_parent, int from_parent) {
    auto transport = make_tcp_transport({"", 0, 0, "127.0.0.1"});
    if (!transport) ::_exit(1);
    std::array<char, 64> theirs{}, own{};
    (*transport)->address().copy(own.data(), own.size() - 1);
    if (::write(to_parent, own.data(), own.size()) < 0 ||
        ::read(from_parent, theirs.data(), theirs.size()) < 0) {
      ::_exit(2);
    }
    if (!(*transport)->open_group(links(1, theirs.data()), seconds(20))) ::_exit(3);
    PatternSource source(1, kReadyBytes, kReadyBytes);
    PatternSink sink(0, 1, 1);
    const Send send{{group_, 0, Kind::pair, 0}, &source};
    const Recv recv{{group_, 0, Kind::pair, 0}, &sink};
    Stream stream;
    (void)(*transport)->exchange({&send, 1}, {&recv, 1}, stream, seconds(60));
    ::_exit(0);
  }
  Result<void> receive(std::uint64_t bytes, Deadline deadline) {
    PatternSink sink(1, bytes, bytes);
    const Recv recv{{group_, 1, Kind::pair, 0}, &sink};
    Stream stream;
    return mine_->exchange({}, {&recv, 1}, stream, deadline);
  }

  const std::array<std::byte, 8> group_ = group_named(6);
  pid_t child_ = -1;
  std::unique_ptr<Transport> mine_;
};

TEST_F(Processes, AKilledOneIsLostOnDataAndControlStreams) {
  const auto control = mine_->control_streams();
  ASSERT_TRUE(control.has_value());
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::kill(child_, SIGKILL);
  });
  const auto begin = Clock::now();
  const auto lost = receive(1, seconds(60));
  killer.join();
  ASSERT_FALSE(lost.has_value());
  EXPECT_EQ(lost.error().code, Code::peer_lost);
  EXPECT_EQ(lost.error().peer, 1);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2 * slowness()));
  const auto events = (*control)->wait(seconds(20));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].closed);
}

TEST_F(Processes, AStoppedOneIsATimeoutInBothDirections) {
  ASSERT_EQ(::kill(child_, SIGSTOP), 0);
  const auto silent = receive(1, Deadline::in(std::chrono::milliseconds(200)));
  ASSERT_FALSE(silent.has_value());
  EXPECT_EQ(silent.error().code, Code::timeout);
  EXPECT_EQ(silent.error().peer, 1);
  PatternSource source(0, 64 << 20, 1 << 20);
  const Send send{{group_, 1, Kind::pair, 0}, &source};
  Stream stream;
  const auto full = mine_->exchange({&send, 1}, {}, stream, Deadline::in(std::chrono::milliseconds(200)));
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, Code::timeout);
  EXPECT_EQ(full.error().peer, 1);
}

}  // namespace
}  // namespace sealring::testing
