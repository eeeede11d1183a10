// The loop behind exchange(): one thread that sends and receives at once, over any nonblocking streams.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "sealring/transport/transport.h"

namespace sealring {

/// What wait_readable may be asked for: a largest segment and its tag.
inline constexpr std::size_t kWaitBytesMax = 1024 * 1024 + 4096;

/// What one nonblocking step on a stream did. `bytes` counts only with `moved`.
///
/// `ended`: the peer has closed or is gone. `closed_here`: this side closed it, which is no loss of a peer.
struct PipeStep {
  enum class State : std::uint8_t { moved, would_block, ended, closed_here };
  State state = State::would_block;
  std::size_t bytes = 0;
};

/// One end of a duplex byte stream. One thread may write while another reads; never two of a kind.
class DuplexStream {
 public:
  virtual ~DuplexStream() = default;
  /// Both take as much as can be had without waiting; the argument is never empty.
  virtual PipeStep write_some(ByteView bytes) = 0;
  virtual PipeStep read_some(std::span<std::byte> buffer) = 0;
};

/// What the loop waits for on one stream, and what the wait found.
struct Interest {
  DuplexStream* stream = nullptr;
  bool want_read = false, want_write = false;
  bool can_read = false, can_write = false;
};

/// How a transport waits. Used by one thread.
class StreamWaiter {
 public:
  virtual ~StreamWaiter() = default;
  /// Called before each pass over the streams: whatever happens after it ends the next wait().
  virtual void begin_pass() {}
  /// Returns when an interest may be served (spurious returns are allowed), the deadline has passed, or the
  /// transport was aborted. Errors: the machine's own.
  virtual Result<void> wait(std::span<Interest> interests, Deadline deadline) = 0;
};

struct ExchangeHooks {
  /// The open stream behind an id; null when there is none.
  std::function<std::shared_ptr<DuplexStream>(const StreamId&)> find;
  StreamWaiter* waiter = nullptr;
  const std::atomic<bool>* aborted = nullptr;
};

/// Transport::exchange over `hooks`; see there.
Result<void> run_exchange(std::span<const Send> sends, std::span<const Recv> recvs,
                          const ExchangeHooks& hooks, Deadline deadline);

/// "rank 2" or "ranks 2, 3"; for messages.
std::string name_ranks(std::vector<Rank> ranks);
Error peer_lost(Rank peer, std::string stage, std::string what);
/// TIMEOUT that names `missing`; `peer` is set when it is one rank alone.
Error timed_out(std::string stage, std::string what, const std::vector<Rank>& missing);
Error transport_aborted(std::string stage);

}  // namespace sealring
