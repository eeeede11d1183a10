// DeviceWire over NCCL: sealed here into private buffers, moved by NCCL's sends and receives, opened there.
//
// NCCL sees ciphertext and tags alone, and what it delivers is believed by nobody. Its kernels wait for other
// ranks without a deadline, so a thread watches: when an exchange has run for the timeout, when NCCL has met
// an error, or when the group gives up, it sets the group's verdict on the device and then aborts NCCL. A
// graph that was captured with this wire must not be replayed after that: NCCL's memory is gone.
//
// Whoever seals and opens beside it leaves NCCL NcclComm::multiprocessors().
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "sealring/device/cuda/group_state.h"
#include "sealring/device/cuda/nccl_rounds.h"
#include "sealring/device/device_group.h"

namespace sealring::cuda {

class NcclWire final : public DeviceWire {
 public:
  /// `state` lies on the device, has ranks and rank set, and outlives this. Errors: ENVIRONMENT, UNSUPPORTED,
  /// VERSION_MISMATCH (see nccl_api), OUT_OF_MEMORY, CUDA.
  static Result<std::unique_ptr<NcclWire>> make(const DeviceGroupConfig& config, GroupState* state);
  ~NcclWire() override;
  NcclWire(const NcclWire&) = delete;
  NcclWire& operator=(const NcclWire&) = delete;

  Result<Bytes> offer() override;
  /// Makes the communicator and moves a first chunk between all, so that nothing is set up later.
  Result<void> connect(std::span<const Bytes> offers, Deadline deadline) override;
  Result<void> ready(const WireRound& round, void* stream) override;
  std::byte* out_place(Rank peer) override { return rounds_->out_place(peer); }
  Result<void> sent(const WireRound& round, void* stream) override;
  Result<void> arrived(const WireRound& round, void* stream) override;
  const std::byte* in_place(Rank peer) override { return rounds_->in_place(peer); }
  Result<void> taken(const WireRound& round, void* stream) override;
  /// Returns at once: the watching thread does it.
  void abort() noexcept override;
  void leak() noexcept override { leaked_ = true; }
  std::string describe() const override;

 private:
  class CudaStreams;

  NcclWire(const DeviceGroupConfig& config, GroupState* state, const NcclApi& api);
  Result<void> set_up();
  Result<void> first_exchange(Deadline deadline);
  void watch() noexcept;
  void give_up(Code code) noexcept;

  const unsigned device_;
  const Rank rank_;
  const std::uint16_t world_;
  const std::chrono::nanoseconds timeout_;
  GroupState* const state_;
  const NcclApi& api_;
  NcclUniqueId id_;
  NcclStaging staging_;
  std::unique_ptr<CudaStreams> streams_;
  std::unique_ptr<NcclComm> comm_;
  std::unique_ptr<NcclRounds> rounds_;
  bool leaked_ = false;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false, abort_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace sealring::cuda
