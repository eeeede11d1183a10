// The server of our tcp store: one thread in rank 0's process, poll(2) over its clients.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "sealring/base/log.h"
#include "sealring/base/types.h"
#include "sealring/transport/socket.h"
#include "sealring/transport/store_entries.h"
#include "sealring/transport/tcp_store_wire.h"

namespace sealring {

/// Lives until destroyed, whatever its clients do. Strangers: at most 256 at once, 64 bytes each, and 5 s or,
/// when all places are taken, 100 ms (see TcpAcceptor for what that means in a flood).
class TcpStoreServer {
 public:
  static constexpr std::size_t kUnprovenMax = 256;
  static constexpr std::size_t kClientsMax = kRanksMax + kUnprovenMax;
  static Result<std::unique_ptr<TcpStoreServer>> start(Fd listener, SecretBytes key);
  ~TcpStoreServer();
  StoreEntries& entries() { return entries_; }

 private:
  struct Client {
    Fd fd;
    bool proven = false;
    Clock::time_point since;
    StoreChallenge challenge{};
    Bytes in, out;
  };
  TcpStoreServer(Fd listener, Fd wake, SecretBytes key);
  void run() noexcept;
  void poll_once();
  void accept_some();
  std::size_t unproven() const;
  bool serve(Client& client);
  bool admit(Client& client);
  bool answer_requests(Client& client);
  StoreReply handle(const StoreRequest& request);
  void drop_where_over();

  const Fd listener_, wake_;
  const SecretBytes key_;
  StoreEntries entries_;
  std::vector<std::unique_ptr<Client>> clients_;
  Clock::time_point accept_after_{};
  LogLimiter limiter_{1};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sealring
