// AES-GCM of many segments: the body of the seal and the open kernels [NIST SP 800-38D §7].
//
// A block is four quarters, each of four warps that encrypt (workers) and one that does the rest (a
// finisher). A quarter has segments of its own and knows nothing of the others: they share tables and
// matrices only, and while one waits at a barrier the other three keep the lookups going. It goes on in steps
// of four tiles of 2 KiB, one a worker. In step g the workers encrypt or decrypt the tiles of step g; the
// finisher adds the ciphertext of step g-1 to GHASH's sums, and behind a segment's last step writes (seal) or
// checks (open) its tag. Besides, it prepares the segments to come.
//
// AES is bound by lookups in shared memory (four tables, a copy a lane), so GHASH is on the tensor cores
// (aes_key.h, aes_ghash.h). A lane encrypts 4 blocks, 512 bytes apart, so that memory is touched lane after
// lane. open leaves the plaintext in private memory (in L2, mostly) until the tag is known: ciphertext is
// read once, and nothing reaches the tensor before its tag was accepted [protocol E.1]. That memory is a ring
// of one step more than a segment has: when a tile's place is needed again, its segment's tag has been
// checked, and the worker combines it between the rounds of the tile that takes its place.
#pragma once

#include <cstddef>

#include "sealring/device/cuda/aes_ghash.h"
#include "sealring/device/cuda/aes_tile.h"
#include "sealring/device/cuda/combine.h"
#include "sealring/device/cuda/kernel_list.h"
#include "sealring/device/cuda/key_state.h"
#include "sealring/device/cuda/user_memory.h"

namespace sealring::cuda {

/// The choices of one kernel. open: plaintext waits in job.private_tiles, kDepth times
/// private_bytes(segment_bytes) a column.
template <Direction kDirectionOf, CombineKind kCombineOf>
struct AesConfig {
  static constexpr Direction kDirection = kDirectionOf;
  static constexpr CombineKind kCombine = kCombineOf;
};

template <class Config>
struct AesBody {
  static constexpr bool kOpen = Config::kDirection == Direction::open;
  static constexpr int kQuarters = 4;
  static constexpr int kWorkers = 4;  ///< of a quarter
  static constexpr int kThreads = kQuarters * (kWorkers + 1) * kLanes;
  static constexpr int kBlocks = 1;
  static constexpr std::uint32_t kDepth = kQuarters;                ///< open: parts of the private memory
  static constexpr std::uint32_t kStep = kWorkers * kGcmTileBytes;  ///< what a quarter does at once
  static constexpr int kExtras = kAadChunks + 1;                    ///< blocks of AAD, and the lengths
  static constexpr std::uint32_t kGroups = 2 * kLanes;  ///< counter groups that are prepared of a segment
  static constexpr std::uint32_t kCombineRounds = 3;    ///< have the tensor's words on their way (open)

  /// What a quarter has for itself.
  struct Quarter {
    Chunk stored[2][kWorkers][kGcmTileChunks];  ///< ciphertext of this step and the one before
    Chunk sums[2][kLanes];                      ///< GHASH's, of even and of odd tiles, as the lanes have them
    Chunk rows[2][kGcmRows];                    ///< the same by rows, behind a segment
    Chunk groups_two[2][kGroups];               ///< of a segment's counters by 256, see aes::CounterGroup
    std::uint32_t groups_one[2][kGroups];
    Chunk masks[kLanes];  ///< E(K, J0) of 32 segments
    ghash::Element extra_powers[kExtras];
    std::uint32_t extra_blocks;  ///< the length they are for
    std::uint32_t accepted[2];   ///< of the last two segments
    std::uint32_t refused;       ///< not 0: a segment was, and the quarter writes nothing more
  };
  struct Shared {
    AesTables tables;  ///< first: its address is part of the code
    MatrixPair step[2];
    Quarter quarters[kQuarters];
    alignas(16) std::uint32_t round_keys[60];
    std::uint32_t rounds;
    BadTag bad;
  };
  static_assert(offsetof(Shared, tables) == 0);

  /// What lies behind is cleared at the end of a kernel.
  static constexpr std::size_t kSecretsFrom = offsetof(Shared, step);

  /// One segment of a quarter, as all its warps see it.
  struct Segment {
    std::uint32_t i;  ///< place in the quarter's column
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

  /// The steps of a quarter, from segment to segment. Only its last segment may have fewer than the others.
  struct Walk {
    std::uint32_t segments, each, steps;
    /// Steps whose plaintext waits: those of a segment, and one more.
    SR_HOST_DEVICE std::uint32_t ring() const { return each + 1; }
  };
  SR_HOST_DEVICE static Walk walk_of(const SegmentJob& job, Column column) {
    Walk out{};
    if (column.index >= job.segments) return out;
    out.segments = (job.segments - column.index + column.count - 1) / column.count;
    out.each = segment_of(job, column, 0).steps();
    out.steps = (out.segments - 1) * out.each + segment_of(job, column, out.segments - 1).steps();
    return out;
  }
  /// A step: of which segment, and which of its steps.
  struct Step {
    std::uint32_t segment = 0, within = 0;
    SR_HOST_DEVICE void advance(const Walk& walk) {
      if (++within < walk.each) return;
      within = 0;
      ++segment;
    }
  };

  /// Where a quarter is.
  struct Pace {
    Step now, before, old;  ///< encrypted or decrypted; added to GHASH; combined
    bool ciphers, absorbs, combines;
    std::uint32_t place;   ///< of the ring, for `old` and then for `now`
    std::uint32_t parity;  ///< of `now`
  };

  /// A worker's part of a step.
  struct Tile {
    Segment segment;
    std::uint32_t index;  ///< in the segment; behind its end: nothing to do
    SR_HOST_DEVICE bool exists() const { return index < segment.tiles; }
  };
  SR_HOST_DEVICE static Tile tile_of(const SegmentJob& job, Column column, Step step, int worker) {
    return Tile{segment_of(job, column, step.segment),
                step.within * kWorkers + static_cast<std::uint32_t>(worker)};
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
  SR_HOST_DEVICE static aes::CounterGroup group_of(const Shared& shared, const Quarter& mine,
                                                   const Segment& segment, const NonceWords& nonce,
                                                   std::uint32_t counter, const LaneTables& tables) {
    const std::uint32_t group = counter >> 8;
    if (segment.blocks / 256 + 2 > kGroups)
      return aes::counter_group(counter_block(nonce, counter), shared.round_keys, tables);
    const Chunk two = mine.groups_two[segment.parity()][group];
    return aes::CounterGroup{{two.words[0], two.words[1], two.words[2], two.words[3]},
                             mine.groups_one[segment.parity()][group]};
  }
  // All groups of a segment, a lane each.
  template <class Warp>
  SR_HOST_DEVICE static void make_groups(Warp& warp, const Shared& shared, Quarter& mine, const OpView& op,
                                         const KeyWords& key, const Segment& segment) {
    const std::uint32_t groups = segment.blocks / 256 + 2;
    if (groups > kGroups) return;
    const NonceWords nonce = nonce_words(key, op.first_number + segment.k);
    for (std::uint32_t from = 0; from < groups; from += kLanes) {
      warp.step([&](int lane) {
        const std::uint32_t group = from + static_cast<std::uint32_t>(lane);
        const aes::CounterGroup made = aes::counter_group(counter_block(nonce, group << 8), shared.round_keys,
                                                          LaneTables(shared.tables, lane));
        mine.groups_two[segment.parity()][group] =
            Chunk{{made.after_two[0], made.after_two[1], made.after_two[2], made.after_two[3]}};
        mine.groups_one[segment.parity()][group] = made.after_one;
      });
    }
  }

  // The counter blocks of a lane's row after two rounds.
  SR_HOST_DEVICE static void begin_row(const Shared& shared, const Quarter& mine, const Segment& segment,
                                       const NonceWords& nonce, std::uint32_t tile, int lane,
                                       AesStream& stream) {
    const LaneTables tables(shared.tables, lane);
    // [SP 800-38D §7.1] inc32(J0) is the first counter: J0 ends in 1, so the data begins with 2, and only the
    // last two blocks of a tile may belong to another group than the first ones.
    const std::uint32_t counter = tile * kGcmTileChunks + static_cast<std::uint32_t>(lane) + 2;
    const aes::CounterGroup first = group_of(shared, mine, segment, nonce, tile * kGcmTileChunks + 2, tables);
    const aes::CounterGroup last = group_of(shared, mine, segment, nonce, counter + 3 * kLanes, tables);
#pragma unroll
    for (std::uint32_t c = 0; c < 4; ++c)
      stream.block[c] = aes::after_two_rounds(c < 3 ? first : last, (counter + c * kLanes) << 24,
                                              shared.round_keys, tables);
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
  SR_HOST_DEVICE static void rounds_and_combine(Warp& warp, const Shared& shared, const SegmentJob& job,
                                                std::uint64_t at, const Chunk* plain, std::uint32_t first,
                                                Streams<Warp>& stream) {
    warp.each([&](int lane) {
      const LaneTables tables(shared.tables, lane);
      Half halves[2];
      fetch_half(job, at, plain, 0, lane, halves[0]);
      aes::full_rounds(first, first + 1, stream[lane].block, shared.round_keys, tables);
      fetch_half(job, at, plain, 2, lane, halves[1]);
      aes::full_rounds(first + 1, first + 2, stream[lane].block, shared.round_keys, tables);
      combine_half(job, at, 0, lane, halves[0]);
      aes::full_rounds(first + 2, first + 3, stream[lane].block, shared.round_keys, tables);
      combine_half(job, at, 2, lane, halves[1]);
    });
  }

  // `fused`: an accepted tile, of the payload bytes from `at`, is combined on the way.
  template <class Warp>
  SR_HOST_DEVICE static void cipher_tile(Warp& warp, const Shared& shared, const Quarter& mine,
                                         const SegmentJob& job, const OpView& op, const KeyWords& key,
                                         bool fused, std::uint64_t at, const Tile& tile, Chunk* stage,
                                         Chunk* plain) {
    const Segment& segment = tile.segment;
    const NonceWords nonce = nonce_words(key, op.first_number + segment.k);
    Streams<Warp> stream;
    typename Warp::template Lanes<AesRow> row;
    warp.each([&](int lane) { begin_row(shared, mine, segment, nonce, tile.index, lane, stream[lane]); });
    std::uint32_t next = 3;
    if constexpr (kFuses) {
      if (fused) {
        rounds_and_combine(warp, shared, job, at, plain, next, stream);
        next += kCombineRounds;
      }
    }
    warp.step([&](int lane) {
      const LaneTables tables(shared.tables, lane);
      aes::full_rounds(next, kLoadRound, stream[lane].block, shared.round_keys, tables);
      load_row<kOpen>(warp, job, segment.place, tile.index, lane, row[lane]);
      aes::rounds_from(kLoadRound, stream[lane].block, shared.round_keys, shared.rounds, tables);
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

  // What lane `lane` adds to the rows' sum: a block of AAD, or the lengths.
  SR_HOST_DEVICE static ghash::Element extra_block(const SegmentJob& job, const OpView& op,
                                                   const Segment& segment, int lane) {
    if (lane < kAadChunks) return ghash::element_of(aad_chunk(job, op, segment.k, lane).words);
    const std::uint64_t bits = std::uint64_t{segment.place.payload_bytes} * 8;
    return ghash::Element{{0, static_cast<std::uint32_t>(kAadBytes) * 8,
                           static_cast<std::uint32_t>(bits >> 32), static_cast<std::uint32_t>(bits)}};
  }

  // What lane `lane` adds to a segment's sum for AAD and lengths: a block times its power.
  template <class Warp>
  SR_HOST_DEVICE static void multiply_extras(Warp& warp, Quarter& mine, const SegmentJob& job,
                                             const OpView& op, const KeyWords& key, const Segment& segment,
                                             typename Warp::template Lanes<ghash::Element>& out) {
    const bool other_length = segment.blocks != mine.extra_blocks;  // most are as long as the one before
    warp.step([&](int lane) {
      out[lane] = ghash::Element{};
      if (lane >= kExtras) return;
      // Behind AAD block i: the others, the ciphertext and the lengths.
      const std::uint32_t behind = segment.blocks + 6 - static_cast<std::uint32_t>(lane);
      if (other_length) mine.extra_powers[lane] = power_of(*key.gcm, lane < kAadChunks ? behind : 1u);
      out[lane] = ghash::multiply(extra_block(job, op, segment, lane), mine.extra_powers[lane]);
    });
    warp.step([&](int lane) {
      if (lane == 0) mine.extra_blocks = segment.blocks;
    });
  }

  // From the sums of a segment, every lane gets the tag.
  template <class Warp>
  SR_HOST_DEVICE static Chunk tag_of(Warp& warp, Quarter& mine, const SegmentJob& job, const OpView& op,
                                     const KeyWords& key, const Segment& segment,
                                     typename Warp::template Lanes<RowWords> (&sums)[2]) {
    typename Warp::template Lanes<ghash::Element> extras;
    multiply_extras(warp, mine, job, op, key, segment, extras);
    warp.step([&](int lane) {
      for (int n = 0; n < 2; ++n) put_row_words(sums[n][lane], mine.rows[n], lane);
    });
    typename Warp::template Lanes<std::uint32_t> words[4];
    const std::uint32_t last = (segment.tiles + 1) % 2;  // the sum that the last tile is in
    warp.step([&](int lane) {
      // The last tile is padded behind, which H's inverse powers take back.
      const int padded = static_cast<int>(segment.tiles * kGcmTileChunks);
      const int place = static_cast<int>(segment.blocks) + 2 - padded + 31 - lane - kNearFirst;
      ghash::Element all = extras[lane];
#pragma unroll 1
      for (std::uint32_t n = 0; n < (segment.tiles > 1 ? 2u : 1u); ++n) {
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
  template <class Warp>
  SR_HOST_DEVICE static void finish_segment(Warp& warp, Quarter& mine, const SegmentJob& job,
                                            const Segment& segment, const Chunk& tag, BadTag& bad) {
    std::byte* const at = job.wire + segment.place.wire + segment.place.payload_bytes;
    if constexpr (!kOpen) {
      put_tag(warp, tag, at);
    } else {
      const bool refused = is_refused(warp, tag, [&](int lane) { return warp.window_byte(at + lane); });
      warp.step([&](int lane) {
        if (lane != 0) return;
        if (refused && mine.refused == 0) {
          mine.refused = 1;
          // Of several quarters the first one is told.
          if (exchange_if(bad.refused, 0, 1) == 0) bad.first_segment = segment.k;
        }
        mine.accepted[segment.parity()] = mine.refused == 0 ? 1u : 0u;
      });
    }
  }

  // E(K, J0) of the 32 segments from `first` of the column, a lane each. [SP 800-38D §7.1] J0 = nonce || 1
  template <class Warp>
  SR_HOST_DEVICE static void make_masks(Warp& warp, const Shared& shared, Quarter& mine, const OpView& op,
                                        const KeyWords& key, Column column, std::uint32_t first) {
    warp.step([&](int lane) {
      const std::uint32_t k = column.index + (first + static_cast<std::uint32_t>(lane)) * column.count;
      const NonceWords nonce = nonce_words(key, op.first_number + k);
      aes::Block block[1] = {counter_block(nonce, 1)};
      aes::encrypt(block, shared.round_keys, shared.rounds, LaneTables(shared.tables, lane));
      for (int i = 0; i < 4; ++i) mine.masks[lane].words[i] = block[0].words[i];
    });
  }

  // Tables and matrices into shared memory.
  template <class Warp>
  SR_HOST_DEVICE static void set_up(Warp& warp, Shared& shared, const GcmKey& key) {
    constexpr int kAll = kThreads / kLanes;
    for (int entry = warp.index(); entry < 256; entry += kAll) {
      warp.each([&](int lane) {
        const std::uint32_t word = key.table[entry];
#pragma unroll
        for (int table = 0; table < 4; ++table)
          shared.tables.words[table / 2][entry][table % 2][lane] = aes::turned(word, table);
      });
    }
    for (int pair = warp.index(); pair < 2 * kTilePairs; pair += kAll) {
      const int s = pair / kTilePairs, p = pair % kTilePairs;
      warp.each([&](int lane) { shared.step[s][p][lane] = key.step[s][p][lane]; });
    }
    if (warp.index() != 0) return;
    warp.step([&](int lane) {
      for (int i = lane; i < 60; i += kLanes) shared.round_keys[i] = key.round_keys[i];
      if (lane < kQuarters) {
        shared.quarters[lane].extra_blocks = 0xFFFFFFFFu;
        shared.quarters[lane].refused = 0;
      }
      if (lane == 0) {
        shared.rounds = key.rounds;
        shared.bad = BadTag{};
      }
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

  template <class Warp>
  SR_HOST_DEVICE static void work(Warp& warp, const Shared& shared, Quarter& mine, const SegmentJob& job,
                                  const OpView& op, const KeyWords& key, Column column, const Pace& pace) {
    const int worker = warp.index() % (kWorkers + 1);
    Tile tile{};
    if (pace.ciphers) tile = tile_of(job, column, pace.now, worker);
    Chunk* plain = nullptr;
    bool fused = false;
    std::uint64_t at = 0;
    if constexpr (kOpen) {
      plain = waiting(job, column, pace.place, worker);
      if (pace.combines && mine.accepted[pace.old.segment % 2] != 0) {
        const Tile old = tile_of(job, column, pace.old, worker);
        if (old.exists()) {
          fused = tile.exists() && can_fuse(job, old);
          at = old.segment.place.payload + std::uint64_t{old.index} * kGcmTileBytes;
          if (!fused) combine_tile(warp, job, old, plain);
        }
      }
    }
    if (tile.exists())
      cipher_tile(warp, shared, mine, job, op, key, fused, at, tile, mine.stored[pace.parity][worker], plain);
  }

  // GHASH of the step before, and the tag of a segment that ends with it.
  template <class Warp>
  SR_HOST_DEVICE static void absorb_step(Warp& warp, Shared& shared, Quarter& mine, const SegmentJob& job,
                                         const OpView& op, const KeyWords& key, Column column, Step step,
                                         std::uint32_t parity) {
    const Segment segment = segment_of(job, column, step.segment);
    const std::uint32_t within = step.within;
    typename Warp::template Lanes<RowWords> sums[2];
    warp.each([&](int lane) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][lane].words[i] = within == 0 ? 0u : mine.sums[n][lane].words[i];
      }
    });
#pragma unroll 1
    for (std::uint32_t from = 0; from < kWorkers && within * kWorkers + from < segment.tiles; from += 2) {
      typename Warp::template Lanes<RowWords> before;
      warp.each([&](int lane) { before[lane] = sums[1][lane]; });
      absorb_tiles(warp, mine.stored[parity][from], shared.step, sums);
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
      return;
    }
    finish_segment(warp, mine, job, segment, tag_of(warp, mine, job, op, key, segment, sums), shared.bad);
  }

  template <class Warp>
  SR_HOST_DEVICE static void finish(Warp& warp, Shared& shared, Quarter& mine, const SegmentJob& job,
                                    const OpView& op, const KeyWords& key, Column column, const Walk& walk,
                                    const Pace& pace) {
    if (pace.absorbs) absorb_step(warp, shared, mine, job, op, key, column, pace.before, pace.parity ^ 1u);
    if (!pace.ciphers) return;
    const std::uint32_t i = pace.now.segment;
    // Behind the tag of segment i-1, which needs the masks before.
    if (pace.now.within == 0 && i % kLanes == 0) make_masks(warp, shared, mine, op, key, column, i);
    if (pace.now.within + 1 == walk.each && i + 1 < walk.segments)
      make_groups(warp, shared, mine, op, key, segment_of(job, column, i + 1));
  }

  template <class Part>
  SR_HOST_DEVICE static void run_quarter(Part& part, Shared& shared, Quarter& mine, const SegmentJob& job,
                                         const OpView& op, const KeyWords& key, Column column) {
    using Warp = typename Part::Warp;
    const Walk walk = walk_of(job, column);
    if (walk.segments == 0) return;
    const auto is_finisher = [](Warp& warp) { return warp.index() % (kWorkers + 1) == kWorkers; };
    part.phase([&](Warp& warp) {
      if (is_finisher(warp)) make_groups(warp, shared, mine, op, key, segment_of(job, column, 0));
    });
    const std::uint32_t phases = walk.steps + (kOpen ? walk.ring() : 1);
    Pace pace{};
    for (std::uint32_t step = 0; step < phases; ++step) {
      pace.ciphers = step < walk.steps;
      pace.absorbs = step >= 1 && step <= walk.steps;
      pace.combines = step >= walk.ring();
      part.phase([&](Warp& warp) {
        if (is_finisher(warp))
          finish(warp, shared, mine, job, op, key, column, walk, pace);
        else
          work(warp, shared, mine, job, op, key, column, pace);
      });
      pace.before = pace.now;
      pace.now.advance(walk);
      if (pace.combines) pace.old.advance(walk);
      pace.place = pace.place + 1 < walk.ring() ? pace.place + 1 : 0;
      pace.parity ^= 1u;
    }
  }

  template <class Block>
  SR_HOST_DEVICE static void run(Block& block, Shared& shared, const SegmentJob& job, const OpView& op,
                                 const KeyWords& key, Column column) {
    using Warp = typename Block::Warp;
    if (!block.shared_begins_at(&shared, kTablesAddress)) {  // never seen; nothing is sealed or opened
      block.phase([&](Warp& warp) {
        warp.step([&](int lane) {
          if (warp.thread(lane) == 0) shared.bad = BadTag{1, 0};
        });
      });
      return;
    }
    block.phase([&](Warp& warp) { set_up(warp, shared, *key.gcm); });
    // The first segments of all are on different multiprocessors.
    block.parts(kQuarters, [&](auto& part, int quarter) {
      run_quarter(part, shared, shared.quarters[quarter], job, op, key,
                  Column{static_cast<std::uint32_t>(quarter) * column.count + column.index,
                         kQuarters * column.count});
    });
  }
};

}  // namespace sealring::cuda
