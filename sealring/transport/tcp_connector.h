// The connecting side of open_group: many connections at once, retried until proven or the deadline.
#pragma once

#include <vector>

#include "sealring/transport/tcp_streams.h"

namespace sealring {

/// Used by the one thread inside open_group.
class TcpConnector {
 public:
  TcpConnector(const GroupLinks& links, TcpStreams& streams) : links_(links), streams_(streams) {}
  /// Lists the connections that this rank makes: those to lower ranks. Errors: PEER_LOST for an address that
  /// is none.
  Result<void> prepare();
  /// Runs until every slot of the group is filled, by this side or by the acceptor. `filled_event` and
  /// `abort_event` wake it. Errors: TIMEOUT, ABORTED, FD_LIMIT, what links.check gave.
  Result<void> run(const Fd& filled_event, const Fd& abort_event, Deadline deadline);

 private:
  struct Attempt {
    const PeerLink* link = nullptr;
    ProofFields fields;
    SocketAddress address;
    enum class State : std::uint8_t { waiting, connecting, expecting_challenge, expecting_reply, done };
    State state = State::waiting;
    Fd fd;
    Clock::time_point retry_at{}, connecting_since{};
    std::chrono::milliseconds backoff{5};
    std::array<std::byte, 32> read{};  ///< a challenge or a reply
    std::size_t read_bytes = 0;
    ProofChallenge challenge{};
    ProofAnswer answer{};
    std::string last_problem;
  };
  Result<void> begin(Attempt& attempt);
  void advance(Attempt& attempt);
  void take_message(Attempt& attempt);
  void retry(Attempt& attempt, std::string problem);
  Error timeout_error() const;

  const GroupLinks& links_;
  TcpStreams& streams_;
  std::vector<Attempt> attempts_;
};

}  // namespace sealring
