#include "tests/gpu/op_log.h"

namespace sealring::cuda::test {
namespace {

__device__ std::uint64_t now_ns() {
  std::uint64_t out;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(out)::"memory");
  return out;
}

// One block.
__global__ void append(const KeyState* state, std::uint32_t segments, const std::byte* wire, OpLog log) {
  if (state->verdict != 0) return;
  const std::uint32_t at = *log.count;
  __syncthreads();
  if (at < log.room) {
    const auto* const from = reinterpret_cast<const std::uint32_t*>(wire);
    auto* const to =
        reinterpret_cast<std::uint32_t*>(log.wires + static_cast<std::uint64_t>(at) * log.wire_bytes);
    for (std::uint32_t i = threadIdx.x; i < log.wire_bytes / 4; i += blockDim.x) to[i] = from[i];
  }
  if (threadIdx.x != 0) return;
  if (at < log.room)
    log.ops[at] = LoggedOp{state->epoch, segments, state->segments - segments, state->seq - 1};
  *log.count = at + 1;
  while (now_ns() - *log.last_ns < log.pace_ns) {
  }
  *log.last_ns = now_ns();
}

}  // namespace

cudaError_t prepare_log() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, append);
}

cudaError_t enqueue_log(const KeyState* state, std::uint32_t segments, const std::byte* wire,
                        const OpLog& log, cudaStream_t stream) {
  append<<<1, 256, 0, stream>>>(state, segments, wire, log);
  return cudaGetLastError();
}

}  // namespace sealring::cuda::test
