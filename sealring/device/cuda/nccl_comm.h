// One NCCL communicator that never blocks: what it is told is polled for until a deadline, and it can be
// aborted from any thread. It moves sealed bytes; what arrives is believed by nobody.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "sealring/base/deadline.h"
#include "sealring/base/types.h"
#include "sealring/device/cuda/nccl_api.h"

namespace sealring::cuda {

struct NcclSend {
  Rank peer = 0;
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};
struct NcclRecv {
  Rank peer = 0;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};

/// exchange() by one thread at a time; status() and abort() from any. After an error or an abort NCCL is not
/// called any more. Memory given to exchange() is NCCL's until the stream has passed it.
class NcclComm {
 public:
  /// Blocks that NCCL's kernels may have, and its channels. An exchange between two ranks takes half of them,
  /// 32; with the 16 that it takes as it comes it moves 215 GB/s between two H200.
  static constexpr int kBlocks = 64;
  /// Multiprocessors that whoever else uses the device leaves it, since its kernels wait for other ranks
  /// while they run.
  static constexpr unsigned multiprocessors(std::size_t world) { return world == 2 ? kBlocks / 2 : kBlocks; }

  /// For the current device, of `world` ranks that all call this. `api` must outlive it. Errors: ENVIRONMENT
  /// (see check_nccl_environment), TIMEOUT, PEER_LOST, CUDA.
  static Result<std::unique_ptr<NcclComm>> make(const NcclApi& api, const NcclUniqueId& id, Rank rank,
                                                std::uint16_t world, Deadline deadline);
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;
  /// Lets the peers finish, unless there was an error or an abort.
  ~NcclComm();

  /// All of it is one operation of the stream: each send meets the peer's receive of the same place in order.
  /// Returns when it is enqueued. Errors: TIMEOUT, ABORTED, PEER_LOST, CUDA; each ends the communicator.
  Result<void> exchange(std::span<const NcclSend> sends, std::span<const NcclRecv> recvs, NcclStream stream,
                        Deadline deadline);
  /// The first error, also one that NCCL met in the meantime.
  Result<void> status();
  /// What NCCL runs on the device ends. Idempotent.
  void abort() noexcept;

 private:
  explicit NcclComm(const NcclApi& api) : api_(api) {}
  Result<void> enqueue(std::span<const NcclSend> sends, std::span<const NcclRecv> recvs, NcclStream stream);
  Result<void> settle(Deadline deadline, const char* doing);
  Result<bool> settled(const char* doing);
  Result<void> end_with(Error error) noexcept;

  const NcclApi& api_;
  std::mutex mutex_;  ///< held while NCCL is called with comm_, never while it is waited for
  NcclCommHandle comm_ = nullptr;
  std::optional<Error> ended_;
};

}  // namespace sealring::cuda
