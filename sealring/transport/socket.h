// Sockets: descriptors that close themselves, addresses, listening and connecting without waiting.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sealring/base/bytes.h"
#include "sealring/base/result.h"

namespace sealring {

/// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Fd() { reset(); }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void reset() noexcept;

 private:
  int fd_ = -1;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  bool loopback() const;
  /// "10.0.0.2:29600" or "[fe80::1]:29600".
  std::string text() const;
  std::string host() const;  ///< without the port
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
};

/// The addresses of a name or a literal; `numeric_only` never asks a name server (for addresses from the
/// store). Errors: `code` with the resolver's words.
Result<std::vector<SocketAddress>> resolve(const std::string& host, std::uint16_t port, bool numeric_only,
                                           Code code, const std::string& stage);
/// Parses "host:port" or "[v6]:port" of numeric hosts. Errors: INVALID_ARGUMENT.
Result<SocketAddress> parse_address(const std::string& text);

/// A nonblocking listener. Errors: PORT (taken or not allowed), FD_LIMIT.
Result<Fd> listen_on(const SocketAddress& address, const std::string& stage);
SocketAddress local_address(const Fd& fd);
/// Begins to connect without waiting; POLLOUT tells when it has ended and connect_error() how. Errors:
/// FD_LIMIT.
Result<Fd> begin_connect(const SocketAddress& address, const std::string& stage);
/// 0, or the errno of a connect that has ended.
int connect_error(const Fd& fd);
/// True for a socket that has met itself, which connecting to a free local port can do.
bool connected_to_itself(const Fd& fd);
void set_nodelay(const Fd& fd);

/// send/recv once, without waiting and without SIGPIPE. bytes > 0: moved; 0: would block; -1: ended.
std::ptrdiff_t send_some(const Fd& fd, ByteView bytes);
std::ptrdiff_t recv_some(const Fd& fd, std::span<std::byte> buffer);

/// A nonblocking eventfd. Errors: FD_LIMIT.
Result<Fd> make_event(const std::string& stage);
void raise_event(const Fd& event) noexcept;
void clear_event(const Fd& event) noexcept;

std::string errno_text(int error_number);
/// FD_LIMIT naming the limit when `error_number` says so, else `code`.
Error socket_error(int error_number, Code code, std::string stage, const std::string& doing);

}  // namespace sealring
