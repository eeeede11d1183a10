// LaunchChain: one order of the ops of one rank on one device, whatever their streams are, captured and
// replayed ones included.
//
// Two fused kernels of one rank that wait for their peers at the same time, in another order on another rank,
// would wait for ever; so each op of a rank waits for the one before it, over all of the rank's groups on the
// device, and order is the order in which the host issues. Ranks that share a process never wait for each
// other's ops.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <mutex>

#include "sealring/base/result.h"
#include "sealring/base/types.h"

namespace sealring::cuda {

/// Thread-safe; the order between two threads that call at once is theirs.
class LaunchChain {
 public:
  /// A chain of its own. Errors: CUDA.
  static Result<std::shared_ptr<LaunchChain>> make(unsigned device);
  /// That of a global rank: all groups of this process that ask with the same two share it.
  static Result<std::shared_ptr<LaunchChain>> of_rank(unsigned device, Rank global_rank);
  LaunchChain(const LaunchChain&) = delete;
  LaunchChain& operator=(const LaunchChain&) = delete;
  ~LaunchChain();

  /// `stream` waits for the op that was recorded last. `capture`: capture_of(stream). An op in a capture
  /// waits for the one before it in the same capture; the first of a capture, each time that it is replayed,
  /// for whatever was recorded last by then.
  Result<void> wait(cudaStream_t stream, unsigned long long capture);
  /// The op on `stream` ends here.
  Result<void> record(cudaStream_t stream, unsigned long long capture);
  /// The last op, replays included, has not ended.
  bool busy() const;

 private:
  LaunchChain() = default;
  static Result<unsigned long long> id_of(cudaStream_t stream);
  std::mutex mutex_;
  unsigned device_ = 0;
  cudaEvent_t last_ = nullptr;   ///< the end of the op before, replays included
  cudaEvent_t inner_ = nullptr;  ///< the same inside of capture_
  unsigned long long capture_ = 0;
  bool captured_ = false;               ///< graphs may record last_ at any time
  unsigned long long last_stream_ = 0;  ///< on which last_ was recorded; 0: on none yet
};

}  // namespace sealring::cuda
