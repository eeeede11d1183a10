// From a body to a kernel: key and numbers from device state, the body, the wiping, and the epilogue.
#pragma once

#include <cuda_runtime.h>

#include "sealring/device/cuda/kernel_list.h"
#include "sealring/device/cuda/key_state.h"
#include "sealring/device/cuda/user_memory.h"

namespace sealring::cuda {

template <class Body>
struct KernelShared {
  typename Body::Shared body;
  KeyWords keys[kSlots];  ///< of all slots: read before it is known which one the op takes
  OpDescriptor op;
};

// The whole output of a failed op. [protocol A.5]
__device__ inline void poison_output(const SegmentJob& job, const Chunk& pattern) {
  const std::uint64_t bytes = payload_bytes_of(job);
  const std::uint64_t chunks = bytes / 16;
  for (std::uint64_t i = threadIdx.x; i < chunks; i += blockDim.x)
    store_any(job.combine.dst + i * 16, pattern);
  if (threadIdx.x == 0)
    store_bytes(job.combine.dst + chunks * 16, pattern, static_cast<std::uint32_t>(bytes % 16));
}

// [protocol A.6] What held keys, powers and keystream is cleared, by all warps but the first. A body's `bad`
// is its last member, and public.
template <class Body>
__device__ inline void wipe(KernelShared<Body>& shared) {
  using Shared = typename Body::Shared;
  constexpr std::size_t kFrom = Body::kSecretsFrom, kTo = offsetof(Shared, bad);
  constexpr std::size_t kWhole = kFrom + (kTo - kFrom) / sizeof(Chunk) * sizeof(Chunk);
  static_assert(kFrom % sizeof(Chunk) == 0 && sizeof(Shared) - kTo < sizeof(BadTag) + alignof(Shared));
  constexpr unsigned kThreads = Body::kThreads - kLanes;
  constexpr unsigned kKeyWords = sizeof shared.keys / 4;
  constexpr unsigned kRest = (kTo - kWhole) / 4;
  static_assert(kKeyWords <= kThreads && kRest <= kThreads);
  if (threadIdx.x < kLanes) return;
  const unsigned thread = threadIdx.x - kLanes;
  std::byte* const body = reinterpret_cast<std::byte*>(&shared.body);
  for (std::size_t at = kFrom + thread * sizeof(Chunk); at < kWhole; at += kThreads * sizeof(Chunk))
    store_aligned(body + at, Chunk{});
  if constexpr (kRest != 0) {
    if (thread < kRest) reinterpret_cast<std::uint32_t*>(body + kWhole)[thread] = 0;
  }
  if (thread < kKeyWords) reinterpret_cast<std::uint32_t*>(&shared.keys)[thread] = 0;
}

// Behind a barrier of the block.
template <class Body>
__device__ inline void leave(const SegmentJob& job, KeyState& state, std::uint32_t descriptor,
                             const Chunk& pattern, KernelShared<Body>& shared) {
  OpDescriptor& op = state.descriptors[descriptor % kDescriptors];
  bool last = false;
  if (threadIdx.x == 0) {
    // Of seal: a body that could not work at all.
    if (shared.op.status == 0 && shared.body.bad.refused != 0 &&
        exchange_if(state.verdict, 0, status_of(Code::data_tag)) == 0)
      state.bad_segment = shared.body.bad.first_segment;
    // This block's output and verdict, before it counts as out: the last one may poison. What seal has
    // written nobody reads before the kernel's end.
    if constexpr (Body::kOpen) __threadfence();
    last = atomicAdd(&op.blocks_out, 1u) == gridDim.x - 1;
    if constexpr (Body::kOpen) {
      if (last) __threadfence();
    }
  }
  wipe(shared);  // while the first warp waits
  last = __syncthreads_or(last ? 1 : 0) != 0;
  if (!last) return;
  if constexpr (Body::kOpen) {
    const bool failed = shared.op.status != 0 || *static_cast<volatile std::uint32_t*>(&state.verdict) != 0;
    if (failed && job.combine.dst != nullptr) poison_output(job, pattern);
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  store_fresh(op.blocks_out, 0);
  end_op(state, shared.op);
}

template <class Body>
__global__ void __launch_bounds__(Body::kThreads, Body::kBlocks)
    segments_kernel(const __grid_constant__ SegmentJob job, KeyState* const state,
                    const std::uint32_t descriptor, const Chunk pattern) {
  extern __shared__ __align__(1024) unsigned char raw[];
  KernelShared<Body>& shared = *reinterpret_cast<KernelShared<Body>*>(raw);
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();  // the next op's prologue may be launched; it waits for the end
                                              // of this op
  cudaGridDependencySynchronize();            // the prologue is done
#endif
  static_assert(sizeof(KeyWords) % 4 == 0 && sizeof(OpDescriptor) % 4 == 0 && Body::kThreads >= 128);
  constexpr unsigned kKeyWords = sizeof(KeyWords) / 4;
  constexpr unsigned kOpWords = sizeof(OpDescriptor) / 4;
  const unsigned thread = threadIdx.x;
  if (thread < kSlots * kKeyWords) {
    reinterpret_cast<std::uint32_t*>(&shared.keys[thread / kKeyWords])[thread % kKeyWords] = fresh(
        reinterpret_cast<const std::uint32_t*>(&state->slots[thread / kKeyWords].words)[thread % kKeyWords]);
  } else if (thread >= 96 && thread < 96 + kOpWords) {
    reinterpret_cast<std::uint32_t*>(&shared.op)[thread - 96] =
        reinterpret_cast<const std::uint32_t*>(&state->descriptors[descriptor % kDescriptors])[thread - 96];
  } else if (thread == 127) {
    shared.body.bad = BadTag{};
    forget_cached(state->verdict);
  }
  static_assert(kSlots * kKeyWords <= 96 && kOpWords < 31);
  __syncthreads();
  if (shared.op.status == 0) {
    DeviceBlock block;
    Body::run(block, shared.body, job, shared.op.view, shared.keys[shared.op.slot % kSlots],
              Column{blockIdx.x, gridDim.x});
  }
  leave<Body>(job, *state, descriptor, pattern, shared);
}

/// The list entry of a body.
template <class Body>
KernelEntry entry_of(Suite suite, CombineKind combine, std::uint32_t segment_max,
                     std::uint32_t private_step) {
  KernelEntry out;
  out.suite = suite;
  out.direction = Body::kOpen ? Direction::open : Direction::seal;
  out.combine = combine;
  out.segment_max = segment_max;
  out.private_step = private_step;
  if constexpr (requires { Body::kSmall; }) out.small = true;
  out.threads = Body::kThreads;
  out.blocks = Body::kBlocks;
  out.shared_bytes = sizeof(KernelShared<Body>);
  out.kernel = reinterpret_cast<const void*>(&segments_kernel<Body>);
  return out;
}

}  // namespace sealring::cuda
