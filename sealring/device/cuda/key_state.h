// Keys, epochs and numbers on the device: the one authority for them, for eager and for replayed ops alike.
//
// KeyState lies in private device memory (never a kernel argument, never constant memory). A prologue of one
// thread reserves an op's numbers and writes its descriptor, which is all that the op's blocks read; the op's
// last block out is its epilogue [protocol A.3, "On CUDA"]. The functions here run on the host too, where
// tests drive them.
#pragma once

#include <cstdint>

#include "sealring/base/error.h"
#include "sealring/device/cuda/segment_job.h"
#include "sealring/wire/nonce_sequence.h"

namespace sealring::cuda {

inline constexpr std::uint32_t kSlots = 4;
inline constexpr std::uint32_t kDescriptors = 64;

enum class SlotState : std::uint32_t { empty = 0, live = 1, free = 2 };

/// Epoch e lies in slot e mod 4.
struct KeySlot {
  Epoch epoch;
  std::uint32_t state;
  KeyWords words;
  std::uint32_t canary;
};
SR_HOST_DEVICE constexpr std::uint32_t canary_of(Epoch epoch) { return 0x5EA1C0DEu ^ (epoch * 0x9E3779B9u); }

enum class Numbers : std::uint32_t {
  seal_next,  ///< the device decides: rotation, number, seq (what a captured graph replays)
  open_next,  ///< the receiver's counters, which advance alike
  seal_at,    ///< a permit of the host: must be the device's own next number
  open_at,    ///< numbers that the host names; none is spent
};

struct OpRequest {
  Numbers numbers = Numbers::seal_next;
  std::uint32_t descriptor = 0;
  std::uint32_t segments = 1;
  std::uint64_t payload_bytes = 0;
  Epoch epoch = 0;                 ///< *_at
  std::uint64_t first_number = 0;  ///< *_at
  std::uint64_t seq = 0;           ///< *_at
};

struct OpDescriptor {
  OpView view;
  std::uint32_t slot;
  std::uint32_t status;  ///< a Code; 0: go
  std::uint32_t holds;   ///< this op holds in_use
  std::uint32_t frees;   ///< 1 + slot that its epilogue marks free
  std::uint32_t blocks_out;
};

struct KeyState {
  KeySlot slots[kSlots];
  KeyBudget budget;
  std::uint32_t in_use;
  std::uint32_t verdict;      ///< a Code, sticky: the first error
  std::uint32_t bad_segment;  ///< of the first DATA_TAG: place in its job
  Epoch epoch;
  std::uint64_t segments, bytes, ops;  ///< under the key of `epoch`
  std::uint64_t seq;
  OpDescriptor descriptors[kDescriptors];
};

/// Returns the old value.
SR_HOST_DEVICE inline std::uint32_t exchange_if(std::uint32_t& at, std::uint32_t expected,
                                                std::uint32_t value) {
#if defined(__CUDA_ARCH__)
  return atomicCAS(&at, expected, value);
#else
  const std::uint32_t old = at;
  if (old == expected) at = value;
  return old;
#endif
}

/// A word that a copy by the host, or a kernel beside this one, may change: not from one multiprocessor's own
/// cache.
template <class Word>
SR_HOST_DEVICE inline Word fresh(const Word& at) {
#if defined(__CUDA_ARCH__)
  return __ldcg(&at);
#else
  return at;
#endif
}

/// What other kernels of this multiprocessor have read before is not read again from its cache: the key in a
/// slot, and what was made of it, may have been replaced by the host since then. The word itself is of no
/// interest.
SR_HOST_DEVICE inline void forget_cached([[maybe_unused]] const std::uint32_t& at) {
#if defined(__CUDA_ARCH__)
  [[maybe_unused]] std::uint32_t word;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(&at) : "memory");
#endif
}

/// A word read here: neither kept from before nor put off behind a branch, where it would be waited for
/// once more.
template <class Word>
SR_HOST_DEVICE inline Word read_here(const Word& at) {
  return *static_cast<const volatile Word*>(&at);
}

/// The same for a word that others may read meanwhile.
SR_HOST_DEVICE inline void store_fresh(std::uint32_t& at, std::uint32_t value) {
  *static_cast<volatile std::uint32_t*>(&at) = value;
}

SR_HOST_DEVICE constexpr std::uint32_t status_of(Code code) { return static_cast<std::uint32_t>(code); }

/// All that the prologue decides by, read at once: each further dependent read would cost the small messages
/// a microsecond.
struct StateView {
  std::uint32_t verdict;
  Epoch epoch;
  std::uint64_t segments, bytes, ops, seq;
  KeyBudget budget;
  Epoch slot_epoch[kSlots];
  std::uint32_t slot_state[kSlots], slot_canary[kSlots];

  SR_HOST_DEVICE bool live(Epoch wanted) const {
    bool out = false;
#pragma unroll
    for (std::uint32_t i = 0; i < kSlots; ++i) {
      // Not && nor ||: a branch each would cost the prologue's one thread more than it saves.
      out = out | ((i == wanted % kSlots) & (slot_state[i] == static_cast<std::uint32_t>(SlotState::live)) &
                   (slot_epoch[i] == wanted) & (slot_canary[i] == canary_of(wanted)));
    }
    return out;
  }
};
SR_HOST_DEVICE inline StateView view_of(const KeyState& state) {
  StateView out;
  // First: what is read behind it may be newer, and then `seq` is found to have grown.
  out.seq = read_here(state.seq);
  out.verdict = read_here(state.verdict);
  out.epoch = read_here(state.epoch);
  out.segments = read_here(state.segments);
  out.bytes = read_here(state.bytes);
  out.ops = read_here(state.ops);
  out.budget.bytes_rotate = read_here(state.budget.bytes_rotate);
  out.budget.segments_rotate = read_here(state.budget.segments_rotate);
  out.budget.ops_rotate = read_here(state.budget.ops_rotate);
  out.budget.bytes_max = read_here(state.budget.bytes_max);
  out.budget.segments_max = read_here(state.budget.segments_max);
#pragma unroll
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    out.slot_epoch[i] = read_here(state.slots[i].epoch);
    out.slot_state[i] = read_here(state.slots[i].state);
    out.slot_canary[i] = read_here(state.slots[i].canary);
  }
  return out;
}

namespace key_state_internal {

/// Rotation and limits of an op whose numbers the device gives out. [protocol A.3] `seq`: of the state, read
/// behind the taking of it.
SR_HOST_DEVICE inline std::uint32_t reserve(KeyState& state, const StateView& now, bool taken,
                                            std::uint64_t seq, const OpRequest& request, OpDescriptor& op) {
  const KeyBudget& budget = now.budget;
  const bool named = request.numbers == Numbers::seal_at;
  const bool due = (now.bytes >= budget.bytes_rotate) | (now.segments >= budget.segments_rotate) |
                   (now.ops >= budget.ops_rotate);
  const bool rotates = due & !named;
  const Epoch epoch = now.epoch + (rotates ? 1 : 0);
  const std::uint64_t segments = rotates ? 0 : now.segments;
  const std::uint64_t bytes = rotates ? 0 : now.bytes;
  const std::uint64_t ops = rotates ? 0 : now.ops;
  const bool fits = now.live(epoch) & (segments <= budget.segments_max) &
                    (request.segments <= budget.segments_max - segments) & (bytes <= budget.bytes_max) &
                    (request.payload_bytes <= budget.bytes_max - bytes);
  // Another op holds the state, or has had it between the read and the exchange: `seq` only grows.
  if (!taken || seq != now.seq) return status_of(Code::seq_reuse_guard);
  if (!fits) return status_of(Code::key_limit);
  if (named && (request.epoch != epoch || request.first_number != segments))
    return status_of(Code::seq_reuse_guard);
  op.view = OpView{epoch, segments, named ? request.seq : now.seq};
  op.slot = epoch % kSlots;
  op.frees = rotates ? 1 + now.epoch % kSlots : 0;
  // Reserve first, seal after.
  state.epoch = epoch;
  state.segments = segments + request.segments;
  state.bytes = bytes + request.payload_bytes;
  state.ops = ops + 1;
  state.seq = now.seq + 1;
  return 0;
}

}  // namespace key_state_internal

/// Takes a state for an op that reserves numbers; true: no other op holds it. What is read of the state
/// behind this is not from before.
SR_HOST_DEVICE inline bool take_state(KeyState& state) {
#if defined(__CUDA_ARCH__)
  std::uint32_t old;
  asm volatile("atom.acquire.gpu.global.cas.b32 %0, [%1], 0, 1;" : "=r"(old) : "l"(&state.in_use) : "memory");
  return old == 0;
#else
  return exchange_if(state.in_use, 0, 1) == 0;
#endif
}

/// The prologue: one thread, in stream order before the op's kernel. On any refusal the op seals nothing.
/// `now`: the state as it was read behind the op before. `taken`: by take_state(), where numbers are
/// reserved. Gives what the op's blocks find in its descriptor.
SR_HOST_DEVICE inline OpDescriptor begin_op(KeyState& state, const StateView& now, bool taken,
                                            const OpRequest& request) {
  // On its way while the state is looked at.
  std::uint64_t seq = 0;
  if (taken) seq = read_here(state.seq);
  OpDescriptor op{};
  op.status = now.verdict;
  op.holds = taken ? 1 : 0;
  if (op.status != 0) {
    // Nothing more is sealed.
  } else if (request.numbers == Numbers::open_at) {
    op.status = now.live(request.epoch) ? 0 : status_of(Code::key_limit);
    op.view = OpView{request.epoch, request.first_number, request.seq};
    op.slot = request.epoch % kSlots;
  } else {
    op.status = key_state_internal::reserve(state, now, taken, seq, request, op);
  }
  OpDescriptor& at = state.descriptors[request.descriptor % kDescriptors];
  if (op.status != 0) {
    op.frees = 0;  // the epoch was not entered
    exchange_if(state.verdict, 0, op.status);
  }
  if (op.status != 0 && op.holds == 0) {
    // The op that holds the state may be running out of this descriptor, as a graph's does that was launched
    // twice: its blocks find its numbers, or that they may not use them, and never others.
    at.status = op.status;
    at.frees = 0;
    return op;
  }
  at = op;
  return op;
}
SR_HOST_DEVICE inline OpDescriptor begin_op(KeyState& state, const OpRequest& request) {
  const bool taken = request.numbers != Numbers::open_at && take_state(state);
  const StateView now = view_of(state);
  return begin_op(state, now, taken, request);
}

/// What the op's last block does when everybody else is out, but for the poisoning: it stores, and reads
/// nothing. `op`: as begin_op() gave it.
SR_HOST_DEVICE inline void end_op(KeyState& state, const OpDescriptor& op) {
  if (op.frees != 0) state.slots[op.frees - 1].state = static_cast<std::uint32_t>(SlotState::free);
  if (op.holds != 0) store_fresh(state.in_use, 0);
}

}  // namespace sealring::cuda
