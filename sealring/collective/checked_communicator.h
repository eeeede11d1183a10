// CheckedCommunicator: what every communicator refuses before anything is sent, once for all of them.
#pragma once

#include <span>
#include <vector>

#include "sealring/collective/communicator.h"
#include "sealring/collective/executor.h"

namespace sealring {

/// Turns a caller's tensors into a CollectiveCall; who derives from it runs that.
class CheckedCommunicator : public Communicator {
 public:
  Rank rank() const final { return rank_; }
  std::uint16_t size() const final { return static_cast<std::uint16_t>(members_.size()); }
  const std::vector<Rank>& global_ranks() const final { return members_; }

  Result<Ticket> all_reduce(Tensor in, Tensor out, Reduction reduction, Stream stream) final;
  Result<Ticket> reduce_scatter(Tensor in, Tensor out, Reduction reduction, Stream stream) final;
  Result<Ticket> all_gather(Tensor in, Tensor out, Stream stream) final;
  Result<Ticket> broadcast(Tensor data, Rank root, Stream stream) final;
  Result<Ticket> reduce(Tensor in, Tensor out, Reduction reduction, Rank root, Stream stream) final;
  Result<Ticket> gather(Tensor in, Tensor out, Rank root, Stream stream) final;
  Result<Ticket> scatter(Tensor in, Tensor out, Rank root, Stream stream) final;
  Result<Ticket> all_to_all(Tensor in, Tensor out, Stream stream) final;
  Result<Ticket> barrier(Stream stream) final;

  /// Waits for what was issued; false when the deadline passed first.
  virtual bool drain(Deadline deadline) = 0;
  /// After the last op: waits until the other members have come as far, where that matters to them.
  /// Idempotent.
  virtual void leave(Deadline /*deadline*/) {}

 protected:
  /// `members`: global ranks, ascending; `me` is one of them. `node_ranks`: the session's.
  CheckedCommunicator(std::vector<Rank> members, Rank me, std::uint16_t node_ranks);

  /// As ScheduleRequest, of this group.
  std::uint16_t node_ranks() const { return node_ranks_; }

  /// How this group runs an op that moves `bytes`.
  virtual Algorithm algorithm_for(Op op, std::uint64_t bytes) const = 0;
  /// Numbers and begins a collective whose arguments are right. `output` is what is poisoned when it fails.
  virtual Result<Ticket> issue(CollectiveCall call, std::span<std::byte> output, Stream stream) = 0;

  static std::span<std::byte> memory_of(const Tensor& tensor);
  /// Refuses element counts whose byte size would overflow, and pointers that are missing.
  static Result<void> check_tensor(const Tensor& tensor, const char* name);
  Result<void> check_root(Rank root) const;
  Result<void> check_peer(Rank peer) const;

 private:
  std::vector<Rank> members_;
  Rank rank_ = 0;
  std::uint16_t node_ranks_ = 0;
};

}  // namespace sealring
