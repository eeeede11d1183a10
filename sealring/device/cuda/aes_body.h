// AES-GCM of many segments: the body of the seal and the open kernels [NIST SP 800-38D §7].
//
// A block is 16 warps that encrypt and four that finish, which share the work of a segment over two phases:
// everything they do waits for the shared memory that encryption saturates. In phase i of a column the
// workers combine segment i-3 (open), then encrypt or decrypt segment i and evaluate their part of its GHASH.
//
// Meanwhile each finisher adds up a quarter of the columns of the rows of segment i-1. Besides, one writes
// (seal) or checks (open) the tag of segment i-2, one multiplies AAD and lengths of i-1, and two prepare the
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
#include "sealring/device/cuda/combine.h"
#include "sealring/device/cuda/kernel_list.h"
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
  static constexpr int kWorkers = kGcmWorkers;
  static constexpr int kFinishers = kFinishGroups;
  static constexpr int kThreads = (kWorkers + kFinishers) * kLanes;
  static constexpr int kBlocks = 1;
  static constexpr std::uint32_t kDepth = 3;                        ///< open: segments whose plaintext waits
  static constexpr std::uint32_t kStep = kWorkers * kGcmTileBytes;  ///< what all workers do at once
  static constexpr std::uint32_t kStored = kStep / 16;
  static constexpr std::uint32_t kPhasesBehind =
      kOpen ? kDepth : 2;                               ///< after the last segment was encrypted
  static constexpr int kExtras = kAadChunks + 1;        ///< blocks of AAD, and the lengths
  static constexpr std::uint32_t kGroups = 2 * kLanes;  ///< counter groups that are prepared of a segment

  struct Shared {
    AesTables tables;       ///< first: its address is part of the code
    Chunk stored[kStored];  ///< ciphertext of the tiles in work
    MatrixPair step[2];
    Chunk rows[2][kWorkers][kGcmRows];  ///< GHASH's rows of each warp
    Chunk sums[2][kGcmRows];            ///< of all warps
    ghash::Element extras[2][kExtras];  ///< AAD and lengths, times their powers
    Chunk masks[2][kLanes];             ///< E(K, J0) of 32 segments
    Chunk groups_two[2][kGroups];       ///< of a segment's counters by 256, see aes::CounterGroup
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
  /// Bytes of the chunk that begins at `begin`: 16, fewer at the end, 0 behind it.
  SR_HOST_DEVICE static std::uint32_t chunk_bytes(const Segment& segment, std::uint64_t begin) {
    if (begin >= segment.place.payload_bytes) return 0;
    const auto left = static_cast<std::uint32_t>(segment.place.payload_bytes - begin);
    return left < 16 ? left : 16;
  }

  struct Row {
    Chunk chunk[4];
  };

  template <class Warp>
  SR_HOST_DEVICE static Chunk load_chunk(Warp& warp, const SegmentJob& job, const Segment& segment,
                                         std::uint64_t begin, std::uint32_t bytes) {
    Chunk out{};
    if constexpr (kOpen) {
      const std::byte* const from = job.wire + segment.place.wire + begin;
      if (bytes == 16) return warp.window_chunk(from);
      for (std::uint32_t b = 0; b < bytes; ++b) {
        const std::uint32_t value = warp.window_byte(from + b) << (8 * (b % 4));
#pragma unroll
        for (std::uint32_t w = 0; w < 4; ++w) out.words[w] |= w == b / 4 ? value : 0u;
      }
      return out;
    } else {
      const std::byte* const from = job.plaintext + segment.place.payload + begin;
      if (bytes == 16) return load_any(ConstUserMemory{job.plaintext, payload_bytes_of(job)}, from);
      return load_bytes(from, bytes);
    }
  }

  // Four chunks a lane of a tile, from the tensor (seal) or the window (open).
  template <class Warp>
  SR_HOST_DEVICE static void load_row(Warp& warp, const SegmentJob& job, const Segment& segment,
                                      std::uint32_t tile, int lane, Row& row) {
    const std::uint64_t begin = std::uint64_t{tile} * kGcmTileBytes + static_cast<std::uint32_t>(lane) * 16;
    constexpr std::uint32_t kApart = 16 * kLanes;
    if (std::uint64_t{tile + 1} * kGcmTileBytes <= segment.place.payload_bytes) {
      const std::byte* const from =
          kOpen ? job.wire + segment.place.wire + begin : job.plaintext + segment.place.payload + begin;
      if (kOpen || misalignment(from) == 0) {
#pragma unroll
        for (std::uint32_t c = 0; c < 4; ++c)
          row.chunk[c] = kOpen ? warp.window_chunk(from + c * kApart) : load_aligned(from + c * kApart);
        return;
      }
    }
#pragma unroll
    for (std::uint32_t c = 0; c < 4; ++c) {
      const std::uint64_t at = begin + c * kApart;
      row.chunk[c] = load_chunk(warp, job, segment, at, chunk_bytes(segment, at));
    }
  }

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

  // Encrypts or decrypts a loaded row: ciphertext to `stage` and (seal) to the wire, plaintext (open) to
  // `row`.
  SR_HOST_DEVICE static void cipher_row(const Shared& shared, const SegmentJob& job, const Segment& segment,
                                        const NonceWords& nonce, std::uint32_t tile, int lane, Row& row,
                                        Chunk* stage) {
    aes::Block stream[4];
    const LaneTables tables(shared.tables, lane);
    // [SP 800-38D §7.1] inc32(J0) is the first counter: J0 ends in 1, so the data begins with 2, and only the
    // last two blocks of a tile may belong to another group than the first ones.
    const std::uint32_t counter = tile * kGcmTileChunks + static_cast<std::uint32_t>(lane) + 2;
    const aes::CounterGroup first = group_of(shared, segment, nonce, tile * kGcmTileChunks + 2, tables);
    const aes::CounterGroup last = group_of(shared, segment, nonce, counter + 3 * kLanes, tables);
#pragma unroll
    for (std::uint32_t c = 0; c < 4; ++c)
      stream[c] = aes::after_two_rounds(c < 3 ? first : last, (counter + c * kLanes) << 24, shared.round_keys,
                                        tables);
    aes::rounds_from(3, stream, shared.round_keys, shared.rounds, tables);
    const std::uint64_t begin = std::uint64_t{tile} * kGcmTileBytes + static_cast<std::uint32_t>(lane) * 16;
#pragma unroll
    for (std::uint32_t c = 0; c < 4; ++c) {
      const std::uint64_t at = begin + c * 16 * kLanes;
      const std::uint32_t bytes = chunk_bytes(segment, at);
      const std::uint32_t(&words)[4] = stream[c].words;
      const Chunk out = row.chunk[c] ^ Chunk {
        { words[0], words[1], words[2], words[3] }
      };
      if constexpr (kOpen) {
        stage[c * kLanes + static_cast<std::uint32_t>(lane)] = row.chunk[c];
        row.chunk[c] = out;
      } else {
        std::byte* const to = job.wire + segment.place.wire + at;
        Chunk sealed = out;
        if (bytes == 16) {
          store_aligned(to, out);
        } else {
          sealed = truncated(out, bytes);
          store_bytes(to, out, bytes);
        }
        stage[c * kLanes + static_cast<std::uint32_t>(lane)] = sealed;
      }
    }
  }

  template <class Warp>
  SR_HOST_DEVICE static void cipher_segment(Warp& warp, Shared& shared, const SegmentJob& job,
                                            const OpView& op, const KeyWords& key, Column column,
                                            const Segment& segment) {
    const int worker = warp.index();
    const NonceWords nonce = nonce_words(key, op.first_number + segment.k);
    typename Warp::template Lanes<Row> row;
    TileOperands<Warp> operands;
    warp.each([&](int lane) { operands.value[lane] = RowWords{}; });
    for (std::uint32_t tile = first_tile(segment, worker); tile < segment.tiles; tile += kWorkers) {
      Chunk* const stage = staged(shared, worker);
      warp.step([&](int lane) {
        load_row(warp, job, segment, tile, lane, row[lane]);
        cipher_row(shared, job, segment, nonce, tile, lane, row[lane], stage);
      });
      warp.step([&](int lane) {
#pragma unroll
        for (int c = 0; c < 4; ++c) operands.block[c][lane] = row_words(stage + c * kGcmRows, lane);
      });
      if constexpr (kOpen) {
        Chunk* const plain = waiting(job, column, segment, worker, tile);
        warp.step([&](int lane) {
#pragma unroll
          for (int c = 0; c < 4; ++c) plain[c * kLanes + lane] = row[lane].chunk[c];
        });
      }
      absorb_tile(warp, shared.step, operands);
    }
    warp.step(
        [&](int lane) { put_row_words(operands.value[lane], shared.rows[segment.parity()][worker], lane); });
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
            const std::uint32_t bytes = chunk_bytes(segment, at);
            if (bytes == 16)
              mine[c] = aligned ? load_aligned(local + at) : load_any(memory, local + at);
            else
              mine[c] = load_bytes(local + at, bytes);
          }
        }
#pragma unroll
        for (std::uint32_t c = 0; c < 4; ++c) {
          const std::uint64_t at = begin + c * 16 * kLanes;
          const std::uint32_t bytes = chunk_bytes(segment, at);
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
    sum_warps(warp, key.gcm->finish, shared.rows[segment.parity()], (warps + 1) / 2, group, sum);
    warp.step([&](int lane) { put_row_bytes(sum[lane], shared.sums[segment.parity()], lane, group); });
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
      ghash::Element all = ghash::multiply(ghash::element_of(shared.sums[segment.parity()][lane].words),
                                           key.gcm->near_powers[place]);
      if (lane < kExtras) all = all ^ shared.extras[segment.parity()][lane];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i][lane] = ghash::swapped(all.words[i]);
    });
    Chunk out = shared.masks[segment.i / kLanes % 2][segment.i % kLanes];
#pragma unroll
    for (int i = 0; i < 4; ++i) out.words[i] ^= warp.sum_bits(words[i]);
    return out;
  }
  SR_HOST_DEVICE static std::uint32_t byte_of(const Chunk& chunk, int b) {
    const std::uint32_t word =
        b < 8 ? (b < 4 ? chunk.words[0] : chunk.words[1]) : (b < 12 ? chunk.words[2] : chunk.words[3]);
    return (word >> (8 * (b & 3))) & 0xFFu;
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

  template <class Warp>
  SR_HOST_DEVICE static void one_phase(Warp& warp, Shared& shared, const SegmentJob& job, const OpView& op,
                                       const KeyWords& key, Column column, std::uint32_t i,
                                       std::uint32_t count) {
    if (warp.index() < kWorkers) {
      if constexpr (kOpen) {
        if (i >= kDepth && shared.accepted[i % kDepth] != 0)
          combine_segment(warp, job, column, segment_of(job, column, i - kDepth));
      }
      if (i < count) cipher_segment(warp, shared, job, op, key, column, segment_of(job, column, i));
      return;
    }
    const int group = warp.index() - kWorkers;
    const bool sums = i >= 1 && i <= count;
    if (sums) sum_rows(warp, shared, key, segment_of(job, column, i - 1), group);
    if (group == 0 && i >= 2 && i <= count + 1)
      finish_segment(warp, shared, job, key, segment_of(job, column, i - 2));
    if (group == 1 && sums) multiply_extras(warp, shared, job, op, key, segment_of(job, column, i - 1));
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
          if (warp.index() == 0 && lane == 0) shared.bad = BadTag{1, 0};
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
