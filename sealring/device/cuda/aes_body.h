// AES-GCM of many segments: the body of the seal and the open kernels [NIST SP 800-38D §7].
//
// A block is 16 warps that encrypt and four that finish, which share the work of a segment over two phases:
// everything they do waits for the shared memory that encryption saturates. In phase i of a column the
// workers combine segment i-4 (open) and encrypt or decrypt segment i. GHASH of a tile is evaluated between
// the rounds of the worker's next tile, that of a segment's last tile between those of the next segment's
// first: so it never stands alone behind a barrier that all warps reach together.
//
// Meanwhile each finisher adds up a quarter of the columns of the rows of segment i-2. Besides, one writes
// (seal) or checks (open) the tag of segment i-3, one multiplies AAD and lengths of i-2, and two prepare the
// segments to come.
//
// AES is bound by lookups in shared memory (four tables, a copy a lane), so GHASH is on the tensor cores
// (aes_key.h, aes_ghash.h). A worker walks over every 16th tile of 2 KiB; a lane encrypts 4 blocks, 512 bytes
// apart, so that memory is touched lane after lane. open leaves the plaintext in private memory (in L2,
// mostly) until the tag is known: ciphertext is read once, and nothing reaches the tensor before its tag was
// accepted [protocol E.1].
#pragma once

#include <cstddef>

#include "sealring/device/cuda/aes_ghash.h"
#include "sealring/device/cuda/aes_tile.h"
#include "sealring/device/cuda/combine.h"
#include "sealring/device/cuda/kernel_list.h"
#include "sealring/device/cuda/user_memory.h"

namespace sealring::cuda {

/// The choices of one kernel. open: plaintext waits in job.private_tiles, kDepth times
/// private_bytes(segment_bytes) a column. kFuse: accepted tiles are combined between the rounds of others.
template <Direction kDirectionOf, CombineKind kCombineOf, bool kFuseOf = true>
struct AesConfig {
  static constexpr Direction kDirection = kDirectionOf;
  static constexpr CombineKind kCombine = kCombineOf;
  static constexpr bool kFuse = kFuseOf;
};

template <class Config>
struct AesBody {
  static constexpr bool kOpen = Config::kDirection == Direction::open;
  static constexpr int kWorkers = kGcmWorkers;
  static constexpr int kFinishers = kFinishGroups;
  static constexpr int kThreads = (kWorkers + kFinishers) * kLanes;
  static constexpr int kBlocks = 1;
  static constexpr std::uint32_t kDepth = 4;                        ///< open: segments whose plaintext waits
  static constexpr std::uint32_t kStep = kWorkers * kGcmTileBytes;  ///< what all workers do at once
  static constexpr std::uint32_t kStored = kStep / 16;
  static constexpr std::uint32_t kPhasesBehind =
      kOpen ? kDepth : 3;                               ///< after the last segment was encrypted
  static constexpr int kExtras = kAadChunks + 1;        ///< blocks of AAD, and the lengths
  static constexpr std::uint32_t kGroups = 2 * kLanes;  ///< counter groups that are prepared of a segment
  static constexpr std::uint32_t kHashRounds = 4;       ///< rounds 3 .. 6 have GHASH between them
  static constexpr std::uint32_t kCombineRounds = 2;    ///< and these the tensor's words on their way (open)

  struct Shared {
    AesTables tables;       ///< first: its address is part of the code
    Chunk stored[kStored];  ///< ciphertext of the tiles in work
    MatrixPair step[2];
    Chunk rows[3][kWorkers][kGcmRows];       ///< GHASH's rows of each warp: in work, made, being added up
    Chunk sums[2][kFinishGroups][kGcmRows];  ///< of all warps, the bits of each finisher
    ghash::Element extras[2][kExtras];       ///< AAD and lengths, times their powers
    Chunk masks[2][kLanes];                  ///< E(K, J0) of 32 segments
    Chunk groups_two[2][kGroups];            ///< of a segment's counters by 256, see aes::CounterGroup
    std::uint32_t groups_one[2][kGroups];
    alignas(16) std::uint32_t round_keys[60];
    ghash::Element extra_powers[kExtras];
    std::uint32_t extra_blocks;  ///< the length they are for
    std::uint32_t rounds;
    std::uint32_t accepted[kDepth];
    BadTag bad;
  };
  static_assert(offsetof(Shared, tables) == 0);

  /// What lies behind is cleared at the end of a kernel.
  static constexpr std::size_t kSecretsFrom = offsetof(Shared, step);

  /// One segment of the column, as all warps see it.
  struct Segment {
    std::uint32_t i;  ///< place in the column
    std::uint32_t k;  ///< place in the job
    Place place;
    std::uint32_t blocks, tiles;
    SR_HOST_DEVICE std::uint32_t parity() const { return i % 2; }
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
  /// The first tile of a worker and so all: first, first + kWorkers, ... The last tile is worker 0's.
  SR_HOST_DEVICE static std::uint32_t first_tile(const Segment& segment, int worker) {
    const int behind = static_cast<int>(segment.tiles) - 1 - worker;
    return behind < 0 ? segment.tiles : static_cast<std::uint32_t>(behind % kWorkers);
  }
  /// A worker keeps to its own places whatever the number of tiles: another one may still be at an older
  /// segment.
  SR_HOST_DEVICE static std::uint32_t own_place(std::uint32_t tile, int worker) {
    return (tile / kWorkers * kWorkers + static_cast<std::uint32_t>(worker)) * kGcmTileChunks;
  }
  /// The 128 chunks in which a worker's ciphertext meets the tensor cores' layout.
  SR_HOST_DEVICE static Chunk* staged(Shared& shared, int worker) {
    return shared.stored + static_cast<std::uint32_t>(worker) * kGcmTileChunks;
  }
  /// Where the plaintext of a tile waits for its tag.
  SR_HOST_DEVICE static Chunk* waiting(const SegmentJob& job, Column column, const Segment& segment,
                                       int worker, std::uint32_t tile) {
    const std::uint64_t index = std::uint64_t{kDepth} * column.index + segment.i % kDepth;
    std::byte* const at = job.private_tiles + index * private_bytes(job.layout.segment_bytes);
    return reinterpret_cast<Chunk*>(at) + own_place(tile, worker);
  }
  /// What one of the kDepth segments of a column needs of job.private_tiles.
  SR_HOST_DEVICE static constexpr std::uint64_t private_bytes(std::uint32_t segment_bytes) {
    return (static_cast<std::uint64_t>(segment_bytes) + kStep - 1) / kStep * kStep;
  }
  template <class Warp>
  struct Registers {
    typename Warp::template Lanes<AesStream> stream;
    typename Warp::template Lanes<AesRow> row;
    TileHash<Warp> hash;
  };

  SR_HOST_DEVICE static aes::Block counter_block(const NonceWords& nonce, std::uint32_t counter) {
    return aes::Block{{nonce.words[0], nonce.words[1], nonce.words[2], ghash::swapped(counter)}};
  }
  // The group of a counter: prepared, or in a very large segment made here.
  SR_HOST_DEVICE static aes::CounterGroup group_of(const Shared& shared, const Segment& segment,
                                                   const NonceWords& nonce, std::uint32_t counter,
                                                   const LaneTables& tables) {
    const std::uint32_t group = counter >> 8;
    if (segment.blocks / 256 + 2 > kGroups)
      return aes::counter_group(counter_block(nonce, counter), shared.round_keys, tables);
    const Chunk two = shared.groups_two[segment.parity()][group];
    return aes::CounterGroup{{two.words[0], two.words[1], two.words[2], two.words[3]},
                             shared.groups_one[segment.parity()][group]};
  }
  // All groups of a segment, a lane each.
  template <class Warp>
  SR_HOST_DEVICE static void make_groups(Warp& warp, Shared& shared, const OpView& op, const KeyWords& key,
                                         const Segment& segment) {
    const std::uint32_t groups = segment.blocks / 256 + 2;
    if (groups > kGroups) return;
    const NonceWords nonce = nonce_words(key, op.first_number + segment.k);
    for (std::uint32_t from = 0; from < groups; from += kLanes) {
      warp.step([&](int lane) {
        const std::uint32_t group = from + static_cast<std::uint32_t>(lane);
        const aes::CounterGroup made = aes::counter_group(counter_block(nonce, group << 8), shared.round_keys,
                                                          LaneTables(shared.tables, lane));
        shared.groups_two[segment.parity()][group] =
            Chunk{{made.after_two[0], made.after_two[1], made.after_two[2], made.after_two[3]}};
        shared.groups_one[segment.parity()][group] = made.after_one;
      });
    }
  }

  // The counter blocks of a lane's row after two rounds.
  SR_HOST_DEVICE static void begin_row(const Shared& shared, const Segment& segment, const NonceWords& nonce,
                                       std::uint32_t tile, int lane, AesStream& stream) {
    const LaneTables tables(shared.tables, lane);
    // [SP 800-38D §7.1] inc32(J0) is the first counter: J0 ends in 1, so the data begins with 2, and only the
    // last two blocks of a tile may belong to another group than the first ones.
    const std::uint32_t counter = tile * kGcmTileChunks + static_cast<std::uint32_t>(lane) + 2;
    const aes::CounterGroup first = group_of(shared, segment, nonce, tile * kGcmTileChunks + 2, tables);
    const aes::CounterGroup last = group_of(shared, segment, nonce, counter + 3 * kLanes, tables);
#pragma unroll
    for (std::uint32_t c = 0; c < 4; ++c)
      stream.block[c] = aes::after_two_rounds(c < 3 ? first : last, (counter + c * kLanes) << 24,
                                              shared.round_keys, tables);
  }

  // Some rounds of a tile, none of them the last.
  template <class Warp>
  SR_HOST_DEVICE static void rounds_of(Warp& warp, const Shared& shared, std::uint32_t first,
                                       std::uint32_t end, Registers<Warp>& registers) {
    warp.each([&](int lane) {
      aes::full_rounds(first, end, registers.stream[lane].block, shared.round_keys,
                       LaneTables(shared.tables, lane));
    });
  }

  // Rounds 3 to 6 of a tile, and between them GHASH of the tile before it, whose ciphertext is in `stage`.
  template <class Warp>
  SR_HOST_DEVICE static void rounds_and_hash(Warp& warp, const Shared& shared, const Chunk* stage,
                                             Registers<Warp>& registers) {
    constexpr std::uint32_t kPairs = kTilePairs / kHashRounds;
    begin_tile(warp, stage, registers.hash);
#pragma unroll 1
    for (std::uint32_t round = 0; round < kHashRounds; ++round) {
      warp.each([&](int lane) {
        const LaneTables tables(shared.tables, lane);
        const aes::RoundKey key =
            *reinterpret_cast<const aes::RoundKey*>(shared.round_keys + 4 * (3 + round));
#pragma unroll
        for (aes::Block& block : registers.stream[lane].block)
          block = aes::full_round(block, key.words, tables);
      });
#pragma unroll
      for (std::uint32_t pair = 0; pair < kPairs; ++pair)
        absorb_pair(warp, shared.step, round * kPairs + pair, registers.hash);
    }
    end_tile(warp, stage, registers.hash);
  }

  // Two rounds, during each of which one half of an accepted tile's words is on its way from the tensor and
  // from where its plaintext waits.
  template <class Warp>
  SR_HOST_DEVICE static void rounds_and_combine(Warp& warp, const Shared& shared, const SegmentJob& job,
                                                const Segment& old, std::uint32_t tile, const Chunk* plain,
                                                Registers<Warp>& registers) {
    struct Half {
      Chunk mine[2], accepted[2];
    };
    typename Warp::template Lanes<Half> half;
    const std::uint64_t origin = old.place.payload + std::uint64_t{tile} * kGcmTileBytes;
#pragma unroll 1
    for (std::uint32_t part = 0; part < kCombineRounds; ++part) {
      const std::uint32_t first_chunk = 2 * part * kLanes;
      const std::uint64_t at = origin + 16 * first_chunk;
      warp.each([&](int lane) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const std::uint32_t slot = static_cast<std::uint32_t>(c * kLanes + lane);
          half[lane].accepted[c] = plain[first_chunk + slot];
          if (Config::kCombine != CombineKind::replace)
            half[lane].mine[c] = load_aligned(job.combine.local + at + slot * 16);
        }
      });
      rounds_of(warp, shared, 3 + kHashRounds + part, 4 + kHashRounds + part, registers);
      warp.each([&](int lane) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          store_aligned(job.combine.dst + at + static_cast<std::uint32_t>(c * kLanes + lane) * 16,
                        combined<Config::kCombine>(job.combine, half[lane].mine[c], half[lane].accepted[c]));
        }
      });
    }
  }

  // `old`, if not null: an accepted segment whose same tile is combined on the way.
  template <class Warp>
  SR_HOST_DEVICE static void work_on_tile(Warp& warp, Shared& shared, const SegmentJob& job, Column column,
                                          const NonceWords& nonce, const Segment* old, const Segment& segment,
                                          std::uint32_t tile, Registers<Warp>& registers) {
    const int worker = warp.index();
    Chunk* const stage = staged(shared, worker);
    Chunk* const plain = kOpen ? waiting(job, column, segment, worker, tile) : nullptr;
    warp.each([&](int lane) { begin_row(shared, segment, nonce, tile, lane, registers.stream[lane]); });
    rounds_and_hash(warp, shared, stage, registers);
    std::uint32_t next = 3 + kHashRounds;
    if constexpr (kFuses) {
      if (old != nullptr) {
        rounds_and_combine(warp, shared, job, *old, tile, plain, registers);
        next += kCombineRounds;
      }
    }
    warp.step([&](int lane) {
      AesStream& stream = registers.stream[lane];
      AesRow& row = registers.row[lane];
      load_row<kOpen>(warp, job, segment.place, tile, lane, row);
      aes::rounds_from(next, stream.block, shared.round_keys, shared.rounds, LaneTables(shared.tables, lane));
      end_row<kOpen>(job, segment.place, tile, lane, stream, row, stage, plain);
    });
  }

  // Puts a worker's rows of a segment where the next phase finds them.
  template <class Warp>
  SR_HOST_DEVICE static void put_rows(Warp& warp, Shared& shared, std::uint32_t i, TileHash<Warp>& hash) {
    const int worker = warp.index();
    warp.step([&](int lane) {
      put_row_words(hash.value[lane], shared.rows[i % 3][worker], lane);
      hash.value[lane] = RowWords{};
    });
  }

  // Segment i, and GHASH of the worker's last tile of segment i-1 (`pending`: it has one).
  template <class Warp>
  SR_HOST_DEVICE static void cipher_segment(Warp& warp, Shared& shared, const SegmentJob& job,
                                            const OpView& op, const KeyWords& key, Column column,
                                            bool pending, const Segment* old, const Segment& segment) {
    const NonceWords nonce = nonce_words(key, op.first_number + segment.k);
    Registers<Warp> registers;
    warp.each([&](int lane) { registers.hash.value[lane] = RowWords{}; });
    if (pending) resume(warp, shared, segment.i - 1, registers.hash);
    bool first = true;
    for (std::uint32_t tile = first_tile(segment, warp.index()); tile < segment.tiles; tile += kWorkers) {
      work_on_tile(warp, shared, job, column, nonce, old, segment, tile, registers);
      if (first && pending) put_rows(warp, shared, segment.i - 1, registers.hash);
      // What was absorbed before the first tile of all is no tile.
      if (first) warp.each([&](int lane) { registers.hash.value[lane] = RowWords{}; });
      first = false;
    }
    if (first && pending) end_segment(warp, shared, segment.i - 1, registers.hash);
    put_rows(warp, shared, segment.i, registers.hash);
  }
  // The rows before the last tile of segment i, and (with nothing beside it) behind it.
  template <class Warp>
  SR_HOST_DEVICE static void resume(Warp& warp, const Shared& shared, std::uint32_t i, TileHash<Warp>& hash) {
    const int worker = warp.index();
    warp.each([&](int lane) { hash.value[lane] = row_words(shared.rows[i % 3][worker], lane); });
  }
  template <class Warp>
  SR_HOST_DEVICE static void end_segment(Warp& warp, Shared& shared, std::uint32_t i, TileHash<Warp>& hash) {
    const Chunk* const stage = staged(shared, warp.index());
    begin_tile(warp, stage, hash);
#pragma unroll 1
    for (std::uint32_t pair = 0; pair < kTilePairs; ++pair) absorb_pair(warp, shared.step, pair, hash);
    end_tile(warp, stage, hash);
    put_rows(warp, shared, i, hash);
  }

  // The accepted plaintext of a segment into the tensor.
  template <class Warp>
  SR_HOST_DEVICE static void combine_segment(Warp& warp, const SegmentJob& job, Column column,
                                             const Segment& segment) {
    constexpr bool kReads = Config::kCombine != CombineKind::replace;
    const std::byte* const local = job.combine.local + segment.place.payload;
    std::byte* const dst = job.combine.dst + segment.place.payload;
    const bool aligned = misalignment(dst) == 0 && misalignment(local) == 0;
    const ConstUserMemory memory{job.combine.local, payload_bytes_of(job)};
    const int worker = warp.index();
    for (std::uint32_t tile = first_tile(segment, worker); tile < segment.tiles; tile += kWorkers) {
      const Chunk* const plain = waiting(job, column, segment, worker, tile);
      warp.step([&](int lane) {
        const std::uint64_t begin =
            std::uint64_t{tile} * kGcmTileBytes + static_cast<std::uint32_t>(lane) * 16;
        Chunk mine[4] = {};
        if constexpr (kReads) {
#pragma unroll
          for (std::uint32_t c = 0; c < 4; ++c) {
            const std::uint64_t at = begin + c * 16 * kLanes;
            const std::uint32_t bytes = chunk_bytes(segment.place, at);
            if (bytes == 16)
              mine[c] = aligned ? load_aligned(local + at) : load_any(memory, local + at);
            else
              mine[c] = load_bytes(local + at, bytes);
          }
        }
#pragma unroll
        for (std::uint32_t c = 0; c < 4; ++c) {
          const std::uint64_t at = begin + c * 16 * kLanes;
          const std::uint32_t bytes = chunk_bytes(segment.place, at);
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
  }

  // What lane `lane` adds to the rows' sum: a block of AAD, or the lengths.
  SR_HOST_DEVICE static ghash::Element extra_block(const SegmentJob& job, const OpView& op,
                                                   const Segment& segment, int lane) {
    if (lane < kAadChunks) return ghash::element_of(aad_chunk(job, op, segment.k, lane).words);
    const std::uint64_t bits = std::uint64_t{segment.place.payload_bytes} * 8;
    return ghash::Element{{0, static_cast<std::uint32_t>(kAadBytes) * 8,
                           static_cast<std::uint32_t>(bits >> 32), static_cast<std::uint32_t>(bits)}};
  }

  // A finisher's quarter of the sum of a segment's rows over the warps.
  template <class Warp>
  SR_HOST_DEVICE static void sum_rows(Warp& warp, Shared& shared, const KeyWords& key, const Segment& segment,
                                      int group) {
    typename Warp::template Lanes<RowWords> sum;
    const std::uint32_t warps = segment.tiles < kWorkers ? segment.tiles : kWorkers;
    sum_warps(warp, key.gcm->finish, shared.rows[segment.i % 3], (warps + 1) / 2, group, sum);
    warp.step([&](int lane) { put_row_words(sum[lane], shared.sums[segment.parity()][group], lane); });
  }

  // AAD and lengths of a segment, each times its power.
  template <class Warp>
  SR_HOST_DEVICE static void multiply_extras(Warp& warp, Shared& shared, const SegmentJob& job,
                                             const OpView& op, const KeyWords& key, const Segment& segment) {
    const bool other_length = segment.blocks != shared.extra_blocks;  // most are as long as the one before
    warp.step([&](int lane) {
      if (lane >= kExtras) return;
      // Behind AAD block i: the others, the ciphertext and the lengths.
      const std::uint32_t behind = segment.blocks + 6 - static_cast<std::uint32_t>(lane);
      if (other_length) shared.extra_powers[lane] = power_of(*key.gcm, lane < kAadChunks ? behind : 1u);
      shared.extras[segment.parity()][lane] =
          ghash::multiply(extra_block(job, op, segment, lane), shared.extra_powers[lane]);
    });
    warp.step([&](int lane) {
      if (lane == 0) shared.extra_blocks = segment.blocks;
    });
  }

  // From the sums of a segment, every lane gets the tag.
  template <class Warp>
  SR_HOST_DEVICE static Chunk tag_of(Warp& warp, const Shared& shared, const KeyWords& key,
                                     const Segment& segment) {
    typename Warp::template Lanes<std::uint32_t> words[4];
    warp.step([&](int lane) {
      // The last tile is padded behind, which H's inverse powers take back.
      const int padded = static_cast<int>(segment.tiles * kGcmTileChunks);
      const int place = static_cast<int>(segment.blocks) + 2 - padded + 31 - lane - kNearFirst;
      Chunk sum = shared.sums[segment.parity()][0][lane];
#pragma unroll
      for (int group = 1; group < kFinishGroups; ++group)
        sum = sum ^ shared.sums[segment.parity()][group][lane];
      ghash::Element all = ghash::multiply(ghash::element_of(sum.words), key.gcm->near_powers[place]);
      if (lane < kExtras) all = all ^ shared.extras[segment.parity()][lane];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i][lane] = ghash::swapped(all.words[i]);
    });
    Chunk out = shared.masks[segment.i / kLanes % 2][segment.i % kLanes];
#pragma unroll
    for (int i = 0; i < 4; ++i) out.words[i] ^= warp.sum_bits(words[i]);
    return out;
  }
  template <class Warp>
  SR_HOST_DEVICE static void finish_segment(Warp& warp, Shared& shared, const SegmentJob& job,
                                            const KeyWords& key, const Segment& segment) {
    const Chunk tag = tag_of(warp, shared, key, segment);
    std::byte* const at = job.wire + segment.place.wire + segment.place.payload_bytes;
    if constexpr (!kOpen) {
      warp.step([&](int lane) {
        if (lane < static_cast<int>(kTagBytes)) at[lane] = static_cast<std::byte>(byte_of(tag, lane));
      });
    } else {
      // Constant time: every byte is compared, and only the whole says anything.
      typename Warp::template Lanes<std::uint32_t> differs;
      warp.step([&](int lane) {
        differs[lane] =
            lane < static_cast<int>(kTagBytes) ? warp.window_byte(at + lane) ^ byte_of(tag, lane) : 0u;
      });
      const bool refused = warp.any(differs);
      warp.step([&](int lane) {
        if (lane != 0) return;
        if (refused && shared.bad.refused == 0) shared.bad = BadTag{1, segment.k};
        // After the first refusal the column writes nothing more.
        shared.accepted[segment.i % kDepth] = shared.bad.refused == 0 ? 1u : 0u;
      });
    }
  }

  // E(K, J0) of the 32 segments from `first` of the column, a lane each. [SP 800-38D §7.1] J0 = nonce || 1
  template <class Warp>
  SR_HOST_DEVICE static void make_masks(Warp& warp, Shared& shared, const OpView& op, const KeyWords& key,
                                        Column column, std::uint32_t first) {
    warp.step([&](int lane) {
      const std::uint32_t k = column.index + (first + static_cast<std::uint32_t>(lane)) * column.count;
      const NonceWords nonce = nonce_words(key, op.first_number + k);
      aes::Block block[1] = {counter_block(nonce, 1)};
      aes::encrypt(block, shared.round_keys, shared.rounds, LaneTables(shared.tables, lane));
      for (int i = 0; i < 4; ++i) shared.masks[first / kLanes % 2][lane].words[i] = block[0].words[i];
    });
  }

  // Tables and matrices into shared memory.
  template <class Warp>
  SR_HOST_DEVICE static void set_up(Warp& warp, Shared& shared, const GcmKey& key) {
    constexpr int kAll = kWorkers + kFinishers;
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
    if (warp.index() != kWorkers) return;
    warp.step([&](int lane) {
      for (int i = lane; i < 60; i += kLanes) shared.round_keys[i] = key.round_keys[i];
      if (lane != 0) return;
      shared.rounds = key.rounds;
      shared.extra_blocks = 0xFFFFFFFFu;
      shared.bad = BadTag{};
    });
  }

  // Whether the tiles of `old` can be combined between the rounds of those of `segment`.
  static constexpr bool kFuses = kOpen && Config::kFuse && Config::kCombine != CombineKind::any;
  SR_HOST_DEVICE static bool can_fuse(const SegmentJob& job, const Segment& old, const Segment& segment) {
    return kFuses && old.place.payload_bytes == segment.place.payload_bytes &&
           segment.place.payload_bytes % kGcmTileBytes == 0 && misalignment(job.combine.dst) == 0 &&
           misalignment(job.combine.local) == 0;
  }

  // A worker's part of phase i.
  template <class Warp>
  SR_HOST_DEVICE static void work(Warp& warp, Shared& shared, const SegmentJob& job, const OpView& op,
                                  const KeyWords& key, Column column, std::uint32_t i, std::uint32_t count) {
    const bool opened = kOpen && i >= kDepth && shared.accepted[i % kDepth] != 0;
    const Segment old = segment_of(job, column, opened ? i - kDepth : 0);
    bool pending = false;
    if (i >= 1 && i <= count) {
      const Segment before = segment_of(job, column, i - 1);
      pending = first_tile(before, warp.index()) < before.tiles;
    }
    if (i < count) {
      const Segment segment = segment_of(job, column, i);
      const bool fused = opened && can_fuse(job, old, segment);
      if constexpr (kOpen) {
        if (opened && !fused) combine_segment(warp, job, column, old);
      }
      cipher_segment(warp, shared, job, op, key, column, pending, fused ? &old : nullptr, segment);
      return;
    }
    if constexpr (kOpen) {
      if (opened) combine_segment(warp, job, column, old);
    }
    if (!pending) return;
    TileHash<Warp> hash;
    resume(warp, shared, i - 1, hash);
    end_segment(warp, shared, i - 1, hash);
  }

  template <class Warp>
  SR_HOST_DEVICE static void one_phase(Warp& warp, Shared& shared, const SegmentJob& job, const OpView& op,
                                       const KeyWords& key, Column column, std::uint32_t i,
                                       std::uint32_t count) {
    if (warp.index() < kWorkers) {
      work(warp, shared, job, op, key, column, i, count);
      return;
    }
    const int group = warp.index() - kWorkers;
    const bool sums = i >= 2 && i <= count + 1;
    if (sums) sum_rows(warp, shared, key, segment_of(job, column, i - 2), group);
    if (group == 0 && i >= 3 && i <= count + 2)
      finish_segment(warp, shared, job, key, segment_of(job, column, i - 3));
    if (group == 1 && sums) multiply_extras(warp, shared, job, op, key, segment_of(job, column, i - 2));
    if (group == 2 && i + 1 < count) make_groups(warp, shared, op, key, segment_of(job, column, i + 1));
    if (group == 3 && i < count && i % kLanes == 0) make_masks(warp, shared, op, key, column, i);
  }

  template <class Block>
  SR_HOST_DEVICE static void run(Block& block, Shared& shared, const SegmentJob& job, const OpView& op,
                                 const KeyWords& key, Column column) {
    using Warp = typename Block::Warp;
    const std::uint32_t count =
        column.index < job.segments ? (job.segments - column.index + column.count - 1) / column.count : 0;
    if (!block.shared_begins_at(&shared, kTablesAddress)) {  // never seen; nothing is sealed or opened
      block.phase([&](Warp& warp) {
        warp.step([&](int lane) {
          if (warp.thread(lane) == 0) shared.bad = BadTag{1, 0};
        });
      });
      return;
    }
    block.phase([&](Warp& warp) { set_up(warp, shared, *key.gcm); });
    if (count == 0) return;
    block.phase([&](Warp& warp) {
      if (warp.index() == kWorkers) make_groups(warp, shared, op, key, segment_of(job, column, 0));
    });
    for (std::uint32_t i = 0; i < count + kPhasesBehind; ++i)
      block.phase([&](Warp& warp) { one_phase(warp, shared, job, op, key, column, i, count); });
  }
};

}  // namespace sealring::cuda
