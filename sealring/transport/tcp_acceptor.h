// The thread that lets connections in: whoever proves itself fills its slot, strangers cost next to nothing.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "sealring/base/log.h"
#include "sealring/transport/tcp_streams.h"

namespace sealring {

/// [protocol A.4] at most 256 unproven sockets, 5 s, 256 bytes read (in fact 97), no allocation by a peer's
/// word.
///
/// A socket whose answer names a group that is not open yet waits for it within these limits: the other rank
/// was earlier. When all places are taken, new sockets wait in the listener's queue, and unproven ones give
/// their places up, the oldest first, once they are 100 ms old. So a burst of idle connections delays a rank
/// by the time that its queue takes at 2560 a second: 2 s for a full queue of 4096. Who goes on connecting
/// faster than that keeps the queue full, and ranks out: that is for the network to stop.
class TcpAcceptor {
 public:
  static constexpr std::size_t kUnprovenMax = 256;
  static Result<std::unique_ptr<TcpAcceptor>> start(Fd listener, TcpStreams& streams);
  ~TcpAcceptor();
  /// A group was opened: sockets that wait for it are judged now.
  void group_opened() noexcept { raise_event(wake_); }
  /// Connections could not be accepted for lack of descriptors since the last call.
  bool take_fd_limit_met() { return fd_limit_met_.exchange(false); }

 private:
  struct Unproven {
    Fd fd;
    Clock::time_point since;
    ProofChallenge challenge{};
    std::array<std::byte, kProofAnswerBytes + 1>
        read{};  ///< one more byte shows that somebody talks too much
    std::size_t read_bytes = 0;
    bool waits_for_group = false;
  };
  TcpAcceptor(Fd listener, Fd wake, TcpStreams& streams);
  void run() noexcept;
  void poll_once();
  void accept_some();
  Unproven* free_place();
  void greet(Fd fd);
  void read_answer(Unproven& unproven);
  void judge(Unproven& unproven);
  void drop(Unproven& unproven, const char* reason, LogLevel level = LogLevel::warning);

  const Fd listener_, wake_;
  TcpStreams& streams_;
  std::array<Unproven, kUnprovenMax> unproven_;
  Clock::time_point accept_after_{};
  LogLimiter limiter_{1};
  std::atomic<bool> stop_{false}, fd_limit_met_{false};
  std::thread thread_;
};

}  // namespace sealring
