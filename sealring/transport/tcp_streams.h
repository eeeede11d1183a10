// The open tcp streams of a rank: a slot per (group, peer, kind, lane), filled once by a proven connection.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "sealring/transport/connection_proof.h"
#include "sealring/transport/exchange_loop.h"
#include "sealring/transport/socket.h"

namespace sealring {

/// A proven connection. shut() may be called from any thread; the descriptor lives until the last user lets
/// go.
class TcpStream final : public DuplexStream {
 public:
  explicit TcpStream(Fd fd) : fd_(std::move(fd)) {}
  PipeStep write_some(ByteView bytes) override;
  PipeStep read_some(std::span<std::byte> buffer) override;
  /// Reads ahead, up to `bytes` in all; gives how much lies ready. `ended` is set when no more will come.
  std::size_t read_ahead(std::size_t bytes, bool& ended);
  void shut() noexcept;
  bool closed_here() const { return closed_.load(std::memory_order_acquire); }
  const Fd& fd() const { return fd_; }

 private:
  PipeStep::State end_state() const {
    return closed_here() ? PipeStep::State::closed_here : PipeStep::State::ended;
  }
  Fd fd_;
  std::atomic<bool> closed_{false};
  Bytes ahead_;  ///< read by wait_readable, not yet taken: ahead_[ahead_at_..)
  std::size_t ahead_at_ = 0;
};

/// Thread-safe.
class TcpStreams {
 public:
  enum class Offer : std::uint8_t { filled, refused, unknown_group };

  /// Registers a group's empty slots and the keys of its proofs. `filled_event` is raised as slots are
  /// filled, until keys_done(); it must live as long. Opening a group that is open is a programmer error.
  void add_group(const GroupLinks& links, const Fd& filled_event);
  /// All slots are filled, or opening failed: wipes the proof keys; nobody new is let in.
  void keys_done(const std::array<std::byte, 8>& group) noexcept;
  /// Judges an answer. On `filled` the reply has been sent and `fd` taken; else both are untouched. Nothing
  /// confirms the reply: a connector that does not get it as it was sent finds the slot taken when it tries
  /// again, and both sides run into their deadlines (or an operation's). Who can change the reply can stop a
  /// start anyway.
  Offer offer(Fd& fd, const ProofAnswer& answer, const ProofFields& fields, const ProofChallenge& challenge);
  /// The connecting side's: fills a slot with a connection whose reply was right.
  void fill(const StreamId& id, Fd fd);
  /// Peers with an empty slot, each once.
  std::vector<Rank> missing(const std::array<std::byte, 8>& group) const;
  std::shared_ptr<TcpStream> find(const StreamId& id) const;
  std::map<Rank, std::shared_ptr<TcpStream>> control_streams() const;
  void close_group(const std::array<std::byte, 8>& group) noexcept;
  void close_all() noexcept;

 private:
  struct ProofKeys {
    SecretBytes to_peer, from_peer;
  };
  using SlotKey = std::tuple<Rank, Kind, Lane>;
  struct Group {
    Rank me = 0;
    std::map<Rank, ProofKeys> keys;
    std::map<SlotKey, std::shared_ptr<TcpStream>> slots;  ///< null: empty
    const Fd* filled_event = nullptr;
  };
  mutable std::mutex mutex_;
  std::map<std::array<std::byte, 8>, Group> groups_;
};

/// poll(2) over the streams of one exchange and the event that abort() raises.
class TcpWaiter final : public StreamWaiter {
 public:
  explicit TcpWaiter(const Fd& abort_event) : abort_event_(abort_event) {}
  Result<void> wait(std::span<Interest> interests, Deadline deadline) override;

 private:
  const Fd& abort_event_;
};

}  // namespace sealring
