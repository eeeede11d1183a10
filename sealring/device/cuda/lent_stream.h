// LentStream: a stream of high priority, from those that groups before have given back.
//
// Streams share the device's queues (CUDA_DEVICE_MAX_CONNECTIONS), and one that shares a queue with another
// waits for it. Which queue a stream takes is decided when it is made; so a process in which groups come and
// go makes no more streams than it has at one time.
#pragma once

#include <cuda_runtime.h>

#include "sealring/base/result.h"

namespace sealring::cuda {

class LentStream {
 public:
  LentStream() = default;
  /// Errors: CUDA.
  static Result<LentStream> of(unsigned device);
  LentStream(LentStream&& other) noexcept;
  LentStream& operator=(LentStream&& other) noexcept;
  ~LentStream();  ///< gives it back: nothing may be on it

  cudaStream_t get() const { return stream_; }
  /// It is not given back: what is on it may never end.
  void leak() noexcept { stream_ = nullptr; }

 private:
  LentStream(unsigned device, cudaStream_t stream) : device_(device), stream_(stream) {}
  unsigned device_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace sealring::cuda
