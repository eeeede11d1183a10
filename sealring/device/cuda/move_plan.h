// How the moves of a step between GPUs are cut: into segments, into chunks that fit a slot of the wire, and
// into rounds of chunks. Pure functions of what both ends know, so that both cut alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sealring/base/types.h"
#include "sealring/wire/record.h"

namespace sealring::cuda {

/// Ranks of a group at most.
inline constexpr std::uint32_t kGroupRanksMax = 64;
/// Chunks of an ordered pair that may be under way.
inline constexpr std::uint32_t kWireSlots = 3;
inline constexpr std::uint32_t kMoveSegmentMin = 2 * 1024;

/// Whether a suite's kernels take a whole multiprocessor a block: then sealing and opening have nothing to
/// gain from running side by side, and a launch of few segments a block loses much at its start and end.
constexpr bool takes_multiprocessors(Suite suite) {
  return suite == Suite::aes_256_gcm || suite == Suite::aes_128_gcm || suite == Suite::chained_gmac;
}

/// Where the slots lie: in windows; in those of a suite that takes_multiprocessors(); in windows that the
/// fused kernels mostly fill; or in NCCL's buffers, which nobody maps and which pay for each exchange, so
/// that few and large ones are better.
enum class SlotPlace { windows, long_launches, beside_fused, nccl };

/// Bytes of a slot at most, and of all slots of a rank's window.
struct SlotBounds {
  std::uint64_t slot_bytes, all_bytes;
};
constexpr std::uint64_t kSlotStep = 64 * 1024;
constexpr SlotBounds slot_bounds(SlotPlace place) {
  constexpr std::uint64_t kMiB = 1ull << 20;
  switch (place) {
    case SlotPlace::windows:
      return {20 * kMiB, 64 * kMiB - kSlotStep};
    case SlotPlace::beside_fused:
      return {4 * kMiB, 12 * kMiB};
    case SlotPlace::long_launches:
    case SlotPlace::nccl:
      break;
  }
  constexpr std::uint64_t kLong = 64 * kMiB + kSlotStep;  // 64 MiB with their tags
  return {kLong, kWireSlots * kLong};
}
constexpr std::uint64_t slot_bytes_of(std::uint32_t world, SlotPlace place = SlotPlace::windows) {
  const SlotBounds bounds = slot_bounds(place);
  if (world < 2) return bounds.slot_bytes;
  const std::uint64_t share = bounds.all_bytes / (std::uint64_t{world - 1} * kWireSlots);
  return std::max(std::min(bounds.slot_bytes, share / kSlotStep * kSlotStep), kSlotStep);
}

/// What a suite's kernels want: the segment size of large records, and how many segments fill a launch; and
/// the size where there are `many`.
struct SegmentWish {
  std::uint32_t segment_bytes = 0;
  std::uint32_t segments = 0;
  std::uint32_t segment_max = segment_bytes;
  std::uint32_t many = 0;
};
constexpr SegmentWish segment_wish(Suite suite) {
  switch (suite) {
    case Suite::aes_256_gcm:
    case Suite::aes_128_gcm:
    case Suite::chained_gmac:
      return {64 * 1024, 56, 128 * 1024, 500};  // one block a multiprocessor: half of them; four each
    case Suite::chacha20_poly1305:
      return {64 * 1024, 112};
    case Suite::plain:
      break;
  }
  return {32 * 1024, 224};
}

/// A record as a group of GPUs moves it: `chunk_segments` consecutive segments are a chunk, the last chunk
/// may have fewer. A record of no bytes is one chunk of one empty segment.
struct MoveCut {
  RecordLayout layout;
  std::uint32_t chunk_segments = 1;

  constexpr std::uint32_t chunks() const { return (layout.segments() + chunk_segments - 1) / chunk_segments; }
  constexpr std::uint32_t first_segment(std::uint32_t chunk) const { return chunk * chunk_segments; }
  constexpr std::uint32_t segments_of(std::uint32_t chunk) const {
    return std::min(chunk_segments, layout.segments() - first_segment(chunk));
  }
  constexpr std::uint64_t payload_offset(std::uint32_t chunk) const {
    return layout.payload_offset(first_segment(chunk));
  }
  constexpr std::uint64_t payload_of(std::uint32_t chunk) const {
    const std::uint32_t last = first_segment(chunk) + segments_of(chunk) - 1;
    return layout.payload_offset(last) + layout.payload_of(last) - payload_offset(chunk);
  }
  constexpr std::uint64_t wire_bytes_of(std::uint32_t chunk) const {
    return payload_of(chunk) + std::uint64_t{segments_of(chunk)} * kTagBytes;
  }
};

/// Up to this, a record is not worth cutting.
constexpr std::uint64_t whole_bytes(SlotPlace place) {
  // NCCL's exchange costs some 50 us beside its bytes, about what cutting 32 MiB in two would save.
  return place == SlotPlace::nccl ? 32ull << 20 : 2ull << 20;
}

/// The cut of a record of `bytes` that goes through slots of `slot` bytes. Records up to whole_bytes() are
/// one chunk where the slot allows it; longer ones make four chunks if those are no smaller, so that sealing,
/// wire and opening overlap; or as few as there can be, where the kernels take whole multiprocessors. Chunks
/// are of one length, but for the last one.
constexpr MoveCut cut_move(std::uint64_t bytes, Suite suite, std::uint64_t slot,
                           SlotPlace place = SlotPlace::windows) {
  const std::uint64_t least = whole_bytes(place);
  const bool whole = bytes <= least || takes_multiprocessors(suite);
  const std::uint64_t target = whole ? slot : std::min(slot, std::max(bytes / 4, least));
  const SegmentWish wish = segment_wish(suite);
  std::uint32_t segment = wish.segment_bytes;
  const std::uint64_t launch = std::min(bytes, target);
  if (wish.many != 0 && launch >= std::uint64_t{wish.many} * wish.segment_max) segment = wish.segment_max;
  while (segment > kMoveSegmentMin &&
         (launch < std::uint64_t{wish.segments} * segment || segment + kTagBytes > target))
    segment /= 2;
  MoveCut out;
  out.layout = RecordLayout::of(bytes, segment);
  // As many as are wanted, without their tags, or as the slot has room for.
  const auto most = static_cast<std::uint32_t>(
      std::min(std::max(target / segment, std::uint64_t{1}), slot / (segment + kTagBytes)));
  const std::uint32_t segments = out.layout.segments();
  const std::uint32_t chunks = (segments + most - 1) / most;
  out.chunk_segments = (segments + chunks - 1) / chunks;
  return out;
}

/// One end of a move in a step.
struct MoveEnd {
  Rank peer = 0;
  MoveCut cut;
};
struct ChunkOfMove {
  std::uint32_t move = 0;  ///< place among the step's sends or receives
  std::uint32_t chunk = 0;
};
/// What goes together: at most one chunk to, and one from, each peer.
struct MoveRound {
  std::vector<ChunkOfMove> sends, recvs;
};

namespace move_plan_internal {

template <class ListOf>
void add_chunks(std::span<const MoveEnd> moves, std::vector<MoveRound>& rounds, ListOf list_of) {
  std::uint32_t next_round[kGroupRanksMax] = {};
  for (std::uint32_t move = 0; move < moves.size(); ++move) {
    for (std::uint32_t chunk = 0; chunk < moves[move].cut.chunks(); ++chunk) {
      const std::uint32_t round = next_round[moves[move].peer]++;
      if (round >= rounds.size()) rounds.resize(round + 1);
      list_of(rounds[round]).push_back(ChunkOfMove{move, chunk});
    }
  }
}

}  // namespace move_plan_internal

/// Round r has the r-th chunk of each ordered pair: those of the pair's first move, then those of its second.
/// The k-th send to a peer meets the peer's k-th receive, so both ends give a pair's chunks in one order.
inline std::vector<MoveRound> plan_rounds(std::span<const MoveEnd> sends, std::span<const MoveEnd> recvs) {
  std::vector<MoveRound> out;
  move_plan_internal::add_chunks(sends, out, [](MoveRound& round) -> auto& { return round.sends; });
  move_plan_internal::add_chunks(recvs, out, [](MoveRound& round) -> auto& { return round.recvs; });
  return out;
}

/// How much of the chip, in percent, a launch of seal or open takes. Where both may well run at once, each
/// leaves the other room, so that neither waits for the other's end.
struct ChipShare {
  unsigned seal = 100, open = 100;
};
constexpr ChipShare chip_share(std::size_t rounds, Suite suite, SlotPlace place) {
  const bool beside = rounds > 1 && !takes_multiprocessors(suite) && place != SlotPlace::nccl;
  return beside ? ChipShare{50, 50} : ChipShare{100, 100};
}

}  // namespace sealring::cuda
