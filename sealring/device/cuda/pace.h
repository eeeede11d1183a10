// Pace: columns of a fused step that share a multiprocessor stay in step.
//
// A multiprocessor's schedulers prefer their oldest warps, so of several equal blocks the first runs ahead,
// ends early, and leaves the others on a chip that is then half empty (docs/kernel-notes.md). So each column
// writes down how far it is where its neighbours see it, and one that is more than a turn ahead waits.
//
// It is a hint between blocks of this process, in private memory: nothing but time depends on it. A wait ends
// by itself after kPaceLooks looks, and a column whose wait ended so gives up its seat and never waits here
// again: what progresses without this (progress.h) progresses with it.
#pragma once

#include <cstdint>

#include "sealring/device/cuda/key_state.h"

namespace sealring::cuda {

inline constexpr std::uint32_t kPaceBlocks = 4;  ///< seats of a multiprocessor
inline constexpr std::uint32_t kPaceRows = 256;  ///< multiprocessors; further ones share rows
/// Shorter columns drift apart by less than a turn.
inline constexpr std::uint32_t kPaceTurnsMin = 8;
/// About 50 us at a look each 0.8 us: a few turns of a neighbour.
inline constexpr std::uint32_t kPaceLooks = 64;

/// The columns that run on a multiprocessor: turns of their step's longest column, and own ones so far. 0: a
/// free seat.
struct PaceRow {
  std::uint32_t at[kPaceBlocks];
};

/// Where a column writes down how far it is; slot kPaceBlocks: nowhere. The row is kept, since a block that
/// was preempted may go on elsewhere.
struct PaceSeat {
  std::uint32_t row = 0, slot = kPaceBlocks;
  std::uint32_t turns = 0;
};

SR_HOST_DEVICE constexpr std::uint32_t pace_word(std::uint32_t turns, std::uint32_t turn) {
  return turns << 16 | (turn + 1);
}
/// Of steps of equal length alone: what another op's columns are at says nothing.
SR_HOST_DEVICE constexpr bool is_behind(std::uint32_t other, std::uint32_t mine) {
  return other >> 16 == mine >> 16 && other + 1 < mine;
}
static_assert(!is_behind(0, pace_word(kPaceTurnsMin, kPaceTurnsMin - 1)));

SR_HOST_DEVICE inline PaceSeat take_seat(PaceRow* rows, std::uint32_t multiprocessor, std::uint32_t turns) {
  PaceSeat out;
  if (turns < kPaceTurnsMin || turns >= 0xFFFF) return out;
  out.row = multiprocessor % kPaceRows;
  out.turns = turns;
  for (std::uint32_t slot = 0; slot < kPaceBlocks; ++slot) {
    if (exchange_if(rows[out.row].at[slot], 0, pace_word(turns, 0)) != 0) continue;
    out.slot = slot;
    break;
  }
  return out;
}

SR_HOST_DEVICE inline void leave_seat(PaceRow* rows, PaceSeat& seat) {
  if (seat.slot >= kPaceBlocks) return;
  store_fresh(rows[seat.row].at[seat.slot], 0);
  seat.slot = kPaceBlocks;
}

/// Before `turn`. pause() takes the time of a look.
template <class Pause>
SR_HOST_DEVICE void keep_pace(PaceRow* rows, PaceSeat& seat, std::uint32_t turn, Pause&& pause) {
  if (seat.slot >= kPaceBlocks) return;
  const std::uint32_t mine = pace_word(seat.turns, turn);
  store_fresh(rows[seat.row].at[seat.slot], mine);
  for (std::uint32_t look = 0; look < kPaceLooks; ++look) {
    bool waits = false;
    for (const std::uint32_t& other : rows[seat.row].at) waits |= is_behind(fresh(other), mine);
    if (!waits) return;
    pause();
  }
  leave_seat(rows, seat);
}

}  // namespace sealring::cuda
