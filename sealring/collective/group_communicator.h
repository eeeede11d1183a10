// GroupCommunicator: one group's operations, checked, queued and run.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "sealring/channel/channel.h"
#include "sealring/collective/checked_communicator.h"
#include "sealring/collective/inbound.h"
#include "sealring/collective/op_thread.h"
#include "sealring/collective/session_core.h"
#include "sealring/collective/ticket.h"

namespace sealring {

/// Collectives run in one thread, in issue order; each direction of point-to-point in a thread of its own, so
/// that a send never waits for a receive that was issued later. Life of an operation: issued (checked,
/// numbered) -> recorded
/// -> run by the executor -> on an error: session dies, output is poisoned -> ticket completed.
class GroupCommunicator final : public CheckedCommunicator {
 public:
  /// `own_keys` is a subgroup's; the world's keys (null here) belong to the session.
  GroupCommunicator(std::shared_ptr<SessionCore> core, std::unique_ptr<GroupKeys> own_keys, GroupKeys& keys);
  ~GroupCommunicator() override;

  Result<Ticket> send(Tensor data, Rank peer, std::uint32_t tag, Stream stream) override;
  Result<Ticket> recv(Tensor data, Rank peer, std::uint32_t tag, Stream stream) override;
  Result<Ticket> recv_any(Tensor data, std::uint32_t tag, std::shared_ptr<Rank> source,
                          Stream stream) override;

  Counters counters() const override;
  std::string describe() const override;
  void set_timeout(std::chrono::milliseconds timeout) override {
    timeout_ns_ = timeout / std::chrono::nanoseconds(1);
  }

  bool drain(Deadline deadline) override;

 private:
  struct Direction {
    OpThread thread;
    std::uint64_t seq = 0;  ///< of the next message to send
    explicit Direction(std::string name) : thread(std::move(name)) {}
  };
  using TicketPtr = std::shared_ptr<TicketState>;

  Deadline op_deadline() const { return Deadline::in(std::chrono::nanoseconds(timeout_ns_.load())); }
  Algorithm algorithm_for(Op op, std::uint64_t bytes) const override;
  Result<Ticket> issue(CollectiveCall call, std::span<std::byte> output, Stream stream) override;
  void run_collective(const CollectiveCall& call, std::span<std::byte> output, Deadline deadline,
                      const TicketPtr& ticket);
  void finish(Result<void> result, DType dtype, std::span<std::byte> output, const TicketPtr& ticket);
  Direction& direction(Rank peer, bool outgoing);
  /// After the session's death: every thread erases the keys that it uses.
  void wipe_keys();
  /// The next message of a peer whose stream is taken.
  Result<void> receive(Tensor data, Rank peer, std::uint32_t tag, Deadline deadline);
  /// Waits for a message from any peer and takes that peer's stream.
  Result<Rank> take_source(std::uint64_t bytes, Deadline deadline);

  std::shared_ptr<SessionCore> core_;
  std::unique_ptr<GroupKeys> own_keys_;
  std::array<std::byte, 32> group_id_{};
  std::unique_ptr<Channel> channel_;
  Executor executor_;
  std::atomic<std::int64_t> timeout_ns_;
  std::atomic<std::uint64_t> ops_{0};
  std::mutex issue_mutex_;  ///< order of numbering = order of queueing
  std::uint64_t next_seq_ = 0;
  Inbound inbound_;
  std::map<std::pair<Rank, bool>, std::unique_ptr<Direction>> directions_;
  std::unique_ptr<OpThread> any_source_;
  OpThread collectives_;
  SessionCore::HookId death_hook_;
};

}  // namespace sealring
