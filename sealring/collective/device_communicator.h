// DeviceCommunicator: the operations of a group whose tensors lie in the memory of a device.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "sealring/collective/checked_communicator.h"
#include "sealring/collective/device_queue.h"
#include "sealring/collective/device_setup.h"

namespace sealring {

/// Methods enqueue on the caller's stream and return at once; ops of a communicator run in issue order
/// whatever their streams are. What a stream is given after an op sees its exact result, or poison. A ticket
/// is done when the device has ended the op and its verdict is clean; an op that was captured has one that is
/// done at once, and errors of replays end the session.
///
/// send and recv are ops like the others: under the same pair keys, in issue order with the collectives of
/// both ranks. So two ranks that both send to each other first wait for each other's receive as soon as a
/// message does not fit into the device's windows, until the deadline: let one of them receive first.
///
/// set_timeout bounds an op from its turn on the device on; above the session's timeout it does not lengthen
/// what the device itself waits.
class DeviceCommunicator final : public CheckedCommunicator {
 public:
  DeviceCommunicator(std::shared_ptr<SessionCore> core, std::shared_ptr<DeviceQueue> queue,
                     DeviceParts parts);
  ~DeviceCommunicator() override;

  Result<Ticket> send(Tensor data, Rank peer, std::uint32_t tag, Stream stream) override;
  Result<Ticket> recv(Tensor data, Rank peer, std::uint32_t tag, Stream stream) override;
  Result<Ticket> recv_any(Tensor data, std::uint32_t tag, std::shared_ptr<Rank> source,
                          Stream stream) override;

  Counters counters() const override;
  std::string describe() const override;
  void set_timeout(std::chrono::milliseconds timeout) override {
    timeout_ns_ = timeout / std::chrono::nanoseconds(1);
  }

  bool drain(Deadline deadline) override { return queue_->drain(*watched_, deadline); }
  void leave(Deadline deadline) override;

 private:
  Algorithm algorithm_for(Op op, std::uint64_t bytes) const override;
  Result<Ticket> issue(CollectiveCall call, std::span<std::byte> output, Stream stream) override;
  /// `move` with the peer as Op::send: at most one of the two is given.
  Result<Ticket> message(const OpInfo& op, std::span<const OutgoingMove> out,
                         std::span<const IncomingMove> in, std::span<std::byte> output, Stream stream);
  /// Enqueues one op, under the queue's order. `body` begins it and gives it its steps.
  Result<Ticket> enqueue(const OpInfo& op, std::span<std::byte> output, Stream stream,
                         const std::function<Result<void>()>& body);
  void on_death();

  std::shared_ptr<SessionCore> core_;
  std::shared_ptr<DeviceQueue> queue_;
  DeviceParts parts_;
  Executor executor_;
  std::shared_ptr<WatchedGroup> watched_;
  std::atomic<std::int64_t> timeout_ns_;
  std::uint64_t next_seq_ = 0;  ///< of collectives that the control plane hears of
  std::atomic<bool> left_{false};
  SessionCore::HookId death_hook_;
};

}  // namespace sealring
