#include "sealring/transport/descriptor_exchange.h"

#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <optional>

#include "sealring/crypto/kdf.h"

namespace sealring {
namespace {

constexpr const char* kStage = "transport.descriptor";
constexpr std::chrono::seconds kConnectionAgeMax{5};
constexpr std::chrono::milliseconds kYieldAge{100};
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::milliseconds kConnectPause{5};
constexpr std::byte kGreeting{0x01};  // the one byte that a descriptor travels with

std::string random_name() {
  std::array<std::byte, kDescriptorNameChars / 2> bytes;
  random_bytes(bytes);
  return to_hex(bytes);
}

/// An abstract address: a zero byte, then the name, and nothing behind it.
struct AbstractAddress {
  explicit AbstractAddress(std::string_view name) {
    raw.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), raw.sun_path + 1);
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&raw); }
  sockaddr_un raw{};
  socklen_t bytes = 0;
};

Result<Fd> make_unix_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return fail(socket_error(errno, Code::port, kStage, "making a Unix socket"));
  return fd;
}

bool send_descriptor(const Fd& to, const Fd& descriptor) {
  std::byte greeting = kGreeting;
  iovec part{&greeting, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = descriptor.get();
  std::memcpy(CMSG_DATA(head), &number, sizeof number);
  return ::sendmsg(to.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

Error timed_out(const char* doing) {
  Error out;
  out.code = Code::timeout;
  out.stage = kStage;
  out.what = std::string(doing) + " took longer than the deadline allows";
  return out;
}

Result<void> wait_for(const Fd& fd, short events, Deadline deadline, const char* doing) {
  for (;;) {
    pollfd polled{fd.get(), events, 0};
    const int ready = ::poll(&polled, 1, static_cast<int>(deadline.left().count()));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return fail(socket_error(errno, Code::peer_lost, kStage, doing));
    if (deadline.expired()) return fail(timed_out(doing));
  }
}

/// A Unix socket whose peer's queue is full says so at once and cannot be polled for a place.
Result<Fd> connect_to(std::string_view name, Deadline deadline) {
  const AbstractAddress address(name);
  SR_TRY(Fd fd, make_unix_socket());
  while (::connect(fd.get(), address.get(), address.bytes) != 0) {
    if (errno == ECONNREFUSED)
      return fail(Code::peer_lost, kStage, "nobody serves a descriptor under the peer's name",
                  "look at what the peer said when it ended; both must see one network namespace");
    if (errno != EAGAIN && errno != EINTR)
      return fail(socket_error(errno, Code::peer_lost, kStage, "connecting to the peer's Unix socket"));
    if (deadline.expired()) return fail(timed_out("connecting to the peer's Unix socket"));
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(kConnectPause, deadline.left()));
  }
  return fd;
}

/// Every descriptor that came with a message; each is owned from here on.
std::vector<Fd> descriptors_of(msghdr& message) {
  std::vector<Fd> out;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(head) + i * sizeof(int), sizeof number);
      out.emplace_back(number);
    }
  }
  return out;
}

Result<Fd> receive_descriptor(const Fd& from) {
  std::array<std::byte, 2> bytes{};
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(from.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && errno != ECONNRESET)
    return fail(socket_error(errno, Code::peer_lost, kStage, "receiving the peer's descriptor"));
  if (got <= 0)
    return fail(Code::peer_lost, kStage,
                "the peer closed the connection: it does not know the token, or no more");
  std::vector<Fd> found = descriptors_of(message);
  const bool truncated = (message.msg_flags & MSG_CTRUNC) != 0;
  if (truncated && found.empty())  // the kernel found no number for it in this process
    return fail(socket_error(EMFILE, Code::fd_limit, kStage, "receiving the peer's descriptor"));
  if (truncated || found.size() != 1 || got != 1 || bytes[0] != kGreeting)
    return fail(Code::malformed, kStage, "the peer did not send exactly one descriptor");
  return std::move(found.front());
}

}  // namespace

Result<std::unique_ptr<DescriptorServer>> DescriptorServer::start(Fd descriptor,
                                                                  std::vector<SecretBytes> tokens) {
  for (const SecretBytes& token : tokens) SR_CHECK(token.size() == kDescriptorTokenBytes);
  std::unique_ptr<DescriptorServer> server(new DescriptorServer(std::move(descriptor), std::move(tokens)));
  SR_TRY(server->wake_, make_event(kStage));
  SR_TRY(server->listener_, make_unix_socket());
  const AbstractAddress address(server->name_);
  if (::bind(server->listener_.get(), address.get(), address.bytes) != 0 ||
      ::listen(server->listener_.get(), SOMAXCONN) != 0)
    return fail(socket_error(errno, Code::port, kStage, "listening on an abstract Unix socket"));
  try {
    server->thread_ = std::thread([self = server.get()] { self->run(); });
  } catch (const std::exception& problem) {
    return fail(Code::out_of_memory, kStage, std::string("no thread could be started: ") + problem.what());
  }
  return server;
}

DescriptorServer::DescriptorServer(Fd descriptor, std::vector<SecretBytes> tokens)
    : name_(random_name()), descriptor_(std::move(descriptor)), tokens_(std::move(tokens)) {}

DescriptorServer::~DescriptorServer() {
  stop_.store(true);
  if (wake_.valid()) raise_event(wake_);
  if (thread_.joinable()) thread_.join();
}

void DescriptorServer::run() noexcept {
  while (!stop_.load() && !tokens_.empty()) {
    try {
      poll_once();
      drop_where_over();
    } catch (const std::exception&) {  // memory: everybody is sent away, the tokens stay
      connections_.clear();
    }
  }
  connections_.clear();
  tokens_.clear();
  listener_.reset();
  descriptor_.reset();
}

void DescriptorServer::poll_once() {
  std::vector<pollfd> polled;
  auto oldest = Clock::time_point::max();
  for (const auto& connection : connections_) {
    polled.push_back({connection->fd.get(), POLLIN, 0});
    oldest = std::min(oldest, connection->since);
  }
  const bool full = connections_.size() >= kConnectionsMax;
  const bool accepting = !full && accept_after_ <= Clock::now();
  auto next_event = Clock::time_point::max();
  if (!connections_.empty())
    next_event = oldest + (full ? std::chrono::milliseconds(kYieldAge) : kConnectionAgeMax);
  if (!full && !accepting) next_event = std::min(next_event, accept_after_);
  polled.push_back({accepting ? listener_.get() : -1, POLLIN, 0});
  polled.push_back({wake_.get(), POLLIN, 0});
  const auto wait = next_event == Clock::time_point::max() ? Deadline::never() : Deadline::at(next_event);
  if (::poll(polled.data(), polled.size(), static_cast<int>(wait.left().count())) <= 0) return;
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    if (polled[i].revents != 0) serve(*connections_[i]);
  }
  if (accepting && polled[polled.size() - 2].revents != 0) accept_some();
}

void DescriptorServer::accept_some() {
  while (connections_.size() < kConnectionsMax) {
    Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) accept_after_ = Clock::now() + kAcceptPause;
      return;
    }
    auto connection = std::make_unique<Connection>();
    connection->fd = std::move(fd);
    connection->since = Clock::now();
    serve(*connection);  // its token came with it, as a rule
    if (connection->fd.valid()) connections_.push_back(std::move(connection));
  }
}

/// Reads what is there; a whole token ends the connection, with the descriptor or without.
void DescriptorServer::serve(Connection& connection) {
  const std::ptrdiff_t got = recv_some(connection.fd, std::span(connection.token).subspan(connection.got));
  if (got > 0) connection.got += static_cast<std::size_t>(got);
  const bool whole = connection.got == connection.token.size();
  if (whole && spend(connection.token)) (void)send_descriptor(connection.fd, descriptor_);
  if (whole) secure_wipe(connection.token);
  if (whole || got < 0) connection.fd.reset();
}

/// True for a token that was not spent before; the time that it takes says nothing about the tokens' bytes.
bool DescriptorServer::spend(ByteView token) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (constant_time_equal(tokens_[i].view(), token)) found = i;
  }
  if (!found) return false;
  tokens_.erase(tokens_.begin() + static_cast<std::ptrdiff_t>(*found));
  return true;
}

void DescriptorServer::drop_where_over() {
  const auto now = Clock::now();
  const auto age_max =
      connections_.size() >= kConnectionsMax ? kYieldAge : std::chrono::milliseconds(kConnectionAgeMax);
  std::erase_if(connections_, [&](const std::unique_ptr<Connection>& connection) {
    return !connection->fd.valid() || now - connection->since >= age_max;
  });
}

Result<Fd> fetch_descriptor(std::string_view name, ByteView token, Deadline deadline) {
  SR_CHECK(token.size() == kDescriptorTokenBytes);
  if (name.size() != kDescriptorNameChars || !from_hex(name))
    return fail(Code::malformed, kStage, "a descriptor's name must be 32 hex digits");
  SR_TRY(const Fd fd, connect_to(name, deadline));
  while (!token.empty()) {
    SR_TRY(wait_for(fd, POLLOUT, deadline, "sending the token"));
    const std::ptrdiff_t sent = send_some(fd, token);
    if (sent < 0)
      return fail(Code::peer_lost, kStage, "the peer closed the connection before it read the token");
    token = token.subspan(static_cast<std::size_t>(sent));
  }
  SR_TRY(wait_for(fd, POLLIN, deadline, "waiting for the peer's descriptor"));
  return receive_descriptor(fd);
}

}  // namespace sealring
