// Claim: a record between GPUs is cut alike at both ends, every byte of it lies in exactly one chunk, every
// chunk fits its slot, and the chunks of a pair come in one order.
// How: cuts of many sizes, suites and worlds are walked; rounds of random steps are compared from both ends.
#include "sealring/device/cuda/move_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "sealring/device/cuda/group_state.h"

namespace sealring::cuda::test {
namespace {

constexpr Suite kSuites[] = {Suite::chacha20_poly1305, Suite::aes_256_gcm, Suite::aes_128_gcm, Suite::plain};

SlotPlace place_of(Suite suite) {
  return takes_multiprocessors(suite) ? SlotPlace::long_launches : SlotPlace::windows;
}

std::vector<std::uint64_t> sizes() {
  std::vector<std::uint64_t> out;
  for (int bits = 0; bits <= 36; ++bits) {
    for (const std::int64_t off : {-8, -2, -1, 0, 1, 2, 8, 4096}) {
      const std::int64_t size = (std::int64_t{1} << bits) + off;
      if (size >= 0) out.push_back(static_cast<std::uint64_t>(size));
    }
  }
  return out;
}

void expect_walks(const MoveCut& cut, std::uint64_t bytes, std::uint64_t slot_bytes) {
  std::uint64_t payload = 0, segments = 0;
  for (std::uint32_t chunk = 0; chunk < cut.chunks(); ++chunk) {
    ASSERT_EQ(cut.first_segment(chunk), segments);
    ASSERT_EQ(cut.payload_offset(chunk), payload);
    ASSERT_LE(cut.wire_bytes_of(chunk), slot_bytes);
    ASSERT_GE(cut.segments_of(chunk), 1u);
    payload += cut.payload_of(chunk);
    segments += cut.segments_of(chunk);
  }
  ASSERT_EQ(payload, bytes);
  ASSERT_EQ(segments, cut.layout.segments());
}

TEST(MovePlan, EveryByteOfARecordLiesInOneChunkThatFits) {
  for (const std::uint32_t world : {2u, 3u, 4u, 5u, 8u, 16u, 64u}) {
    for (const Suite suite : kSuites) {
      for (const std::uint64_t bytes : sizes()) {
        if (bytes > 1ull << 33 && world > 8) continue;  // long walks, nothing else in them
        for (const SlotPlace place : {place_of(suite), SlotPlace::nccl}) {
          const std::uint64_t slot = slot_bytes_of(world, place);
          const MoveCut cut = cut_move(bytes, suite, slot, place);
          ASSERT_EQ(cut.layout.payload_bytes, bytes);
          ASSERT_EQ(cut.layout.segment_bytes % 128, 0u);
          ASSERT_GE(cut.layout.segment_bytes, kMoveSegmentMin);
          ASSERT_LE(cut.layout.segment_bytes, segment_wish(suite).segment_max);
          ASSERT_GE(cut.chunk_segments, 1u);
          ASSERT_NO_FATAL_FAILURE(expect_walks(cut, bytes, slot)) << bytes << " " << world;
        }
      }
    }
  }
}

TEST(MovePlan, LargeRecordsHaveTheSegmentsThatKernelsWant) {
  EXPECT_EQ(cut_move(1ull << 30, Suite::chacha20_poly1305, slot_bytes_of(2)).layout.segment_bytes,
            64u * 1024);
  const std::uint64_t long_slot = slot_bytes_of(2, SlotPlace::long_launches);
  EXPECT_EQ(cut_move(1ull << 30, Suite::aes_256_gcm, long_slot).layout.segment_bytes, 128u * 1024);
  EXPECT_EQ(cut_move(64ull << 20, Suite::aes_256_gcm, long_slot).layout.segment_bytes, 128u * 1024);
  EXPECT_EQ(cut_move(64ull << 20, Suite::aes_256_gcm, long_slot).chunks(), 1u);
  EXPECT_EQ(cut_move(16ull << 20, Suite::aes_256_gcm, long_slot).layout.segment_bytes, 64u * 1024);
  EXPECT_EQ(cut_move(64 << 10, Suite::chacha20_poly1305, slot_bytes_of(2)).layout.segment_bytes,
            kMoveSegmentMin);
  EXPECT_EQ(cut_move(0, Suite::chacha20_poly1305, slot_bytes_of(2)).chunks(), 1u);
  EXPECT_EQ(cut_move(2 << 20, Suite::chacha20_poly1305, slot_bytes_of(2)).chunks(), 1u);
  EXPECT_EQ(cut_move(64 << 20, Suite::chacha20_poly1305, slot_bytes_of(2)).chunks(), 4u);
}

// A chunk of a few segments would cost as much as a whole one.
TEST(MovePlan, ChunksAreOfOneLength) {
  const std::uint64_t nccl = slot_bytes_of(2, SlotPlace::nccl);
  const auto over_nccl = [&](std::uint64_t bytes) {
    return cut_move(bytes, Suite::chacha20_poly1305, nccl, SlotPlace::nccl);
  };
  EXPECT_EQ(over_nccl(32 << 20).chunks(), 1u);
  EXPECT_EQ(over_nccl(64 << 20).chunks(), 2u);
  EXPECT_EQ(over_nccl(256 << 20).chunks(), 4u);
  EXPECT_EQ(over_nccl(1 << 30).chunks(), 16u);
  for (const std::uint64_t bytes : {64ull << 20, 100'000'000ull, 256ull << 20, 1ull << 30}) {
    for (const SlotPlace place : {SlotPlace::windows, SlotPlace::nccl, SlotPlace::beside_fused}) {
      const MoveCut cut = cut_move(bytes, Suite::chacha20_poly1305, slot_bytes_of(2, place), place);
      EXPECT_GE(cut.segments_of(cut.chunks() - 1) + cut.chunks(), cut.chunk_segments) << bytes;
    }
  }
}

TEST(MovePlan, WindowsStayBelowTheirBound) {
  for (const SlotPlace place : {SlotPlace::windows, SlotPlace::long_launches, SlotPlace::beside_fused}) {
    for (std::uint32_t world = 2; world <= kGroupRanksMax; ++world) {
      const WireShape shape = WireShape::of(world, slot_bytes_of(world, place));
      EXPECT_LE(shape.bytes(), slot_bounds(place).all_bytes + kSlotStep) << world;  // the words
      EXPECT_GE(shape.slot_bytes, kMoveSegmentMin + kTagBytes);
      EXPECT_EQ(shape.slot_bytes % 128, 0u);
    }
  }
  EXPECT_EQ(slot_bytes_of(2), 20ull << 20);
  EXPECT_EQ(slot_bytes_of(2, SlotPlace::beside_fused), 4ull << 20);
  EXPECT_EQ(slot_bytes_of(2, SlotPlace::nccl), (64ull << 20) + kSlotStep);
}

TEST(MovePlan, TheWordsAndSlotsOfAWindowDoNotOverlap) {
  for (const std::uint32_t world : {2u, 3u, 8u}) {
    const WireShape shape = WireShape::of(world, 4096);
    for (std::uint32_t owner = 0; owner < world; ++owner) {
      std::map<std::uint64_t, std::uint64_t> taken;  // begin -> end
      for (std::uint32_t peer = 0; peer < world; ++peer) {
        if (peer == owner) continue;
        for (std::uint32_t slot = 0; slot < kWireSlots; ++slot) {
          taken[shape.slot_offset(owner, peer, slot)] = shape.slot_offset(owner, peer, slot) + 4096;
          taken[shape.flag_offset(owner, peer, slot)] = shape.flag_offset(owner, peer, slot) + kWordBytes;
          taken[shape.credit_offset(owner, peer, slot)] = shape.credit_offset(owner, peer, slot) + kWordBytes;
        }
      }
      ASSERT_EQ(taken.size(), (world - 1) * kWireSlots * 3);
      std::uint64_t end = 0;
      for (const auto& [begin, behind] : taken) {
        ASSERT_GE(begin, end);
        end = behind;
      }
      ASSERT_LE(end, shape.bytes());
    }
  }
}

/// The chunks of one direction of a pair, in the order in which they are given to the wire: which of the
/// pair's moves, and which chunk of it.
using PairOrder = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
PairOrder order_of(const std::vector<MoveRound>& rounds, std::span<const MoveEnd> moves, Rank peer,
                   bool sends) {
  PairOrder out;
  for (const MoveRound& round : rounds) {
    std::uint32_t in_round = 0;
    for (const ChunkOfMove& at : sends ? round.sends : round.recvs) {
      if (moves[at.move].peer != peer) continue;
      ++in_round;
      std::uint32_t place = 0;
      for (std::uint32_t i = 0; i < at.move; ++i) place += moves[i].peer == peer ? 1 : 0;
      out.emplace_back(place, at.chunk);
    }
    EXPECT_LE(in_round, 1u);
  }
  return out;
}

TEST(MovePlan, BothEndsGiveAPairsChunksInOneOrder) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const auto world = static_cast<Rank>(2 + random() % 4);
    // Moves between all ranks, in the order of each rank's own list.
    std::vector<std::vector<MoveEnd>> sends(world), recvs(world);
    for (int move = 0; move < 6; ++move) {
      const auto from = static_cast<Rank>(random() % world);
      const auto to = static_cast<Rank>((from + 1 + random() % (world - 1)) % world);
      const MoveCut cut = cut_move(random() % (40u << 20), Suite::chacha20_poly1305, slot_bytes_of(world));
      sends[from].push_back({to, cut});
      recvs[to].push_back({from, cut});
    }
    std::vector<std::vector<MoveRound>> rounds;
    for (Rank rank = 0; rank < world; ++rank) rounds.push_back(plan_rounds(sends[rank], recvs[rank]));
    for (Rank from = 0; from < world; ++from) {
      for (Rank to = 0; to < world; ++to) {
        if (from == to) continue;
        const PairOrder out = order_of(rounds[from], sends[from], to, true);
        ASSERT_EQ(out, order_of(rounds[to], recvs[to], from, false));
        std::size_t chunks = 0;
        for (const MoveEnd& end : sends[from]) chunks += end.peer == to ? end.cut.chunks() : 0;
        ASSERT_EQ(out.size(), chunks);
      }
    }
  }
}

TEST(MovePlan, SealAndOpenShareTheChipOnlyWhereTheyGainByIt) {
  constexpr auto kWindows = SlotPlace::windows;
  for (const std::size_t rounds : {2u, 100u}) {
    const ChipShare share = chip_share(rounds, Suite::chacha20_poly1305, kWindows);
    EXPECT_LE(share.seal + share.open, 100u);
    EXPECT_GT(share.seal, 0u);
    EXPECT_GT(share.open, 0u);
    EXPECT_EQ(chip_share(rounds, Suite::aes_256_gcm, kWindows).seal, 100u);
    EXPECT_EQ(chip_share(rounds, Suite::chacha20_poly1305, SlotPlace::nccl).open, 100u);
  }
  EXPECT_EQ(chip_share(1, Suite::chacha20_poly1305, kWindows).seal, 100u);
  EXPECT_EQ(chip_share(1, Suite::chacha20_poly1305, kWindows).open, 100u);
}

}  // namespace
}  // namespace sealring::cuda::test
