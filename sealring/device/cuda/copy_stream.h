// CopyStream: the stream of a device on which this process makes its own small copies: keys in, verdicts out,
// abort words. No kernel and no caller's work is ever on it, so it waits for none; one for all, because each
// further stream takes a place among the device's queues (CUDA_DEVICE_MAX_CONNECTIONS), and two streams that
// share a queue wait for each other.
#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "sealring/base/result.h"

namespace sealring::cuda {

/// Any thread may enqueue a copy and wait for the stream.
class CopyStream {
 public:
  /// Errors: CUDA.
  static Result<std::shared_ptr<const CopyStream>> of(unsigned device);
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;
  ~CopyStream();
  cudaStream_t stream() const { return stream_; }

 private:
  CopyStream() = default;
  unsigned device_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace sealring::cuda
