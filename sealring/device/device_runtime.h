// DeviceRuntime: memory, a stream, its clock and its graphs on one GPU, for whoever calls the library as a
// program on a GPU would (the benchmarks). The library's own data path does not use it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "sealring/base/bytes.h"
#include "sealring/base/result.h"
#include "sealring/base/stream.h"

namespace sealring {

/// Work that was captured from a stream. Outlived by its runtime.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Enqueues it on the runtime's stream.
  virtual Result<void> launch() = 0;
};

/// Used by one thread.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;  ///< waits for its stream, frees its memory
  virtual Stream stream() const = 0;
  virtual unsigned device() const = 0;
  /// Lives as long as the runtime. Errors: OUT_OF_MEMORY, CUDA.
  virtual Result<std::byte*> allocate(std::uint64_t bytes) = 0;
  /// Copies that have ended, behind the stream's work so far, when they return.
  virtual Result<void> copy_in(std::byte* to, ByteView from) = 0;
  virtual Result<void> copy_out(std::span<std::byte> to, const std::byte* from) = 0;
  /// Notes the device's time in stream order; elapsed_us() waits for the second and gives what lies between.
  virtual Result<void> start_clock() = 0;
  virtual Result<void> stop_clock() = 0;
  virtual Result<double> elapsed_us() = 0;
  /// What this thread enqueues on the stream in between becomes a graph instead of running.
  virtual Result<void> begin_capture() = 0;
  virtual Result<std::unique_ptr<DeviceGraph>> end_capture() = 0;
};

/// Errors: GPU_ABSENT, GPU_UNSUPPORTED, CUDA.
Result<std::unique_ptr<DeviceRuntime>> make_cuda_runtime(unsigned device);

}  // namespace sealring
