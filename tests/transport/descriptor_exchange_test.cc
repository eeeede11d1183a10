// Claim: a descriptor is given once for each right token and for nothing else, whatever strangers do; and a
// client takes exactly one, closes all others, and keeps its deadline.
// How: servers and clients as threads and as forked processes, hostile ones by hand over the same sockets;
// the numbers of open descriptors are counted.
#include "sealring/transport/descriptor_exchange.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "sealring/crypto/kdf.h"
#include "tests/transport/ranks.h"

namespace sealring::testing {
namespace {

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

/// Until the count is right again: a server's thread closes its own a moment later.
bool settles_at(std::size_t wanted) {
  const Deadline deadline = seconds(5);
  while (open_descriptors() != wanted) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

Fd temporary_file() {
  std::string name = (std::filesystem::temp_directory_path() / "sealring-XXXXXX").string();
  Fd out(::mkostemp(name.data(), O_CLOEXEC));
  ::unlink(name.c_str());
  return out;
}

ino_t inode_of(const Fd& fd) {
  struct stat seen {};
  EXPECT_EQ(::fstat(fd.get(), &seen), 0);
  return seen.st_ino;
}

SecretBytes token_numbered(int number) {
  SecretBytes out(kDescriptorTokenBytes);
  for (std::size_t i = 0; i < out.size(); ++i) out.data()[i] = static_cast<std::byte>(number + 7 * i);
  return out;
}

std::vector<SecretBytes> tokens_up_to(int count) {
  std::vector<SecretBytes> out;
  for (int i = 0; i < count; ++i) out.push_back(token_numbered(i));
  return out;
}

std::string fresh_name() {
  std::array<std::byte, kDescriptorNameChars / 2> bytes;
  random_bytes(bytes);
  return to_hex(bytes);
}

std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un out{};
  out.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), out.sun_path + 1);
  return {out, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

/// A connection by hand.
Fd stranger(const std::string& name) {
  Fd out(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto [address, bytes] = address_of(name);
  EXPECT_EQ(::connect(out.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
  return out;
}

/// True when the other end closes without a word.
bool closed_silently(const Fd& fd) {
  timeval patience{20 * slowness(), 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::byte byte{};
  const ssize_t got = ::recv(fd.get(), &byte, 1, 0);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

/// A server by hand: takes one connection, reads the token, answers with `bytes` and `count` descriptors.
class Impostor {
 public:
  Impostor(std::size_t bytes, std::size_t count)
      : name_(fresh_name()), listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto [address, length] = address_of(name_);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener_.get(), 4), 0);
    thread_ = std::thread([this, bytes, count] { answer(bytes, count); });
  }
  ~Impostor() { thread_.join(); }
  const std::string& name() const { return name_; }

 private:
  void answer(std::size_t bytes, std::size_t count) {
    const Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::array<std::byte, kDescriptorTokenBytes> token{};
    EXPECT_EQ(::recv(client.get(), token.data(), token.size(), MSG_WAITALL), 32);
    if (bytes == 0) return;
    std::vector<std::byte> text(bytes, std::byte{0x01});
    iovec part{text.data(), text.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    std::vector<char> control(CMSG_SPACE(count * sizeof(int)));
    const std::vector<int> numbers(count, listener_.get());
    if (count > 0) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* const head = CMSG_FIRSTHDR(&message);
      head->cmsg_level = SOL_SOCKET;
      head->cmsg_type = SCM_RIGHTS;
      head->cmsg_len = CMSG_LEN(count * sizeof(int));
      std::memcpy(CMSG_DATA(head), numbers.data(), count * sizeof(int));
    }
    EXPECT_EQ(::sendmsg(client.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }

  const std::string name_;
  const Fd listener_;
  std::thread thread_;
};

Code code_of(const Result<Fd>& fetched) { return fetched ? Code::ok : fetched.error().code; }

class DescriptorExchange : public ::testing::Test {
 protected:
  void serve(int tokens) {
    auto started = DescriptorServer::start(Fd(::dup(file_.get())), tokens_up_to(tokens));
    ASSERT_TRUE(started) << started.error().message();
    server_ = std::move(*started);
  }
  Result<Fd> fetch(int number, Deadline deadline = seconds(20)) {
    return fetch_descriptor(server_->name(), token_numbered(number).view(), deadline);
  }
  void expect_serves(int number) {
    const Result<Fd> got = fetch(number);
    ASSERT_TRUE(got) << got.error().message();
    EXPECT_EQ(inode_of(*got), inode_of(file_));
    EXPECT_NE(::fcntl(got->get(), F_GETFD) & FD_CLOEXEC, 0);
  }

  const Fd file_ = temporary_file();
  std::unique_ptr<DescriptorServer> server_;
};

TEST_F(DescriptorExchange, GivesEachThreadACopy) {
  serve(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&, i] { expect_serves(i); });
  for (auto& thread : threads) thread.join();
}

TEST_F(DescriptorExchange, GivesAnotherProcessACopy) {
  serve(1);
  const pid_t child = ::fork();
  if (child == 0) {
    std::array<std::byte, kDescriptorTokenBytes> token{};  // secrets are wiped in a child
    for (std::size_t i = 0; i < token.size(); ++i) token[i] = static_cast<std::byte>(7 * i);
    const Result<Fd> got = fetch_descriptor(server_->name(), token, seconds(20));
    ::_exit(got && ::write(got->get(), "child", 5) == 5 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  std::array<char, 8> text{};
  EXPECT_EQ(::pread(file_.get(), text.data(), text.size(), 0), 5);
  EXPECT_STREQ(text.data(), "child");
}

TEST_F(DescriptorExchange, NamesAreRandomAndOfHexDigits) {
  serve(1);
  const std::string first = server_->name();
  EXPECT_EQ(first.size(), kDescriptorNameChars);
  EXPECT_TRUE(from_hex(first));
  serve(1);
  EXPECT_NE(server_->name(), first);
}

TEST_F(DescriptorExchange, AWrongTokenGetsNothingAndCostsNothing) {
  serve(2);
  for (std::size_t bit = 0; bit < 8 * kDescriptorTokenBytes; bit += 17) {
    SecretBytes wrong = token_numbered(0);
    wrong.data()[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_EQ(code_of(fetch_descriptor(server_->name(), wrong.view(), seconds(20))), Code::peer_lost);
  }
  expect_serves(0);
  expect_serves(1);
}

TEST_F(DescriptorExchange, AReplayedTokenGetsNothing) {
  serve(2);
  expect_serves(0);
  EXPECT_EQ(code_of(fetch(0)), Code::peer_lost);
  expect_serves(1);
}

TEST_F(DescriptorExchange, OneTokenInManyHandsIsGoodOnce) {
  serve(2);
  std::atomic<int> served{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { served += fetch(0) ? 1 : 0; });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(served.load(), 1);
}

TEST_F(DescriptorExchange, NothingStaysOpenBehindTheLastToken) {
  const std::size_t before = open_descriptors();
  serve(1);
  const std::string name = server_->name();
  expect_serves(0);
  EXPECT_TRUE(settles_at(before + 1)) << open_descriptors() - before;  // the wake-up event
  EXPECT_EQ(code_of(fetch(0)), Code::peer_lost);
  server_.reset();
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(code_of(fetch_descriptor(name, token_numbered(0).view(), seconds(5))), Code::peer_lost);
}

TEST_F(DescriptorExchange, SilentClientsKeepNobodyOut) {
  serve(2);
  std::vector<Fd> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(stranger(server_->name()));
  expect_serves(0);
  const std::byte part{};
  EXPECT_EQ(::send(silent.front().get(), &part, 1, MSG_NOSIGNAL), 1);  // and then no more
  expect_serves(1);
}

TEST_F(DescriptorExchange, GarbageClosesTheConnectionInSilence) {
  serve(1);
  std::mt19937_64 random(5);
  for (const std::size_t bytes : {32, 33, 1000}) {
    Bytes garbage(bytes);
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
    const Fd fd = stranger(server_->name());
    EXPECT_EQ(::send(fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), garbage.size());
    EXPECT_TRUE(closed_silently(fd)) << bytes;
  }
  expect_serves(0);
}

TEST_F(DescriptorExchange, ATokenMayComeInPieces) {
  serve(1);
  const Fd fd = stranger(server_->name());
  const SecretBytes token = token_numbered(0);
  for (std::size_t i = 0; i < token.size(); ++i) {
    EXPECT_EQ(::send(fd.get(), token.data() + i, 1, MSG_NOSIGNAL), 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::byte greeting{};
  EXPECT_EQ(::recv(fd.get(), &greeting, 1, 0), 1);
}

TEST_F(DescriptorExchange, StopsAtOnceWithConnectionsOpen) {
  serve(1);
  const Fd fd = stranger(server_->name());
  const auto begin = Clock::now();
  server_.reset();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2 * slowness()));
}

TEST_F(DescriptorExchange, TheClientTakesExactlyOneDescriptor) {
  const std::size_t before = open_descriptors();
  for (const std::size_t count : {0, 2, 3, 40}) {
    const Impostor impostor(1, count);
    EXPECT_EQ(code_of(fetch_descriptor(impostor.name(), token_numbered(0).view(), seconds(20))),
              Code::malformed)
        << count;
  }
  for (const std::size_t bytes : {2, 3}) {
    const Impostor impostor(bytes, 1);
    EXPECT_EQ(code_of(fetch_descriptor(impostor.name(), token_numbered(0).view(), seconds(20))),
              Code::malformed);
  }
  EXPECT_EQ(open_descriptors(), before);
  const Impostor impostor(1, 1);
  EXPECT_TRUE(fetch_descriptor(impostor.name(), token_numbered(0).view(), seconds(20)));
}

TEST_F(DescriptorExchange, AServerThatClosesIsLost) {
  const Impostor impostor(0, 0);
  EXPECT_EQ(code_of(fetch_descriptor(impostor.name(), token_numbered(0).view(), seconds(20))),
            Code::peer_lost);
}

TEST_F(DescriptorExchange, NamesThatCannotBeAreRefused) {
  for (const std::string& name :
       {std::string(), std::string(31, 'a'), std::string(33, 'a'), std::string(32, 'g')})
    EXPECT_EQ(code_of(fetch_descriptor(name, token_numbered(0).view(), seconds(1))), Code::malformed) << name;
}

TEST_F(DescriptorExchange, TheDeadlineHoldsWithASilentServer) {
  const std::string name = fresh_name();
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto [address, bytes] = address_of(name);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  // The first is taken in and never answered; with the queue full, others are not even taken in.
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&] {
      const auto begin = Clock::now();
      const auto wait = std::chrono::milliseconds(200);
      const auto got = fetch_descriptor(name, token_numbered(0).view(), Deadline::in(wait));
      const auto took = Clock::now() - begin;
      EXPECT_EQ(code_of(got), Code::timeout);
      EXPECT_GE(took, wait);
      EXPECT_LT(took, wait + std::chrono::seconds(2 * slowness()));
    });
  }
  for (auto& client : clients) client.join();
}

TEST_F(DescriptorExchange, NoDescriptorIsLeakedByAnyOutcome) {
  serve(40);
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(fetch(i));
    EXPECT_FALSE(fetch(i));
    const Fd fd = stranger(server_->name());
  }
  EXPECT_TRUE(settles_at(before)) << open_descriptors() << " instead of " << before;
}

TEST_F(DescriptorExchange, ClientsWithoutRoomForADescriptorSaySo) {
  serve(2);
  std::vector<Fd> filler;
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  const Fd connected = stranger(server_->name());  // shows the highest number in use
  rlimit tight = old;
  tight.rlim_cur = static_cast<rlim_t>(connected.get() + 4);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) filler.emplace_back(fd);
  const Code without_socket = code_of(fetch(0));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_EQ(without_socket, Code::fd_limit);
  filler.clear();
  expect_serves(0);
}

TEST_F(DescriptorExchange, ManyIdleConnectionsDelayAClientBySeconds) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur < 1600) GTEST_SKIP() << "too few descriptors";
  serve(1);
  std::vector<Fd> idle;
  for (int i = 0; i < 1000; ++i) idle.push_back(stranger(server_->name()));
  const auto begin = Clock::now();
  expect_serves(0);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(8 * slowness()));
}

}  // namespace
}  // namespace sealring::testing
