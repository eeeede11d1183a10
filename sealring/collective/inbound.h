// Inbound: who reads the point-to-point stream of which peer. A stream has one reader at a time; a receive
// from any source leaves those alone for which a receive of their own was issued, and they do not wait for it
// long.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "sealring/base/deadline.h"
#include "sealring/base/types.h"

namespace sealring {

/// Ranks are of the group. Thread-safe.
class Inbound {
 public:
  explicit Inbound(std::size_t ranks) : peers_(ranks) {}

  /// A receive from `peer` was issued and will take() its stream.
  void announce(Rank peer) {
    const std::lock_guard lock(mutex_);
    ++peers_[peer].announced;
  }
  /// Waits until nobody reads the peer's stream and takes it.
  void take(Rank peer) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !peers_[peer].taken; });
    peers_[peer].taken = true;
  }
  /// The same for a receive that was announced; false, and nothing taken, when the deadline passed first.
  bool take_announced(Rank peer, Deadline deadline) {
    std::unique_lock lock(mutex_);
    const bool free = changed_.wait_until(lock, deadline.when(), [&] { return !peers_[peer].taken; });
    if (free) peers_[peer].taken = true;
    --peers_[peer].announced;
    return free;
  }
  /// Takes all streams, but `me`'s, that nobody reads or was announced for; waits for one, at most
  /// `patience`.
  std::vector<Rank> take_idle(Rank me, std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    std::vector<Rank> out;
    const auto any = [&] {
      for (Rank peer = 0; peer < peers_.size(); ++peer) {
        if (peer != me && !peers_[peer].taken && peers_[peer].announced == 0) out.push_back(peer);
      }
      return !out.empty();
    };
    (void)changed_.wait_for(lock, patience, any);
    for (const Rank peer : out) peers_[peer].taken = true;
    return out;
  }
  void release(Rank peer) {
    {
      const std::lock_guard lock(mutex_);
      peers_[peer].taken = false;
    }
    changed_.notify_all();
  }
  /// The number of the next message from `peer`; for who has taken its stream.
  std::uint64_t next_seq(Rank peer) {
    const std::lock_guard lock(mutex_);
    return peers_[peer].next_seq++;
  }

 private:
  struct Peer {
    bool taken = false;
    std::uint32_t announced = 0;
    std::uint64_t next_seq = 0;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Peer> peers_;
};

}  // namespace sealring
