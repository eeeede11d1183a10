// From the fused body to a kernel: the fabric of a GPU, and the entry of the list.
#pragma once

#include <cuda_runtime.h>

#include "sealring/device/cuda/fused.h"
#include "sealring/device/cuda/fused_body.h"

namespace sealring::cuda {

/// Words in device memory that another GPU may write. One thread of a block calls at a time; the barriers of
/// the block order its other threads with it.
class DeviceFabric {
 public:
  SR_HOST_DEVICE explicit DeviceFabric(const FusedState& state) : state_(state) {}

  SR_HOST_DEVICE std::uint32_t wait([[maybe_unused]] const std::byte* word,
                                    [[maybe_unused]] std::uint64_t expected) const {
#if defined(__CUDA_ARCH__)
    for (std::uint32_t looks = 1;; ++looks) {
      std::uint64_t value = 0;
      asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
      if (value == expected) return 0;
      if (value == kPoison) return status_of(Code::aborted);
      if (looks % 256 != 0) continue;
      if (const std::uint32_t verdict = verdict_of(state_); verdict != 0) return verdict;
      if (aborted(state_)) return status_of(Code::aborted);
      if (now_ns() >= state_.deadline_ns) return status_of(Code::timeout);
      __nanosleep(50);
    }
#else
    return 0;
#endif
  }
  /// [protocol E.3] Behind all that the block wrote before.
  SR_HOST_DEVICE void post([[maybe_unused]] std::byte* word, [[maybe_unused]] std::uint64_t value) const {
#if defined(__CUDA_ARCH__)
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
#endif
  }
  SR_HOST_DEVICE static std::uint64_t now_ns() {
    std::uint64_t now = 0;
#if defined(__CUDA_ARCH__)
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
#endif
    return now;
  }

 private:
  const FusedState& state_;
};

template <class Body>
__global__ void __launch_bounds__(Body::kThreads, Body::kBlocks)
    fused_kernel(const __grid_constant__ typename Body::Job job, FusedState* const state,
                 const Chunk pattern) {
  extern __shared__ __align__(1024) unsigned char raw[];
  typename Body::Shared& shared = *reinterpret_cast<typename Body::Shared*>(raw);
  DeviceBlock block;
  DeviceFabric fabric(*state);
  Body::run(block, shared, fabric, job, gridDim.x, *state, pattern);
}

template <class Body>
FusedEntry fused_entry(CombineKind combine) {
  return FusedEntry{combine,
                    Body::kLinks,
                    Body::kThreads,
                    Body::kBlocks,
                    sizeof(typename Body::Shared),
                    reinterpret_cast<const void*>(&fused_kernel<Body>)};
}

template <CombineKind kCombine>
void add_fused(std::vector<FusedEntry>& list) {
  list.push_back(fused_entry<FusedSingle<kCombine>>(kCombine));
}
template <CombineKind kCombine>
void add_fused_many(std::vector<FusedEntry>& list) {
  list.push_back(fused_entry<FusedMany<kCombine>>(kCombine));
}

}  // namespace sealring::cuda
