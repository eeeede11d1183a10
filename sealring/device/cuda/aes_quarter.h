// What a quarter of an AES-GCM block does [NIST SP 800-38D §7.1]: the parts of the bodies that seal or open
// (aes_body.h) and of the one that does both (fused_gcm.h).
//
// A quarter is four warps that encrypt (workers) and one that does the rest (a finisher). It goes on in steps
// of four tiles of 2 KiB, one a worker: while these encrypt or decrypt the tiles of a step, the finisher adds
// the ciphertext of the step before to GHASH's sums, and behind a segment's last step makes its tag. Quarters
// of a block share tables and keys only.
#pragma once

#include <cstddef>

#include "sealring/device/cuda/aes_ghash.h"
#include "sealring/device/cuda/aes_tile.h"
#include "sealring/device/cuda/combine.h"
#include "sealring/device/cuda/kernel_list.h"
#include "sealring/device/cuda/user_memory.h"

namespace sealring::cuda {

/// The choices of one direction. open: plaintext waits in job.private_tiles, kQuarters times private_bytes()
/// a block.
template <Direction kDirectionOf, CombineKind kCombineOf>
struct AesConfig {
  static constexpr Direction kDirection = kDirectionOf;
  static constexpr CombineKind kCombine = kCombineOf;
};

inline constexpr int kQuarters = 4;        ///< of a block
inline constexpr int kQuarterWorkers = 4;  ///< warps that encrypt
inline constexpr int kQuarterThreads = (kQuarterWorkers + 1) * kLanes;
inline constexpr std::uint32_t kQuarterStep = kQuarterWorkers * kGcmTileBytes;

/// What a block has of a key in shared memory. Secret.
struct BlockKey {
  MatrixPair step[2];
  alignas(16) std::uint32_t round_keys[60];
  std::uint32_t rounds;
  std::uint32_t unused[3];
};

/// Told to a function that is not in line: else it reads what lies in shared memory as if it might lie
/// anywhere.
SR_HOST_DEVICE inline void is_shared([[maybe_unused]] const void* at) {
#if defined(__CUDA_ARCH__)
  __builtin_assume(__isShared(at));
#endif
}

/// What a direction of a quarter encrypts with; all of it in shared memory.
struct AesCipher {
  const AesTables& tables;
  const BlockKey& made;
  const OpView& op;
  const KeyWords& key;

  SR_HOST_DEVICE void is_shared() const {
    cuda::is_shared(&tables);
    cuda::is_shared(&made);
    cuda::is_shared(&op);
    cuda::is_shared(&key);
  }
};

/// The block of lengths times H, for the length of a segment that it was made for.
struct LengthsProduct {
  ghash::Element value;
  std::uint32_t payload_bytes;
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;  ///< of no segment
};

/// What a quarter has for itself. kGroups: counter groups that are prepared of a segment. kKeys: directions
/// that it has.
template <std::uint32_t kGroupsOf, int kKeysOf>
struct AesQuarter {
  static constexpr std::uint32_t kGroups = kGroupsOf;
  static constexpr int kKeys = kKeysOf;
  Chunk stored[2][kQuarterWorkers][kGcmTileChunks];  ///< ciphertext of this step and the one before
  Chunk sums[2][kLanes];         ///< GHASH's, of even and of odd tiles, as the lanes have them
  Chunk rows[2][kGcmRows];       ///< the same by rows, behind a segment
  Chunk groups_two[2][kGroups];  ///< of a segment's counters by 256, see aes::CounterGroup
  std::uint32_t groups_one[2][kGroups];
  Chunk masks[kLanes];  ///< E(K, J0) of 32 segments
  LengthsProduct lengths[kKeys];
  std::uint32_t accepted[2];  ///< of the last two segments that were opened
  std::uint32_t refused;      ///< not 0: a segment was, and the quarter writes nothing more
};

template <class Config>
struct AesParts {
  static constexpr bool kOpen = Config::kDirection == Direction::open;
  static constexpr int kWorkers = kQuarterWorkers;
  static constexpr std::uint32_t kStep = kQuarterStep;
  static constexpr std::uint32_t kCombineRounds = 3;  ///< have the tensor's words on their way (open)

  /// One segment of a quarter, as all its warps see it.
  struct Segment {
    std::uint32_t i;  ///< which one of the quarter's
    std::uint32_t k;  ///< place in the job
    Place place;
    std::uint32_t blocks, tiles;
    SR_HOST_DEVICE std::uint32_t parity() const { return i % 2; }
    /// At least one: an empty segment has a tag, too.
    SR_HOST_DEVICE std::uint32_t steps() const { return tiles == 0 ? 1u : (tiles + kWorkers - 1) / kWorkers; }
  };
  SR_HOST_DEVICE static Segment segment_of(const SegmentJob& job, Column column, std::uint32_t i) {
    Segment out;
    out.i = i;
    out.k = column.index + i * column.count;
    out.place = place_of(job, out.k);
    out.blocks = out.place.payload_bytes / 16 + (out.place.payload_bytes % 16 != 0 ? 1u : 0u);
    out.tiles = (out.blocks + kGcmTileChunks - 1) / kGcmTileChunks;
    return out;
  }

  /// A worker's part of a step.
  struct Tile {
    Segment segment;
    std::uint32_t index;  ///< in the segment; behind its end: nothing to do
    SR_HOST_DEVICE bool exists() const { return index < segment.tiles; }
  };
  SR_HOST_DEVICE static Tile tile_of(const Segment& segment, std::uint32_t within, int worker) {
    return Tile{segment, within * kWorkers + static_cast<std::uint32_t>(worker)};
  }

  /// Where the plaintext of a tile waits for its tag, at one of the ring's places.
  SR_HOST_DEVICE static Chunk* waiting(const SegmentJob& job, Column column, std::uint32_t place,
                                       int worker) {
    std::byte* const at = job.private_tiles + column.index * private_bytes(job.layout.segment_bytes);
    return reinterpret_cast<Chunk*>(at) +
           (place * kWorkers + static_cast<std::uint32_t>(worker)) * kGcmTileChunks;
  }
  /// What a quarter needs of job.private_tiles.
  SR_HOST_DEVICE static constexpr std::uint64_t private_bytes(std::uint32_t segment_bytes) {
    return (static_cast<std::uint64_t>(segment_bytes) + kStep - 1) / kStep * kStep + kStep;
  }

  SR_HOST_DEVICE static aes::Block counter_block(const NonceWords& nonce, std::uint32_t counter) {
    return aes::Block{{nonce.words[0], nonce.words[1], nonce.words[2], ghash::swapped(counter)}};
  }
  // The group of a counter: prepared, or in a very large segment made here.
  template <class Quarter>
  SR_HOST_DEVICE static aes::CounterGroup group_of(const AesCipher& with, const Quarter& mine,
                                                   const Segment& segment, const NonceWords& nonce,
                                                   std::uint32_t counter, const LaneTables& tables) {
    const std::uint32_t group = counter >> 8;
    if (segment.blocks / 256 + 2 > Quarter::kGroups)
      return aes::counter_group(counter_block(nonce, counter), with.made.round_keys, tables);
    const Chunk two = mine.groups_two[segment.parity()][group];
    return aes::CounterGroup{{two.words[0], two.words[1], two.words[2], two.words[3]},
                             mine.groups_one[segment.parity()][group]};
  }
  // All groups of a segment, a lane each.
  template <class Warp, class Quarter>
#if defined(__CUDACC__)
  __noinline__
#endif
      SR_HOST_DEVICE static void make_groups(Warp warp, const AesCipher with, Quarter& mine,
                                             const Segment segment) {
    with.is_shared();
    is_shared(&mine);
    const std::uint32_t groups = segment.blocks / 256 + 2;
    if (groups > Quarter::kGroups) return;
    const NonceWords nonce = nonce_words(with.key, with.op.first_number + segment.k);
    for (std::uint32_t from = 0; from < groups; from += kLanes) {
      warp.step([&](int lane) {
        const std::uint32_t group = from + static_cast<std::uint32_t>(lane);
        const aes::CounterGroup made = aes::counter_group(
            counter_block(nonce, group << 8), with.made.round_keys, LaneTables(with.tables, lane));
        mine.groups_two[segment.parity()][group] =
            Chunk{{made.after_two[0], made.after_two[1], made.after_two[2], made.after_two[3]}};
        mine.groups_one[segment.parity()][group] = made.after_one;
      });
    }
  }
  // E(K, J0) of a segment. [SP 800-38D §7.1] J0 = nonce || 1
  SR_HOST_DEVICE static void make_mask(const AesCipher& with, std::uint32_t k, int lane, Chunk& out) {
    aes::Block block[1] = {counter_block(nonce_words(with.key, with.op.first_number + k), 1)};
    aes::encrypt(block, with.made.round_keys, with.made.rounds, LaneTables(with.tables, lane));
    for (int i = 0; i < 4; ++i) out.words[i] = block[0].words[i];
  }

  // The counter blocks of a lane's row after two rounds.
  template <class Quarter>
  SR_HOST_DEVICE static void begin_row(const AesCipher& with, const Quarter& mine, const Segment& segment,
                                       const NonceWords& nonce, std::uint32_t tile, int lane,
                                       AesStream& stream) {
    const LaneTables tables(with.tables, lane);
    // [SP 800-38D §7.1] inc32(J0) is the first counter: J0 ends in 1, so the data begins with 2, and only the
    // last two blocks of a tile may belong to another group than the first ones.
    const std::uint32_t counter = tile * kGcmTileChunks + static_cast<std::uint32_t>(lane) + 2;
    const aes::CounterGroup first = group_of(with, mine, segment, nonce, tile * kGcmTileChunks + 2, tables);
    const aes::CounterGroup last = group_of(with, mine, segment, nonce, counter + 3 * kLanes, tables);
#pragma unroll
    for (std::uint32_t c = 0; c < 4; ++c)
      stream.block[c] = aes::after_two_rounds(c < 3 ? first : last, (counter + c * kLanes) << 24,
                                              with.made.round_keys, tables);
  }

  template <class Warp>
  using Streams = typename Warp::template Lanes<AesStream>;

  // Half a tile's words, on their way from the tensor and from where its plaintext waits.
  struct Half {
    Chunk mine[2], accepted[2];
  };
  SR_HOST_DEVICE static void fetch_half(const SegmentJob& job, std::uint64_t at, const Chunk* plain,
                                        int first, int lane, Half& half) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int slot = (first + c) * kLanes + lane;
      half.accepted[c] = plain[slot];
      if (Config::kCombine != CombineKind::replace)
        half.mine[c] = load_aligned(job.combine.local + at + static_cast<std::uint32_t>(slot) * 16);
    }
  }
  SR_HOST_DEVICE static void combine_half(const SegmentJob& job, std::uint64_t at, int first, int lane,
                                          const Half& half) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int slot = (first + c) * kLanes + lane;
      store_aligned(job.combine.dst + at + static_cast<std::uint32_t>(slot) * 16,
                    combined<Config::kCombine>(job.combine, half.mine[c], half.accepted[c]));
    }
  }
  // Three rounds, during which an accepted tile's words arrive and go into the tensor.
  template <class Warp>
  SR_HOST_DEVICE static void rounds_and_combine(Warp& warp, const AesCipher& with, const SegmentJob& job,
                                                std::uint64_t at, const Chunk* plain, std::uint32_t first,
                                                Streams<Warp>& stream) {
    warp.each([&](int lane) {
      const LaneTables tables(with.tables, lane);
      Half halves[2];
      fetch_half(job, at, plain, 0, lane, halves[0]);
      aes::full_rounds(first, first + 1, stream[lane].block, with.made.round_keys, tables);
      fetch_half(job, at, plain, 2, lane, halves[1]);
      aes::full_rounds(first + 1, first + 2, stream[lane].block, with.made.round_keys, tables);
      combine_half(job, at, 0, lane, halves[0]);
      aes::full_rounds(first + 2, first + 3, stream[lane].block, with.made.round_keys, tables);
      combine_half(job, at, 2, lane, halves[1]);
    });
  }

  // Whether an accepted tile can be combined between the rounds of another: a whole one, of aligned memory.
  static constexpr bool kFuses = kOpen && Config::kCombine != CombineKind::any;
  SR_HOST_DEVICE static bool can_fuse(const SegmentJob& job, const Tile& old) {
    return kFuses && std::uint64_t{old.index + 1} * kGcmTileBytes <= old.segment.place.payload_bytes &&
           misalignment(job.combine.dst + old.segment.place.payload) == 0 &&
           (Config::kCombine == CombineKind::replace ||
            misalignment(job.combine.local + old.segment.place.payload) == 0);
  }

  // `fused`: an accepted tile, of the payload bytes from `at`, is combined on the way.
  template <class Warp, class Quarter>
  SR_HOST_DEVICE static void cipher_tile(Warp& warp, const AesCipher& with, const Quarter& mine,
                                         const SegmentJob& job, bool fused, std::uint64_t at,
                                         const Tile& tile, Chunk* stage, Chunk* plain) {
    const Segment& segment = tile.segment;
    const NonceWords nonce = nonce_words(with.key, with.op.first_number + segment.k);
    Streams<Warp> stream;
    typename Warp::template Lanes<AesRow> row;
    warp.each([&](int lane) { begin_row(with, mine, segment, nonce, tile.index, lane, stream[lane]); });
    std::uint32_t next = 3;
    if constexpr (kFuses) {
      if (fused) {
        rounds_and_combine(warp, with, job, at, plain, next, stream);
        next += kCombineRounds;
      }
    }
    warp.step([&](int lane) {
      const LaneTables tables(with.tables, lane);
      aes::full_rounds(next, kLoadRound, stream[lane].block, with.made.round_keys, tables);
      load_row<kOpen>(warp, job, segment.place, tile.index, lane, row[lane]);
      aes::rounds_from(kLoadRound, stream[lane].block, with.made.round_keys, with.made.rounds, tables);
      end_row<kOpen>(job, segment.place, tile.index, lane, stream[lane], row[lane], stage, plain);
    });
  }
  static constexpr std::uint32_t kLoadRound = 7;  ///< before it a tile's data is fetched

  // An accepted tile into the tensor.
  template <class Warp>
  SR_HOST_DEVICE static void combine_tile(Warp& warp, const SegmentJob& job, const Tile& tile,
                                          const Chunk* plain) {
    constexpr bool kReads = Config::kCombine != CombineKind::replace;
    const Place& place = tile.segment.place;
    const std::byte* const local = job.combine.local + place.payload;
    std::byte* const dst = job.combine.dst + place.payload;
    const bool aligned = misalignment(dst) == 0 && misalignment(local) == 0;
    const ConstUserMemory memory{job.combine.local, payload_bytes_of(job)};
    warp.step([&](int lane) {
      const std::uint64_t begin =
          std::uint64_t{tile.index} * kGcmTileBytes + static_cast<std::uint32_t>(lane) * 16;
      Chunk mine[4] = {};
      if constexpr (kReads) {
#pragma unroll
        for (std::uint32_t c = 0; c < 4; ++c) {
          const std::uint64_t at = begin + c * 16 * kLanes;
          const std::uint32_t bytes = chunk_bytes(place, at);
          if (bytes == 16)
            mine[c] = aligned ? load_aligned(local + at) : load_any(memory, local + at);
          else
            mine[c] = load_bytes(local + at, bytes);
        }
      }
#pragma unroll
      for (std::uint32_t c = 0; c < 4; ++c) {
        const std::uint64_t at = begin + c * 16 * kLanes;
        const std::uint32_t bytes = chunk_bytes(place, at);
        if (bytes == 0) continue;
        const Chunk out = combined<Config::kCombine>(job.combine, mine[c],
                                                     plain[c * kLanes + static_cast<std::uint32_t>(lane)]);
        if (bytes < 16)
          store_bytes(dst + at, out, bytes);
        else if (aligned)
          store_aligned(dst + at, out);
        else
          store_any(dst + at, out);
      }
    });
  }

  /// A worker's part of a step: `tile` is encrypted or decrypted; open: `old`, whose segment was accepted,
  /// goes from `plain` into the tensor, before what is decrypted takes its place. Either may be none.
  template <class Warp, class Quarter>
  SR_HOST_DEVICE static void work(Warp& warp, const AesCipher& with, const Quarter& mine,
                                  const SegmentJob& job, const Tile& tile, const Tile& old, Chunk* stage,
                                  Chunk* plain) {
    bool fused = false;
    std::uint64_t at = 0;
    if constexpr (kOpen) {
      if (old.exists()) {
        fused = tile.exists() && can_fuse(job, old);
        at = old.segment.place.payload + std::uint64_t{old.index} * kGcmTileBytes;
        if (!fused) combine_tile(warp, job, old, plain);
      }
    }
    if (tile.exists()) cipher_tile(warp, with, mine, job, fused, at, tile, stage, plain);
  }

  // What the sums of a segment begin with, behind the tag of the one before. AAD stands right before the
  // data: its five blocks are the last ones of the tile before the first, which belongs to the odd ones.
  template <class Warp, class Quarter>
#if defined(__CUDACC__)
  __noinline__
#endif
      SR_HOST_DEVICE static void begin_sums(Warp warp, Quarter& mine, const SegmentJob& job, const OpView& op,
                                            std::uint32_t k) {
    is_shared(&mine);
    is_shared(&op);
    // The first one's row; a lane has words of row 24 + lane / 4.
    constexpr int kFirst = kGcmRows - kAadChunks;
    warp.step([&](int lane) {
      const int i = 24 + lane / 4 - kFirst;
      mine.sums[0][lane] = mine.sums[1][lane] = Chunk{};
      if (i < 0) return;
      const Chunk block = aad_chunk(job, op, k, i);
      const int q = lane % 4;
      mine.sums[1][lane].words[3] =
          q < 2 ? (q == 0 ? block.words[0] : block.words[1]) : (q == 2 ? block.words[2] : block.words[3]);
    });
  }

  // The block of lengths times H. [SP 800-38D §7.1 step 5]
  template <class Warp>
  SR_HOST_DEVICE static void make_lengths(Warp& warp, LengthsProduct& lengths, const KeyWords& key,
                                          std::uint32_t payload_bytes) {
    if (lengths.payload_bytes == payload_bytes) return;  // most are as long as the one before
    warp.step([&](int lane) {
      if (lane != 0) return;
      const std::uint64_t bits = std::uint64_t{payload_bytes} * 8;
      const ghash::Element block{{0, static_cast<std::uint32_t>(kAadBytes) * 8,
                                  static_cast<std::uint32_t>(bits >> 32), static_cast<std::uint32_t>(bits)}};
      lengths.value = ghash::multiply(block, key.gcm->powers[0][1]);
    });
    warp.step([&](int lane) {
      if (lane == 0) lengths.payload_bytes = payload_bytes;
    });
  }

  // From the rows of a segment, every lane gets the tag. Out of line: it is not often run, and would take
  // registers from what is.
  template <class Warp, class Quarter>
#if defined(__CUDACC__)
  __noinline__
#endif
      SR_HOST_DEVICE static Chunk tag_of(Warp warp, const Quarter& mine, LengthsProduct& lengths,
                                         const KeyWords& key, const Segment segment) {
    is_shared(&mine);
    is_shared(&lengths);
    is_shared(&key);
    make_lengths(warp, lengths, key, segment.place.payload_bytes);
    typename Warp::template Lanes<std::uint32_t> words[4];
    const std::uint32_t last = (segment.tiles + 1) % 2;  // the sum that the last tile is in
    warp.step([&](int lane) {
      // The last tile is padded behind, which H's inverse powers take back.
      const int padded = static_cast<int>(segment.tiles * kGcmTileChunks);
      const int place = static_cast<int>(segment.blocks) + 2 - padded + 31 - lane - kNearFirst;
      ghash::Element all = lane == 0 ? lengths.value : ghash::zero();
#pragma unroll 1
      for (std::uint32_t n = 0; n < (segment.tiles > 0 ? 2u : 1u); ++n) {
        all = all ^ ghash::multiply(ghash::element_of(mine.rows[last ^ n][lane].words),
                                    key.gcm->near_powers[place + static_cast<int>(n * kGcmTileChunks)]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i][lane] = ghash::swapped(all.words[i]);
    });
    Chunk out = mine.masks[segment.i % kLanes];
#pragma unroll
    for (int i = 0; i < 4; ++i) out.words[i] ^= warp.sum_bits(words[i]);
    return out;
  }

  /// What the finisher found behind a step.
  struct Absorbed {
    bool tagged = false;   ///< the segment ended, and its tag was written (seal) or compared (open)
    bool refused = false;  ///< open: the tag was another one
  };
  // GHASH of a step, number `within` of its segment; and the tag, if it was the last one.
  template <class Warp, class Quarter>
  SR_HOST_DEVICE static Absorbed absorb_step(Warp& warp, Quarter& mine, LengthsProduct& lengths,
                                             const SegmentJob& job, const AesCipher& with,
                                             const Segment& segment, std::uint32_t within,
                                             std::uint32_t parity) {
    typename Warp::template Lanes<RowWords> sums[2];
    warp.each([&](int lane) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][lane].words[i] = mine.sums[n][lane].words[i];
      }
    });
#pragma unroll 1
    for (std::uint32_t from = 0; from < kWorkers && within * kWorkers + from < segment.tiles; from += 2) {
      typename Warp::template Lanes<RowWords> before;
      warp.each([&](int lane) { before[lane] = sums[1][lane]; });
      absorb_tiles(warp, mine.stored[parity][from], with.made.step, sums);
      if (within * kWorkers + from + 1 == segment.tiles)  // there was one only
        warp.each([&](int lane) { sums[1][lane] = before[lane]; });
    }
    if (within + 1 < segment.steps()) {
      warp.each([&](int lane) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) mine.sums[n][lane].words[i] = sums[n][lane].words[i];
        }
      });
      return {};
    }
    warp.step([&](int lane) {
      for (int n = 0; n < 2; ++n) put_row_words(sums[n][lane], mine.rows[n], lane);
    });
    const Chunk tag = tag_of(warp, mine, lengths, with.key, segment);
    std::byte* const at = job.wire + segment.place.wire + segment.place.payload_bytes;
    if constexpr (kOpen)
      return {true, is_refused(warp, tag, [&](int lane) { return warp.window_byte(at + lane); })};
    put_tag(warp, tag, at);
    return {true, false};
  }
};

/// The tables into shared memory, by all of a block's warps.
template <class Warp>
SR_HOST_DEVICE inline void fill_tables(Warp& warp, AesTables& tables, const GcmKey& key) {
  for (int entry = warp.index(); entry < 256; entry += kQuarters * kQuarterThreads / kLanes) {
    warp.each([&](int lane) {
      const std::uint32_t word = key.table[entry];
#pragma unroll
      for (int table = 0; table < 4; ++table)
        tables.words[table / 2][entry][table % 2][lane] = aes::turned(word, table);
    });
  }
}
/// Likewise what is made of a key.
template <class Warp>
SR_HOST_DEVICE inline void fill_key(Warp& warp, BlockKey& made, const GcmKey& key) {
  constexpr int kAll = kQuarters * kQuarterThreads / kLanes;
  for (int pair = warp.index(); pair < 2 * kTilePairs; pair += kAll) {
    const int s = pair / kTilePairs, p = pair % kTilePairs;
    warp.each([&](int lane) { made.step[s][p][lane] = key.step[s][p][lane]; });
  }
  if (warp.index() != 0) return;
  warp.step([&](int lane) {
    for (int i = lane; i < 60; i += kLanes) made.round_keys[i] = key.round_keys[i];
    if (lane == 0) made.rounds = key.rounds;
  });
}

}  // namespace sealring::cuda
