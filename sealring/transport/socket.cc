#include "sealring/transport/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>

namespace sealring {
namespace {

const sockaddr* raw(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}
sockaddr* raw(SocketAddress& address) { return reinterpret_cast<sockaddr*>(&address.storage); }

Result<Fd> make_socket(const SocketAddress& address, const std::string& stage) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return fail(socket_error(errno, Code::port, stage, "making a socket"));
  return fd;
}

bool would_block(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR ||
         error_number == ENOBUFS || error_number == ENOMEM;  // memory of the kernel: it comes back
}

}  // namespace

void Fd::reset() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool SocketAddress::loopback() const {
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

std::string SocketAddress::host() const {
  std::array<char, NI_MAXHOST> name{};
  if (::getnameinfo(raw(*this), bytes, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return name.data();
}

std::uint16_t SocketAddress::port() const {
  // The port stands at the same place in both families.
  return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

void SocketAddress::set_port(std::uint16_t port) {
  reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
}

std::string SocketAddress::text() const {
  const std::string port_text = std::to_string(port());
  return storage.ss_family == AF_INET6 ? "[" + host() + "]:" + port_text : host() + ":" + port_text;
}

Result<std::vector<SocketAddress>> resolve(const std::string& host, std::uint16_t port, bool numeric_only,
                                           Code code, const std::string& stage) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (numeric_only ? AI_NUMERICHOST : 0);
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (problem != 0) {
    return fail(code, stage, "the host name \"" + host + "\" has no address: " + ::gai_strerror(problem),
                "check the name, or give an IP address");
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  std::vector<SocketAddress> out;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if ((at->ai_family != AF_INET && at->ai_family != AF_INET6) || at->ai_addrlen > sizeof(sockaddr_storage))
      continue;
    SocketAddress address;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.bytes = at->ai_addrlen;
    out.push_back(address);
  }
  if (out.empty()) return fail(code, stage, "the host name \"" + host + "\" has no IPv4 or IPv6 address");
  return out;
}

Result<SocketAddress> parse_address(const std::string& text) {
  const auto bad = [] {
    return fail(Code::invalid_argument, "socket.address", "an address must be HOST:PORT");
  };
  const std::size_t colon = text.rfind(':');
  if (text.size() > 128 || colon == std::string::npos || colon == 0) return bad();
  std::string host = text.substr(0, colon);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return bad();
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return bad();
  }
  std::uint16_t port = 0;
  const char *first = text.data() + colon + 1, *last = text.data() + text.size();
  const auto [end, problem] = std::from_chars(first, last, port);
  if (problem != std::errc{} || end != last || port == 0) return bad();
  SR_TRY(const auto addresses, resolve(host, port, true, Code::invalid_argument, "socket.address"));
  return addresses.front();
}

Result<Fd> listen_on(const SocketAddress& address, const std::string& stage) {
  SR_TRY(Fd fd, make_socket(address, stage));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on,
               sizeof on);  // connections of an earlier run may linger
  if (address.storage.ss_family == AF_INET6)
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(fd.get(), raw(address), address.bytes) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    return fail(socket_error(errno, Code::port, stage, "listening on " + address.text()));
  }
  return fd;
}

SocketAddress local_address(const Fd& fd) {
  SocketAddress out;
  out.bytes = sizeof out.storage;
  if (::getsockname(fd.get(), raw(out), &out.bytes) != 0) return {};
  return out;
}

Result<Fd> begin_connect(const SocketAddress& address, const std::string& stage) {
  SR_TRY(Fd fd, make_socket(address, stage));
  set_nodelay(fd);
  // Every outcome but a lack of descriptors is learned from connect_error(), so that there is one place for
  // it.
  if (::connect(fd.get(), raw(address), address.bytes) != 0 && errno != EINPROGRESS && errno != EINTR) {
    if (errno == EMFILE || errno == ENFILE) return fail(socket_error(errno, Code::port, stage, "connecting"));
    fd.reset();
  }
  return fd;
}

int connect_error(const Fd& fd) {
  int problem = 0;
  socklen_t bytes = sizeof problem;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &problem, &bytes) != 0) return errno;
  return problem;
}

bool connected_to_itself(const Fd& fd) {
  SocketAddress peer;
  peer.bytes = sizeof peer.storage;
  if (::getpeername(fd.get(), raw(peer), &peer.bytes) != 0) return false;
  return peer.text() == local_address(fd).text();
}

void set_nodelay(const Fd& fd) {
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::ptrdiff_t send_some(const Fd& fd, ByteView bytes) {
  const ssize_t sent = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return sent;
  return would_block(errno) ? 0 : -1;
}

std::ptrdiff_t recv_some(const Fd& fd, std::span<std::byte> buffer) {
  const ssize_t received = ::recv(fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (received > 0) return received;
  if (received == 0) return -1;
  return would_block(errno) ? 0 : -1;
}

Result<Fd> make_event(const std::string& stage) {
  Fd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd.valid()) return fail(socket_error(errno, Code::fd_limit, stage, "making an event descriptor"));
  return fd;
}

void raise_event(const Fd& event) noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written =
      ::write(event.get(), &one, sizeof one);  // full means raised already
}

void clear_event(const Fd& event) noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event.get(), &count, sizeof count);
}

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

Error socket_error(int error_number, Code code, std::string stage, const std::string& doing) {
  Error error;
  error.code = code;
  error.stage = std::move(stage);
  error.what = doing + " failed: " + errno_text(error_number);
  if (error_number == EMFILE) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    error.code = Code::fd_limit;
    error.what = doing + " failed: this process may have " + std::to_string(limit.rlim_cur) + " open files";
  } else if (error_number == ENFILE) {
    error.code = Code::fd_limit;
    error.what = doing + " failed: the machine's limit of open files (fs.file-max) is reached";
  }
  return error;
}

}  // namespace sealring
