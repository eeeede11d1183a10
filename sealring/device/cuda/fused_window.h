// One step of a schedule in one kernel (fused): what it promises, and how its windows are laid out.
//
// A step is a set of records that this rank pushes and pulls, at most one of each to and from a peer. One
// kernel a rank seals what it pushes straight into the peers' windows, and opens what it pulls out of its own
// window into the output: as it is, or reduced with local memory. A window has a region for each peer, which
// that peer alone writes: a few slots for segments a column, and two words a slot.
//
// A rank ends with the exact result, or with a verdict and its whole output poisoned; never with a wrong
// result. What it promises for that, whatever happens to a window meanwhile:
//
// - A window holds ciphertext, tags and words; plaintext, keystream and keys never, not for a moment.
//   [protocol E.2]
// - Each byte of a segment is read once, into the block's own memory, and nothing of it is released before
//   its tag was accepted. [protocol E.1]
// - A word is a hint: it is compared for equality with what this rank counts itself, and is never an index, a
//   size or an address. A wrong one costs the op (DATA_TAG, TIMEOUT, ABORTED) and nothing else. [protocol
//   E.3]
// - Tickets count the segments of a column and a direction since the windows were made, in private memory,
//   alike on both ranks. A flag is ticket + 1, posted behind the segment's data; a credit is ticket + 1,
//   posted when the segment was taken out of its slot. Neither is ever reset. After a failure windows are not
//   used again.
// - Every wait ends: with its word, with POISON, by this rank's verdict or abort word, or at the deadline. A
//   column that fails, or finds a failed rank, posts POISON in all its words at every peer. POISON is not
//   authenticated: it costs availability alone.
// - Every way out counts the column out; the last one poisons the output of a failed op and gives the keys'
//   numbers free for the next op.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sealring/base/host_device.h"
#include "sealring/base/types.h"
#include "sealring/device/cuda/progress.h"
#include "sealring/wire/record.h"

namespace sealring::cuda {

inline constexpr std::uint64_t kPoison = 0xDEAD5EA1DEAD5EA1;
inline constexpr std::uint32_t kWordBytes = 32;  ///< a word has a sector of its own
inline constexpr std::uint32_t kFusedSegmentMax = 32 * 1024;
inline constexpr std::uint32_t kFusedSegmentMin = 2 * 1024;
/// Ranks of a group whose collectives run fused.
inline constexpr std::uint32_t kFusedRanksMax = 8;
inline constexpr std::uint32_t kFusedPeersMax = kFusedRanksMax - 1;
/// Columns of a block of AES-GCM's kernels (fused_gcm.h).
inline constexpr std::uint32_t kGcmColumns = 4;

/// The largest segment of a group: so that one of each peer fits into a block's shared memory side by side,
/// and the windows into the chip's cache.
SR_HOST_DEVICE constexpr std::uint32_t fused_segment_max(std::uint32_t ranks) {
  return ranks <= 3 ? kFusedSegmentMax : ranks <= 5 ? kFusedSegmentMax / 2 : kFusedSegmentMax / 4;
}

/// Which of a rank's peers another one is: 0, 1, ... in rank order without itself.
SR_HOST_DEVICE constexpr std::uint32_t peer_index(std::uint32_t rank, std::uint32_t other) {
  return other < rank ? other : other - 1;
}
/// The same backwards.
SR_HOST_DEVICE constexpr std::uint32_t rank_of_peer(std::uint32_t rank, std::uint32_t index) {
  return index < rank ? index : index + 1;
}

/// A region of a window: slots, then flags (written by the peer's push), then credits (of my pushes).
struct WindowShape {
  std::uint32_t columns = 0;     ///< that it has room for; an op may use fewer
  std::uint32_t slot_bytes = 0;  ///< of one segment with its tag, rounded up to 128
  static constexpr std::uint32_t kSlots = kFusedSlots;

  SR_HOST_DEVICE static constexpr WindowShape of(std::uint32_t columns, std::uint32_t segment_bytes) {
    return WindowShape{columns, (segment_bytes + static_cast<std::uint32_t>(kTagBytes) + 127) / 128 * 128};
  }
  SR_HOST_DEVICE constexpr std::uint64_t index(std::uint32_t column, std::uint64_t ticket) const {
    return static_cast<std::uint64_t>(column) * kSlots + ticket % kSlots;
  }
  SR_HOST_DEVICE constexpr std::uint64_t slot_offset(std::uint32_t column, std::uint64_t ticket) const {
    return index(column, ticket) * slot_bytes;
  }
  SR_HOST_DEVICE constexpr std::uint64_t flag_offset(std::uint32_t column, std::uint64_t ticket) const {
    return words_begin() + index(column, ticket) * kWordBytes;
  }
  SR_HOST_DEVICE constexpr std::uint64_t credit_offset(std::uint32_t column, std::uint64_t ticket) const {
    return words_begin() + (index(columns, 0) + index(column, ticket)) * kWordBytes;
  }
  SR_HOST_DEVICE constexpr std::uint64_t words_begin() const { return index(columns, 0) * slot_bytes; }
  SR_HOST_DEVICE constexpr std::uint64_t bytes() const {
    return words_begin() + 2 * index(columns, 0) * kWordBytes;
  }
};

/// How a record is cut: a pure function of what both of its ends know. `columns` share the segments: column c
/// has the segments c, c + columns, ...
struct FusedCut {
  std::uint32_t segment_bytes = 0;
  std::uint32_t columns = 0;
};
inline FusedCut cut_into(std::uint64_t bytes, std::uint32_t segment_bytes, std::uint32_t columns_max) {
  const std::uint64_t segments = RecordLayout::of(bytes, segment_bytes).segments();
  return FusedCut{segment_bytes, static_cast<std::uint32_t>(std::min<std::uint64_t>(segments, columns_max))};
}
/// What the workers of a block take up at once; a segment is a whole number of it, or one that is not full.
inline constexpr std::uint32_t kFusedStep = 8 * 1024;

/// The time of a column that has so many segments of `steps` * kFusedStep bytes, in units that compare: a
/// turn costs a constant and its steps, and most of a turn passes before the first segment is opened. Fitted
/// to two H200 (docs/kernel-notes.md).
constexpr std::uint64_t fused_cost(std::uint64_t segments, std::uint32_t steps) {
  return (4 * segments + 3) * (1 + 2 * std::uint64_t{steps});
}
/// Long segments cost less a byte, and short ones leave less idle at the start and where the last turn is not
/// every column's: the cheapest size is taken. Where columns have less than two steps each, they get a
/// segment or two of a part of one.
inline FusedCut fused_cut(std::uint64_t bytes, std::uint32_t ranks, std::uint32_t columns_max) {
  std::uint32_t segment_bytes = kFusedStep / 2;
  if (bytes >= 2ull * kFusedStep * columns_max) {
    std::uint64_t least = ~0ull;
    for (std::uint32_t steps = fused_segment_max(ranks) / kFusedStep; steps > 0; --steps) {
      const std::uint64_t column = std::uint64_t{columns_max} * steps * kFusedStep;
      const std::uint64_t cost = fused_cost((bytes + column - 1) / column, steps);
      if (cost >= least) continue;
      least = cost;
      segment_bytes = steps * kFusedStep;
    }
  } else if (2 * bytes < std::uint64_t{columns_max} * kFusedStep / 2) {
    segment_bytes = kFusedSegmentMin;
  }
  return cut_into(bytes, segment_bytes, columns_max);
}

// Of two ranks, behind the words: places for the segments of small steps, in lines; see fused_small.h.
inline constexpr std::uint32_t kSmallBytesMax = 64 * 1024;
inline constexpr std::uint32_t kSmallSegment = 2 * 1024;
inline constexpr std::uint32_t kSmallPlaces = kSmallBytesMax / kSmallSegment;
inline constexpr std::uint32_t kLineBytes = 16, kLinePayload = 12;
inline constexpr std::uint32_t kSmallLines = (kSmallSegment + kTagBytes + kLinePayload - 1) / kLinePayload;
inline constexpr std::uint64_t kSmallRegionBytes = 2ull * kSmallPlaces * kSmallLines * kLineBytes;
/// The first line of a place's buffer in a region.
SR_HOST_DEVICE constexpr std::uint64_t small_offset(const WindowShape& shape, std::uint32_t place,
                                                    std::uint64_t ticket) {
  return shape.bytes() + (2 * place + ticket % 2) * kSmallLines * kLineBytes;
}

/// The window of a rank: a region a peer, by peer_index().
SR_HOST_DEVICE constexpr WindowShape fused_region(std::uint32_t ranks, std::uint32_t columns) {
  return WindowShape::of(columns, fused_segment_max(ranks));
}
SR_HOST_DEVICE constexpr std::uint64_t fused_region_bytes(std::uint32_t ranks, std::uint32_t columns) {
  return fused_region(ranks, columns).bytes() + (ranks == 2 ? kSmallRegionBytes : 0);
}
SR_HOST_DEVICE constexpr std::uint64_t fused_window_bytes(std::uint32_t ranks, std::uint32_t columns) {
  return (ranks - 1) * fused_region_bytes(ranks, columns);
}

}  // namespace sealring::cuda
