// How a process of one host gives another one file descriptor: over a Unix socket, for a one-time token.
//
// The socket has a random abstract name. Name and tokens reach the peers in secret and authenticated; whoever
// else connects learns nothing: a wrong token is answered by closing the connection.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "sealring/base/deadline.h"
#include "sealring/base/secret.h"
#include "sealring/transport/socket.h"

namespace sealring {

inline constexpr std::size_t kDescriptorTokenBytes = 32;
inline constexpr std::size_t kDescriptorNameChars = 32;  ///< 16 random bytes in hex

/// Gives copies of one descriptor, each token's once, until destroyed or until no token is left: then it
/// closes its socket and its descriptor. A token is spent when it was met, also where the peer is gone before
/// it is answered. Strangers: at most 256 connections at once, each for 5 s or, when all places are taken,
/// 100 ms.
class DescriptorServer {
 public:
  static constexpr std::size_t kConnectionsMax = 256;
  /// `tokens`: of kDescriptorTokenBytes random bytes each. Errors: FD_LIMIT, PORT (no abstract name could be
  /// bound), OUT_OF_MEMORY.
  static Result<std::unique_ptr<DescriptorServer>> start(Fd descriptor, std::vector<SecretBytes> tokens);
  DescriptorServer(const DescriptorServer&) = delete;
  DescriptorServer& operator=(const DescriptorServer&) = delete;
  ~DescriptorServer();
  /// kDescriptorNameChars hex digits; of use to whoever has a token.
  const std::string& name() const { return name_; }

 private:
  struct Connection {
    Fd fd;
    Clock::time_point since;
    std::size_t got = 0;
    std::array<std::byte, kDescriptorTokenBytes> token{};
  };
  DescriptorServer(Fd descriptor, std::vector<SecretBytes> tokens);
  void run() noexcept;
  void poll_once();
  void accept_some();
  void serve(Connection& connection);
  bool spend(ByteView token);
  void drop_where_over();

  const std::string name_;
  Fd descriptor_, listener_, wake_;
  std::vector<SecretBytes> tokens_;  ///< that are not spent; the thread's alone
  std::vector<std::unique_ptr<Connection>> connections_;
  Clock::time_point accept_after_{};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// The descriptor that the server of this name has for `token` (kDescriptorTokenBytes); closed on exec. What
/// it refers to is the server's word alone. Errors: PEER_LOST (no such server, or it closed the connection:
/// the token is wrong or spent), TIMEOUT, MALFORMED (no such name can be; not exactly one byte with one
/// descriptor came: all of them are closed), FD_LIMIT.
Result<Fd> fetch_descriptor(std::string_view name, ByteView token, Deadline deadline);

}  // namespace sealring
