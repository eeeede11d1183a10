// A rank's own state of the fused path, in private device memory: verdict, tickets, and what the prologue
// decided for the op that runs. The functions here run on the host too, where tests drive them.
#pragma once

#include <cstdint>

#include "sealring/device/cuda/fused_window.h"
#include "sealring/device/cuda/key_state.h"
#include "sealring/device/cuda/segment_job.h"

namespace sealring::cuda {

inline constexpr std::uint32_t kFusedColumnsMax = 1024;

struct FusedState {
  std::uint32_t verdict;      ///< a Code, sticky: the first error
  std::uint32_t bad_segment;  ///< of a DATA_TAG: place in its record
  std::uint32_t abort;        ///< not 0: whoever waits leaves with ABORTED
  std::uint32_t next_column;  ///< columns take their numbers here when they start
  std::uint32_t columns_out;
  // The op that runs:
  std::uint32_t status;  ///< a Code; 0: go
  std::uint32_t begun;   ///< both keys have reserved
  std::uint32_t out_slot, in_slot;
  OpView out, in;
  std::uint64_t deadline_ns;
  std::uint64_t timeout_ns;  ///< of each op
  std::uint64_t tickets[kFusedColumnsMax];
};

/// `push`: my input into the peer's window, under the key from me to the peer. `pull`: out of my window into
/// my output, combined with my input. Both cut the tensor alike, and the same column handles both of a
/// segment, so input and output may be the same memory. `wire` is the window's first byte.
struct FusedJob {
  SegmentJob push, pull;
  WindowShape shape;
};

/// Returns the old value; what this thread did before is seen by who counts later.
SR_HOST_DEVICE inline std::uint32_t count_one(std::uint32_t& at) {
#if defined(__CUDA_ARCH__)
  __threadfence();
  const std::uint32_t old = atomicAdd(&at, 1u);
  __threadfence();
  return old;
#else
  return at++;
#endif
}

SR_HOST_DEVICE inline std::uint32_t verdict_of(const FusedState& state) {
  return *static_cast<const volatile std::uint32_t*>(&state.verdict);
}

/// The prologue: one thread, before the op's kernel. Reserves the numbers of both directions; on any refusal
/// the op seals nothing. [protocol A.3]
SR_HOST_DEVICE inline void begin_fused(FusedState& state, KeyState& out, KeyState& in, OpRequest request,
                                       std::uint64_t now_ns) {
  state.begun = 0;
  state.status = state.verdict;
  state.deadline_ns = now_ns + state.timeout_ns;
  if (state.status != 0) return;
  request.numbers = Numbers::seal_next;
  begin_op(out, request);
  request.numbers = Numbers::open_next;
  begin_op(in, request);
  state.begun = 1;
  const OpDescriptor& push = out.descriptors[request.descriptor % kDescriptors];
  const OpDescriptor& pull = in.descriptors[request.descriptor % kDescriptors];
  state.status = push.status != 0 ? push.status : pull.status;
  state.out = push.view;
  state.in = pull.view;
  state.out_slot = push.slot;
  state.in_slot = pull.slot;
  if (state.status != 0) exchange_if(state.verdict, 0, state.status);
}

/// What the last column does when all others are out, but for the poisoning.
SR_HOST_DEVICE inline void end_fused(FusedState& state, KeyState& out, KeyState& in,
                                     std::uint32_t descriptor) {
  state.next_column = 0;
  state.columns_out = 0;
  if (state.verdict != 0) {  // nothing more is sealed or opened under these keys
    exchange_if(out.verdict, 0, state.verdict);
    exchange_if(in.verdict, 0, state.verdict);
  }
  if (state.begun == 0) return;
  state.begun = 0;
  end_op(out, out.descriptors[descriptor % kDescriptors]);
  end_op(in, in.descriptors[descriptor % kDescriptors]);
}

}  // namespace sealring::cuda
