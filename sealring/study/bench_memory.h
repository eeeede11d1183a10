// BenchMemory: the input and output of a benchmarked operation, in host memory or on one GPU.
#pragma once

#include <memory>

#include "sealring/base/bytes.h"
#include "sealring/device/device_runtime.h"
#include "sealring/study/bench_spec.h"

namespace sealring {

/// Both buffers grow and never shrink; growing invalidates their addresses. Used by one thread.
class BenchMemory {
 public:
  virtual ~BenchMemory() = default;
  virtual Result<void> reserve(std::uint64_t in_bytes, std::uint64_t out_bytes) = 0;
  virtual std::byte* in() = 0;
  virtual std::byte* out() = 0;
  /// Copies that have ended when they return.
  virtual Result<void> write(std::byte* to, ByteView from) = 0;
  virtual Result<void> read(std::span<std::byte> to, const std::byte* from) = 0;
  /// Null in host memory.
  virtual DeviceRuntime* runtime() = 0;
};

/// On the GPU of `local_rank` when spec.cuda, else host memory. Errors: GPU_ABSENT, GPU_UNSUPPORTED, CUDA.
Result<std::unique_ptr<BenchMemory>> make_bench_memory(const BenchSpec& spec, unsigned local_rank);

/// The CUDA ordinal that a rank uses.
unsigned gpu_of_rank(const BenchSpec& spec, unsigned local_rank);

}  // namespace sealring
