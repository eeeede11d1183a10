// From the fused body to a kernel: the fabric of a GPU, and the entry of the list.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "sealring/device/cuda/fused.h"
#include "sealring/device/cuda/fused_body.h"
#include "sealring/device/cuda/fused_gcm.h"
#include "sealring/device/cuda/fused_small.h"

namespace sealring::cuda {

/// Words in device memory that another GPU may write. Any thread; the barriers of its block or team order the
/// others with it.
class DeviceFabric {
 public:
  SR_HOST_DEVICE explicit DeviceFabric(const FusedState& state) : state_(state) {}

  /// 0: go on looking.
  SR_HOST_DEVICE std::uint32_t given_up() const {
#if defined(__CUDA_ARCH__)
    if (const std::uint32_t verdict = verdict_of(state_); verdict != 0) return verdict;
    if (aborted(state_)) return status_of(Code::aborted);
    if (now_ns() >= state_.deadline_ns) return status_of(Code::timeout);
    __nanosleep(50);
#endif
    return 0;
  }
  SR_HOST_DEVICE std::uint32_t wait([[maybe_unused]] const std::byte* word,
                                    [[maybe_unused]] std::uint64_t expected) const {
#if defined(__CUDA_ARCH__)
    for (std::uint32_t looks = 1;; ++looks) {
      std::uint64_t value = 0;
      asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
      if (value == expected) return 0;
      if (value == kPoison) return status_of(Code::aborted);
      if (looks % 256 != 0) continue;
      if (const std::uint32_t code = given_up(); code != 0) return code;
    }
#else
    return 0;
#endif
  }
  /// Whether a word is there already.
  SR_HOST_DEVICE bool there([[maybe_unused]] const std::byte* word,
                            [[maybe_unused]] std::uint64_t expected) const {
#if defined(__CUDA_ARCH__)
    std::uint64_t value = 0;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value == expected;
#else
    return false;
#endif
  }
  /// [protocol E.3] Behind all that the block wrote before.
  SR_HOST_DEVICE void post([[maybe_unused]] std::byte* word, [[maybe_unused]] std::uint64_t value) const {
#if defined(__CUDA_ARCH__)
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
#endif
  }
  /// A line of a small step (fused_small.h): 16 bytes at once, in no order with others. Any thread.
  SR_HOST_DEVICE void send_line([[maybe_unused]] std::byte* at, [[maybe_unused]] const Chunk& line) const {
#if defined(__CUDA_ARCH__)
    const std::uint64_t low = line.words[0] | static_cast<std::uint64_t>(line.words[1]) << 32;
    const std::uint64_t high = line.words[2] | static_cast<std::uint64_t>(line.words[3]) << 32;
    asm volatile(
        "{ .reg .b128 line; mov.b128 line, {%1, %2}; st.relaxed.sys.global.b128 [%0], line; }" ::"l"(at),
        "l"(low), "l"(high)
        : "memory");
#endif
  }
  /// Loads each line that is wanted once; a bit each for those that carry the number, which `found` has then.
  /// That load is the only one of the line whose bytes are used. [protocol E.1] Any thread.
  SR_HOST_DEVICE std::uint32_t find_lines([[maybe_unused]] const LinesOfALane& look,
                                          [[maybe_unused]] Chunk (&found)[kLinesOfALane]) const {
    std::uint32_t got = 0;
#if defined(__CUDA_ARCH__)
    std::uint64_t low[kLinesOfALane] = {}, high[kLinesOfALane] = {};
#pragma unroll
    for (std::uint32_t i = 0; i < kLinesOfALane; ++i) {
      asm volatile(
          "{ .reg .pred wanted; .reg .b128 line; setp.ne.u32 wanted, %3, 0; mov.b128 line, {%0, %1}; "
          "@wanted ld.relaxed.sys.global.b128 line, [%2]; mov.b128 {%0, %1}, line; }"
          : "+l"(low[i]), "+l"(high[i])
          : "l"(look.at(i)), "r"(look.wanted >> i & 1)
          : "memory");
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kLinesOfALane; ++i) {
      const auto carried = static_cast<std::uint32_t>(high[i] >> 32);
      found[i] = Chunk{{static_cast<std::uint32_t>(low[i]), static_cast<std::uint32_t>(low[i] >> 32),
                        static_cast<std::uint32_t>(high[i]), carried}};
      got |= ((look.wanted >> i & 1) != 0 && carried == look.number ? 1u : 0u) << i;
    }
#endif
    return got;
  }
  /// After a look in vain: 0, or the Code to leave with; `poison_word` may have POISON.
  SR_HOST_DEVICE std::uint32_t look_again([[maybe_unused]] std::uint32_t looks,
                                          [[maybe_unused]] const std::byte* poison_word) const {
#if defined(__CUDA_ARCH__)
    if (looks % 256 != 0) return 0;
    std::uint64_t word = 0;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(poison_word) : "memory");
    if (word == kPoison) return status_of(Code::aborted);
    return given_up();
#else
    return 0;
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

/// A block has kTeams teams, each with a column at a time. kInTurn: where there are fewer teams than columns,
/// they go on with the columns that are left, as blocks would that had to wait for room. (Else there is a
/// block a column; the loop costs registers.)
template <class Body, int kTeams, bool kInTurn>
__global__ void __launch_bounds__(Body::kThreads* kTeams, kTeams == 1 ? Body::kBlocks : 1)
    fused_kernel(const __grid_constant__ typename Body::Job job, FusedState* const state,
                 const Chunk pattern) {
  static_assert(kTeams <= TeamBarriers::kTeamsMax);
  extern __shared__ __align__(1024) unsigned char raw[];
  typename Body::Shared& shared =
      reinterpret_cast<typename Body::Shared*>(raw)[kTeams == 1 ? 0 : threadIdx.y];
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();  // the next step's prologue may wait for this kernel's end
  cudaGridDependencySynchronize();            // the prologue is done
#endif
  std::conditional_t<kTeams == 1, DeviceBlock, DeviceTeam> block;
  DeviceFabric fabric(*state);
  if constexpr (requires { Body::kReadsGcmKey; }) forget_cached(state->verdict);
  if constexpr (kInTurn) {
    const std::uint32_t units = job.units();
    // To all blocks one before any block gets two.
    for (std::uint32_t i = threadIdx.y * gridDim.x + blockIdx.x; i < units; i += gridDim.x * kTeams)
      Body::run(block, shared, fabric, job, *state, pattern);
  } else {
    static_assert(kTeams == 1);
    Body::run(block, shared, fabric, job, *state, pattern);
  }
}

template <class Body, int kTeams = 1, bool kInTurn = true>
FusedEntry fused_entry(CombineKind combine) {
  FusedEntry out;
  out.combine = combine;
  out.links = Body::kLinks;
  out.threads = Body::kThreads;
  out.teams = kTeams;
  out.shared_bytes = kTeams * sizeof(typename Body::Shared);
  out.kernel = reinterpret_cast<const void*>(&fused_kernel<Body, kTeams, kInTurn>);
  return out;
}

template <CombineKind kCombine>
void add_fused(std::vector<FusedEntry>& list) {
  list.push_back(fused_entry<FusedSingle<kCombine>, 1, false>(kCombine));
}
template <CombineKind kCombine>
void add_fused_teams(std::vector<FusedEntry>& list) {
  using Body = FusedSingle<kCombine>;
  static_assert(Body::kBlocks == kFusedTeams);
  list.push_back(fused_entry<Body, kFusedTeams>(kCombine));
}
template <CombineKind kCombine>
void add_fused_small(std::vector<FusedEntry>& list) {
  FusedEntry entry = fused_entry<FusedSmall<kCombine>>(kCombine);
  entry.small = true;
  list.push_back(entry);
}
template <CombineKind kCombine>
void add_fused_gcm(std::vector<FusedEntry>& list) {
  using Body = FusedGcm<kCombine>;
  static_assert(sizeof(typename Body::Shared) <= kGcmSharedBytes);
  list.push_back(fused_entry<Body>(kCombine));
}
template <CombineKind kCombine>
void add_fused_many(std::vector<FusedEntry>& list) {
  list.push_back(fused_entry<FusedMany<kCombine>>(kCombine));
}

}  // namespace sealring::cuda
