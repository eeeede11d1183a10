// Streams that are captured into graphs, as those see them who enqueue on a caller's stream.
#pragma once

#include <cuda_runtime.h>

#include "sealring/device/cuda/errors.h"

namespace sealring::cuda {

/// What this thread calls is no part of any capture, its own included.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// The capture that a stream takes part in: unique in the process; 0: none.
inline Result<unsigned long long> capture_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  SR_TRY(checked(cudaStreamGetCaptureInfo(stream, &status, &id), "capture"));
  if (status == cudaStreamCaptureStatusNone) return 0ull;
  return id;
}

}  // namespace sealring::cuda
