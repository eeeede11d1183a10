#include <cuda_runtime.h>

#include <algorithm>

#include "sealring/device/bulk_cipher.h"
#include "sealring/device/cuda/errors.h"
#include "sealring/device/cuda/gate.h"
#include "sealring/device/cuda/launched.h"
#include "sealring/device/cuda/reduce_body.h"

namespace sealring::cuda {
namespace {

/// Words in device memory that another GPU may write, or has.
class GateFabric {
 public:
  SR_HOST_DEVICE std::uint64_t load([[maybe_unused]] const std::byte* word) const {
    std::uint64_t value = 0;
#if defined(__CUDA_ARCH__)
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
#endif
    return value;
  }
  SR_HOST_DEVICE void post([[maybe_unused]] std::byte* word, [[maybe_unused]] std::uint64_t value) const {
#if defined(__CUDA_ARCH__)
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
#endif
  }
  SR_HOST_DEVICE std::uint64_t now_ns() const {
    std::uint64_t now = 0;
#if defined(__CUDA_ARCH__)
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
#endif
    return now;
  }
  SR_HOST_DEVICE void pause() const {
#if defined(__CUDA_ARCH__)
    __nanosleep(50);
#endif
  }
};

__global__ void __launch_bounds__(GateBody::kThreadsMax)
    gate_kernel(GroupState* const state, const GateJob job) {
  __shared__ GateBody::Shared shared;
  DeviceBlock block;
  GateFabric fabric;
  GateBody::run(block, shared, fabric, *state, job);
}

constexpr unsigned kEndThreads = 256;

__global__ void __launch_bounds__(kEndThreads) end_kernel(GroupState* const state, std::byte* const output,
                                                          const std::uint64_t bytes, const Chunk pattern) {
  // All blocks see the same: whoever could have set a verdict has ended.
  __shared__ std::uint32_t failed;
  if (threadIdx.x == 0) failed = 0;
  __syncthreads();
  if (threadIdx.x < state->ranks) {
    const GroupVerdict found = look_at(*state, threadIdx.x);
    if (found.code != 0) {
      set_verdict(state->verdict, found);
      failed = 1;
    }
  }
  __syncthreads();
  if (failed == 0) return;
  if (threadIdx.x < state->ranks) spread_verdict(*state, threadIdx.x);
  const std::uint64_t index = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  fill_chunks(output, bytes, pattern, index, std::uint64_t{gridDim.x} * blockDim.x);
}

}  // namespace

Result<void> load_gates() {
  SR_TRY(load_kernel(reinterpret_cast<const void*>(&gate_kernel)));
  return load_kernel(reinterpret_cast<const void*>(&end_kernel));
}

Result<void> enqueue_gate(GroupState* state, const GateJob& job, void* stream) {
  GateJob copy = job;
  void* arguments[] = {&state, &copy};
  return checked(
      cudaLaunchKernel(reinterpret_cast<const void*>(&gate_kernel), dim3(1), dim3(GateBody::kThreadsMax),
                       arguments, 0, static_cast<cudaStream_t>(stream)),
      "launch");
}

Result<void> enqueue_end(GroupState* state, DType dtype, std::span<std::byte> output, void* stream) {
  Chunk pattern;
  poison(dtype, {reinterpret_cast<std::byte*>(&pattern), sizeof pattern});
  std::byte* memory = output.data();
  std::uint64_t bytes = output.size();
  // A block a MiB: only a failed op has anything to write.
  const auto blocks = static_cast<unsigned>(std::clamp<std::uint64_t>(bytes >> 20, 1, 64));
  void* arguments[] = {&state, &memory, &bytes, &pattern};
  // In plain stream order: blocks that waited here for the op's kernel would keep the multiprocessors from
  // taking columns of other ranks that share the device.
  return checked(cudaLaunchKernel(reinterpret_cast<const void*>(&end_kernel), dim3(blocks), dim3(kEndThreads),
                                  arguments, 0, static_cast<cudaStream_t>(stream)),
                 "launch");
}

}  // namespace sealring::cuda
