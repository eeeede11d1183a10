#include <cuda_runtime.h>

#include "sealring/device/cuda/errors.h"
#include "sealring/device/cuda/launched.h"
#include "sealring/device/cuda/nccl_marks.h"

namespace sealring::cuda {
namespace {

// Exchanges follow one another in one order, so nobody else counts at the same time.
__global__ void mark_kernel(std::uint64_t* const count) { *count += 1; }

__global__ void verdict_kernel(GroupState* const state, const std::uint32_t code) {
  if (threadIdx.x == 0) set_verdict(state->verdict, GroupVerdict{code, 0, 0});
  __syncthreads();
  if (threadIdx.x < state->ranks) spread_verdict(*state, threadIdx.x);
}

}  // namespace

Result<void> load_nccl_marks() {
  SR_TRY(load_kernel(reinterpret_cast<const void*>(&mark_kernel)));
  return load_kernel(reinterpret_cast<const void*>(&verdict_kernel));
}

Result<void> enqueue_mark(NcclMarks* marks, NcclMark which, void* stream) {
  std::uint64_t* const count = which == NcclMark::begun ? &marks->begun : &marks->ended;
  mark_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(count);
  return checked(cudaGetLastError(), "launch");
}

Result<void> enqueue_verdict(GroupState* state, Code code, void* stream) {
  verdict_kernel<<<1, kGroupRanksMax, 0, static_cast<cudaStream_t>(stream)>>>(state, status_of(code));
  return checked(cudaGetLastError(), "launch");
}

}  // namespace sealring::cuda
