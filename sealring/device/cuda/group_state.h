// A group's own state on one GPU, in private device memory: verdict, tickets, and where everybody's windows
// and keys are. How a rank's window is laid out. Host and device.
//
// A window has, for each peer, kWireSlots slots that the peer alone seals into, and two words a slot: a flag,
// that the peer posts behind what it sealed into the slot, and a credit, that the peer posts when it has
// opened what I sealed into the same slot of its window. What words are worth stands in fused_window.h:
// hints, compared for equality with what this rank has counted itself [protocol E.3].
//
// Tickets count, for each ordered pair and slot, the chunks that were sent and taken, in private memory,
// alike on both ends: a slot may be sealed into when its credit is the ticket; its flag is then ticket + 1.
// Which slot a chunk takes is decided when it is enqueued, the counts by the device when it runs, so that a
// replayed graph continues them.
#pragma once

#include <cstdint>

#include "sealring/device/cuda/fused_state.h"
#include "sealring/device/cuda/fused_window.h"
#include "sealring/device/cuda/key_state.h"
#include "sealring/device/cuda/move_plan.h"

namespace sealring::cuda {

/// A window of one rank of `ranks`: slots, then flags, then credits.
struct WireShape {
  std::uint32_t ranks = 2;
  std::uint64_t slot_bytes = 0;

  SR_HOST_DEVICE static constexpr WireShape of(std::uint32_t ranks, std::uint64_t slot_bytes) {
    return WireShape{ranks, slot_bytes};
  }
  /// `owner`'s window, `peer`'s part of it.
  SR_HOST_DEVICE constexpr std::uint64_t index(std::uint32_t owner, std::uint32_t peer,
                                               std::uint32_t slot) const {
    return std::uint64_t{peer < owner ? peer : peer - 1} * kWireSlots + slot;
  }
  SR_HOST_DEVICE constexpr std::uint64_t slots() const { return std::uint64_t{ranks - 1} * kWireSlots; }
  SR_HOST_DEVICE constexpr std::uint64_t slot_offset(std::uint32_t owner, std::uint32_t peer,
                                                     std::uint32_t slot) const {
    return index(owner, peer, slot) * slot_bytes;
  }
  SR_HOST_DEVICE constexpr std::uint64_t flag_offset(std::uint32_t owner, std::uint32_t peer,
                                                     std::uint32_t slot) const {
    return slots() * slot_bytes + index(owner, peer, slot) * kWordBytes;
  }
  SR_HOST_DEVICE constexpr std::uint64_t credit_offset(std::uint32_t owner, std::uint32_t peer,
                                                       std::uint32_t slot) const {
    return slots() * (slot_bytes + kWordBytes) + index(owner, peer, slot) * kWordBytes;
  }
  SR_HOST_DEVICE constexpr std::uint64_t bytes() const { return slots() * (slot_bytes + 2 * kWordBytes); }
};

struct GroupState {
  GroupVerdict verdict;
  std::uint32_t abort;  ///< not 0: whoever waits leaves with ABORTED
  std::uint32_t ranks, rank;
  std::uint64_t timeout_ns;      ///< of each wait
  KeyState* to[kGroupRanksMax];  ///< keys; null: none (mine, suite plain)
  KeyState* from[kGroupRanksMax];
  std::byte* windows[kGroupRanksMax];  ///< mine, and the peers' as this process reaches them; null: none
  const FusedState* fused;             ///< of the fused steps; null: none
  WireShape shape;
  std::uint64_t sent[kGroupRanksMax][kWireSlots], taken[kGroupRanksMax][kWireSlots];
};

SR_HOST_DEVICE inline std::uint32_t fresh_word(const std::uint32_t& at) {
  return *static_cast<const volatile std::uint32_t*>(&at);
}

/// The first error that this rank's keys to and from `peer` have met; the group's own first, then that of its
/// fused steps, which know whom it concerns when all keys have it. 0: none.
SR_HOST_DEVICE inline GroupVerdict look_at(const GroupState& state, std::uint32_t peer) {
  GroupVerdict out{fresh_word(state.verdict.code), 0, 0};
  if (out.code != 0) return out;
  if (state.fused != nullptr && fresh_word(state.fused->verdict) != 0) {
    const std::uint32_t bad = fresh_word(state.fused->bad_peer);
    return GroupVerdict{fresh_word(state.fused->verdict),
                        bad == 0 ? 0 : 1 + rank_of_peer(state.rank, bad - 1),
                        fresh_word(state.fused->bad_segment)};
  }
  for (const KeyState* const keys : {state.from[peer], state.to[peer]}) {
    if (keys == nullptr) continue;
    out = GroupVerdict{fresh_word(keys->verdict), 1 + peer, 0};
    if (out.code == 0) continue;
    if (out.code == status_of(Code::data_tag)) out.bad_segment = fresh_word(keys->bad_segment);
    return out;
  }
  return GroupVerdict{};
}

/// 0, or a verdict of the group or of any of its keys.
SR_HOST_DEVICE inline std::uint32_t verdict_of(const GroupState& state) {
  for (std::uint32_t peer = 0; peer < state.ranks; ++peer) {
    if (const GroupVerdict found = look_at(state, peer); found.code != 0) return found.code;
  }
  return 0;
}

/// After it nothing more is sealed to or released from `peer`.
SR_HOST_DEVICE inline void spread_verdict(GroupState& state, std::uint32_t peer) {
  const std::uint32_t code = fresh_word(state.verdict.code);
  if (state.to[peer] != nullptr) exchange_if(state.to[peer]->verdict, 0, code);
  if (state.from[peer] != nullptr) exchange_if(state.from[peer]->verdict, 0, code);
}

}  // namespace sealring::cuda
