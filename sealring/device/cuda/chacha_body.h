// ChaCha20-Poly1305 of many segments: the body of the seal and the open kernels [RFC 8439 §2.8].
//
// A block is `kWorkers` warps that encrypt, one that finishes and one that prepares. In phase i of a column
//   workers    combine segment i-2 (open), then encrypt or decrypt segment i and evaluate their part of its
//   Poly1305; finisher   adds up segment i-1 and writes (seal) or checks (open) its tag; preparer   makes
//   one-time keys and powers of r of the next batch of segments, over several phases.
// So nobody waits for a tag: the tag of i-1 is computed while i is encrypted. With a depth of one, open has
// room for one segment instead of two (so for larger ones, or for more blocks), and the workers wait while a
// tag is checked.
//
// A worker walks over every kWorkers-th tile of 2 KiB. Memory is touched in chunks of 16 bytes, lane after
// lane (512 contiguous bytes an instruction); a lane computes the keystream of one 64-byte row, and the two
// layouts meet in shared memory, at places that no two lanes of a quarter share a bank at. open leaves the
// plaintext there until the tag is known: ciphertext is read once, and nothing reaches the tensor before its
// tag was accepted [protocol E.1].
#pragma once

#include <cstddef>

#include "sealring/device/cuda/chacha_prepare.h"
#include "sealring/device/cuda/combine.h"
#include "sealring/device/cuda/kernel_list.h"
#include "sealring/device/cuda/user_memory.h"

namespace sealring::cuda {

/// The choices of one kernel. kTile: bytes of the largest segment whose plaintext waits in shared memory
/// (open); 0: it waits in job.private_tiles (memory of this process on the device), 2 * segment_bytes a
/// column.
template <Direction kDirectionOf, int kWorkersOf, int kBlocksOf, std::uint32_t kTileOf,
          CombineKind kCombineOf, int kDepthOf = 2, int kUnrollOf = 2>
struct ChachaConfig {
  static constexpr Direction kDirection = kDirectionOf;
  static constexpr int kWorkers = kWorkersOf;
  static constexpr int kBlocks =
      kBlocksOf;  ///< resident on a multiprocessor: limits registers and shared memory
  static constexpr std::uint32_t kTile = kTileOf;
  static constexpr CombineKind kCombine = kCombineOf;
  static constexpr int kUnroll = kUnrollOf;                              ///< of ChaCha's double rounds
  static constexpr int kDepth = kDepthOf;                                ///< segments in flight in a block
  static constexpr int kBatch = kDirection == Direction::seal ? 16 : 8;  ///< segments prepared at once
  static constexpr int kPrepared = 2;                                    ///< batches that are kept
  /// open: segments whose accepted plaintext waits side by side in the kTile bytes, at Segment::stored; the
  /// caller combines them.
  static constexpr int kTiles = 1;
};

template <class Config>
struct ChachaBody {
  static constexpr bool kOpen = Config::kDirection == Direction::open;
  static constexpr int kWorkers = Config::kWorkers;
  static constexpr int kFinisher = kWorkers;
  static constexpr int kPreparer = kWorkers + 1;
  static constexpr int kThreads = (kWorkers + 2) * kLanes;
  static constexpr int kBlocks = Config::kBlocks;
  static constexpr int kBatch = Config::kBatch;
  static constexpr bool kInShared = Config::kTile != 0;
  static constexpr int kDepth = Config::kDepth;
  static_assert(kDepth == 2 || (kDepth == 1 && kOpen));
  static constexpr int kTiles = Config::kTiles;
  static_assert(kTiles == 1 || (kDepth == 1 && kInShared));
  static constexpr std::uint32_t kStored =
      kOpen && kInShared ? kDepth * Config::kTile / 16 : kWorkers * kTileChunks;
  static_assert(!kOpen || Config::kTile % (kWorkers * kTileBytes) == 0);

  using Prep = SegmentPrep<kWorkers>;
  struct Shared {
    Chunk stored[kStored];  ///< open: kDepth segments; seal: what a worker transposes in
    Prep prep[Config::kPrepared][kBatch];
    poly1305::Number sums[kDepth][kWorkers * kLanes];
    Chunk tail[kDepth][4];                 ///< ciphertext behind the last whole row
    Chunk tail_plain[kDepth * kTiles][4];  ///< open: its plaintext
    Chunk tail_stream[4];
    std::uint32_t accepted[kDepth];
    BadTag bad;
  };

  /// What lies behind is cleared at the end of a kernel: all of it. Where tiles are transposed lies
  /// keystream, of open, too: in rows that pad a first tile, one of which is the block of counter 0 with r
  /// and s.
  static constexpr std::size_t kSecretsFrom = 0;

  /// One segment of the column, as all warps see it.
  struct Segment {
    std::uint32_t i;  ///< place in the column
    std::uint32_t k;  ///< place in the job
    Place place;
    Shape shape;
    std::uint32_t tile = 0;    ///< kTiles > 1: which of the segments that wait
    std::uint32_t stored = 0;  ///< kTiles > 1: where its plaintext begins, in chunks
    SR_HOST_DEVICE int parity() const { return static_cast<int>(i % kDepth); }
    SR_HOST_DEVICE int tail() const { return kTiles > 1 ? static_cast<int>(tile) : parity(); }
  };
  SR_HOST_DEVICE static Segment segment_of(const SegmentJob& job, Column column, std::uint32_t i) {
    Segment out;
    out.i = i;
    out.k = column.index + i * column.count;
    out.place = place_of(job, out.k);
    out.shape = shape_of(out.place.payload_bytes);
    return out;
  }
  SR_HOST_DEVICE static Prep& prep_of(Shared& shared, std::uint32_t i) {
    return shared.prep[i / kBatch % Config::kPrepared][i % kBatch];
  }
  /// Where lane `lane` finds chunk lane + 32 c of a tile: row lane/4 + 8 c, turned within the row.
  SR_HOST_DEVICE static std::uint32_t coalesced_slot(int lane, int c) {
    return static_cast<std::uint32_t>(c * kLanes + (lane & ~3) + ((lane & 3) ^ ((lane >> 3) & 3)));
  }
  /// Where chunk c of the row `lane` lies.
  SR_HOST_DEVICE static std::uint32_t row_slot(int lane, int c) {
    return static_cast<std::uint32_t>(lane * 4 + (c ^ ((lane >> 1) & 3)));
  }
  /// A worker keeps to its own places whatever the number of tiles: another one may still be at an older
  /// segment.
  SR_HOST_DEVICE static std::uint32_t own_place(std::uint32_t tile, int worker) {
    return (tile / kWorkers * kWorkers + static_cast<std::uint32_t>(worker)) * kTileChunks;
  }
  /// The 128 chunks in which a worker transposes a tile.
  SR_HOST_DEVICE static Chunk* transposed(Shared& shared, const Segment& segment, int worker,
                                          std::uint32_t tile) {
    if constexpr (kTiles > 1)
      return shared.stored + segment.stored + own_place(tile, worker);
    else if constexpr (kOpen && kInShared)
      return shared.stored + segment.parity() * (Config::kTile / 16) + own_place(tile, worker);
    else
      return shared.stored + worker * static_cast<int>(kTileChunks);
  }
  /// Where the plaintext of a tile waits for its tag.
  SR_HOST_DEVICE static Chunk* waiting(Shared& shared, const SegmentJob& job, Column column,
                                       const Segment& segment, int worker, std::uint32_t tile) {
    if constexpr (kInShared) {
      return transposed(shared, segment, worker, tile);
    } else {
      const std::uint64_t index = 2ull * column.index + static_cast<std::uint64_t>(segment.parity());
      std::byte* const at = job.private_tiles + index * private_bytes(job.layout.segment_bytes);
      return reinterpret_cast<Chunk*>(at) + own_place(tile, worker);
    }
  }
  /// Half of what a column needs of job.private_tiles.
  SR_HOST_DEVICE static constexpr std::uint64_t private_bytes(std::uint32_t segment_bytes) {
    constexpr std::uint64_t kStep = kWorkers * kTileBytes;
    return (segment_bytes + kStep - 1) / kStep * kStep;
  }
  /// The first tile of a worker and so all: first, first + kWorkers, ... The last tile of the segment is
  /// worker 0's.
  SR_HOST_DEVICE static std::uint32_t first_tile(const Shape& shape, int worker) {
    const int behind = static_cast<int>(shape.tiles) - 1 - worker;
    return behind < 0 ? shape.tiles : static_cast<std::uint32_t>(behind % kWorkers);
  }

  template <class Warp>
  struct Registers {
    struct Row {
      Chunk chunk[4];
    };
    typename Warp::template Lanes<Row> data;
    typename Warp::template Lanes<poly1305::Number> sum;
  };

  /// The chunk of the segment that lane `lane` has as its c-th of a tile; below 0: in front of the segment,
  /// where the AAD lies in the last places.
  SR_HOST_DEVICE static int chunk_of(const Segment& segment, int tile, int lane, int c) {
    return tile * static_cast<int>(kTileChunks) - 4 * static_cast<int>(segment.shape.pad_rows) + c * kLanes +
           lane;
  }
  /// What the MAC absorbs in front of the segment's data.
  SR_HOST_DEVICE static poly1305::Number number_in_front(const SegmentJob& job, const OpView& op,
                                                         const Segment& segment, int at) {
    if (at < -kAadChunks) return poly1305::Number{};
    const Chunk aad = aad_chunk(job, op, segment.k, kAadChunks + at);
    return poly1305::number_of(aad.words[0], aad.words[1], aad.words[2], aad.words[3]);
  }

  // Four chunks a lane of a tile, from the tensor (seal) or the window (open). kPlain: a tile without
  // padding, memory that is aligned.
  template <bool kPlain, class Warp>
  SR_HOST_DEVICE static void load_tile(Warp& warp, const SegmentJob& job, const Segment& segment,
                                       std::uint32_t tile, int lane, Chunk (&data)[4]) {
    const std::byte* const from =
        kOpen ? job.wire + segment.place.wire : job.plaintext + segment.place.payload;
    const std::byte* const first =
        from + 16 * static_cast<std::int64_t>(chunk_of(segment, static_cast<int>(tile), lane, 0));
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const std::byte* const at = first + c * kLanes * 16;
      if constexpr (kPlain) {
        data[c] = kOpen ? warp.window_chunk(at) : load_aligned(at);
      } else {
        if (chunk_of(segment, static_cast<int>(tile), lane, c) < 0)
          data[c] = Chunk{};
        else if constexpr (kOpen)
          data[c] = warp.window_chunk(at);
        else
          data[c] = load_any(ConstUserMemory{job.plaintext, payload_bytes_of(job)}, at);
      }
    }
  }

  // Encrypts or decrypts a loaded tile and absorbs its ciphertext.
  template <bool kPlain>
  SR_HOST_DEVICE static void cipher_tile(const SegmentJob& job, const OpView& op, const Segment& segment,
                                         const Prep& prep, std::uint32_t tile, int lane, const Chunk* stream,
                                         Chunk* plain, Chunk (&data)[4], poly1305::Number& sum) {
    std::byte* const to = job.wire + segment.place.wire +
                          16 * static_cast<std::int64_t>(chunk_of(segment, static_cast<int>(tile), lane, 0));
    poly1305::Columns columns{};
    add_product(columns, sum, prep.stride[0]);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int at = kPlain ? 0 : chunk_of(segment, static_cast<int>(tile), lane, c);
      const std::uint32_t slot = coalesced_slot(lane, c);
      const Chunk other = data[c] ^ stream[slot];
      const Chunk& sealed = kOpen ? data[c] : other;
      if constexpr (kOpen)
        plain[slot] = other;
      else if (kPlain || at >= 0)
        store_aligned(to + c * kLanes * 16, sealed);
      const poly1305::Number number =
          kPlain || at >= 0
              ? poly1305::number_of(sealed.words[0], sealed.words[1], sealed.words[2], sealed.words[3])
              : number_in_front(job, op, segment, at);
      if (c < 3)
        add_product(columns, number, prep.stride[1 + c]);
      else
        add_number(columns, number);
    }
    sum = carried(columns);
  }

  // The keystream of a tile, a row a lane. [RFC 8439 §2.8] The data begins with block 1.
  SR_HOST_DEVICE static void stream_tile(const KeyWords& key, const NonceWords& nonce, const Shape& shape,
                                         std::uint32_t tile, int lane, Chunk* stream) {
    const std::uint32_t counter = tile * kLanes + static_cast<std::uint32_t>(lane) - shape.pad_rows + 1;
    const chacha20::Block block = chacha20::keystream<Config::kUnroll>(key.key, nonce.words, counter);
    put_stream(block, lane, stream);
  }
  SR_HOST_DEVICE static void put_stream(const chacha20::Block& block, int lane, Chunk* stream) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      stream[row_slot(lane, c)] =
          Chunk{{block.words[4 * c], block.words[4 * c + 1], block.words[4 * c + 2], block.words[4 * c + 3]}};
    }
  }

  template <bool kPlain, class Warp>
  SR_HOST_DEVICE static void work_on_tile(Warp& warp, Shared& shared, const SegmentJob& job, const OpView& op,
                                          const KeyWords& key, const NonceWords& nonce, Column column,
                                          const Segment& segment, std::uint32_t tile, bool streamed,
                                          Registers<Warp>& registers) {
    const int worker = warp.index();
    Chunk* const stream = transposed(shared, segment, worker, tile);
    warp.step([&](int lane) {
      load_tile<kPlain>(warp, job, segment, tile, lane, registers.data[lane].chunk);
      if (!streamed) stream_tile(key, nonce, segment.shape, tile, lane, stream);
    });
    Chunk* const plain = kOpen ? waiting(shared, job, column, segment, worker, tile) : nullptr;
    warp.step([&](int lane) {
      cipher_tile<kPlain>(job, op, segment, prep_of(shared, segment.i), tile, lane, stream, plain,
                          registers.data[lane].chunk, registers.sum[lane]);
    });
  }

  // `streamed`: the keystream of the worker's first tile is there already.
  template <class Warp>
  SR_HOST_DEVICE static void cipher_segment(Warp& warp, Shared& shared, const SegmentJob& job,
                                            const OpView& op, const KeyWords& key, Column column,
                                            const Segment& segment, bool streamed) {
    const int worker = warp.index();
    const int tiles = static_cast<int>(segment.shape.tiles);
    const NonceWords nonce = nonce_words(key, op.first_number + segment.k);
    const bool aligned = kOpen || misalignment(job.plaintext) == 0;
    Registers<Warp> registers;
    warp.step([&](int lane) {
      // The AAD that finds no place in the padding is the last of a tile -1, which is one worker's.
      registers.sum[lane] = tiles % kWorkers == worker
                                ? number_in_front(job, op, segment, chunk_of(segment, -1, lane, 3))
                                : poly1305::Number{};
    });
    for (std::uint32_t tile = first_tile(segment.shape, worker); tile < segment.shape.tiles;
         tile += kWorkers) {
      if (aligned && (tile > 0 || segment.shape.pad_rows == 0))
        work_on_tile<true>(warp, shared, job, op, key, nonce, column, segment, tile, streamed, registers);
      else
        work_on_tile<false>(warp, shared, job, op, key, nonce, column, segment, tile, streamed, registers);
      streamed = false;
    }
    warp.step([&](int lane) { shared.sums[segment.parity()][worker * kLanes + lane] = registers.sum[lane]; });
    if (worker == 0 && segment.shape.tail_chunks > 0) cipher_tail(warp, shared, job, key, nonce, segment);
  }

  // The two in one where both segments have whole tiles alone: what the tensor holds is on its way while the
  // keystream is computed, and the place of the old plaintext takes the new.
  SR_HOST_DEVICE static bool can_fuse(const SegmentJob& old_job, const Segment& old, const Segment& segment) {
    return old.place.payload_bytes == segment.place.payload_bytes && segment.shape.pad_rows == 0 &&
           segment.shape.tail_bytes == 0 && misalignment(old_job.combine.dst) == 0 &&
           misalignment(old_job.combine.local) == 0;
  }
  template <class Warp>
  SR_HOST_DEVICE static void combine_and_cipher(Warp& warp, Shared& shared, const SegmentJob& old_job,
                                                const Segment& old, const SegmentJob& job, const OpView& op,
                                                const KeyWords& key, Column column, const Segment& segment) {
    const int worker = warp.index();
    const NonceWords nonce = nonce_words(key, op.first_number + segment.k);
    const std::byte* const local = old_job.combine.local + old.place.payload;
    std::byte* const dst = old_job.combine.dst + old.place.payload;
    const Prep& prep = prep_of(shared, segment.i);
    Registers<Warp> registers;
    typename Warp::template Lanes<chacha20::Block> block;
    warp.step([&](int lane) {
      registers.sum[lane] = static_cast<int>(segment.shape.tiles) % kWorkers == worker
                                ? number_in_front(job, op, segment, chunk_of(segment, -1, lane, 3))
                                : poly1305::Number{};
    });
    for (std::uint32_t tile = first_tile(segment.shape, worker); tile < segment.shape.tiles;
         tile += kWorkers) {
      Chunk* const plain = waiting(shared, job, column, segment, worker, tile);
      Chunk* const stream = transposed(shared, segment, worker, tile);
      warp.step([&](int lane) {
        const std::int64_t first =
            16 * static_cast<std::int64_t>(chunk_of(segment, static_cast<int>(tile), lane, 0));
        load_tile<true>(warp, job, segment, tile, lane, registers.data[lane].chunk);
        Chunk mine[4] = {};
        if constexpr (Config::kCombine != CombineKind::replace) {
#pragma unroll
          for (int c = 0; c < 4; ++c) mine[c] = load_aligned(local + first + c * kLanes * 16);
        }
        const std::uint32_t counter = tile * kLanes + static_cast<std::uint32_t>(lane) + 1;
        block[lane] = chacha20::keystream<Config::kUnroll, true>(key.key, nonce.words, counter);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          store_aligned(dst + first + c * kLanes * 16,
                        combined<Config::kCombine>(old_job.combine, mine[c], plain[coalesced_slot(lane, c)]));
        }
      });
      warp.step([&](int lane) { put_stream(block[lane], lane, stream); });
      warp.step([&](int lane) {
        cipher_tile<true>(job, op, segment, prep, tile, lane, stream, plain, registers.data[lane].chunk,
                          registers.sum[lane]);
      });
    }
    warp.step([&](int lane) { shared.sums[segment.parity()][worker * kLanes + lane] = registers.sum[lane]; });
  }

  // The bytes behind the last whole row: a lane a chunk.
  template <class Warp>
  SR_HOST_DEVICE static void cipher_tail(Warp& warp, Shared& shared, const SegmentJob& job,
                                         const KeyWords& key, const NonceWords& nonce,
                                         const Segment& segment) {
    const Shape& shape = segment.shape;
    warp.step([&](int lane) {
      if (lane != 0) return;
      const chacha20::Block block = chacha20::keystream(key.key, nonce.words, shape.rows + 1);
#pragma unroll
      for (int w = 0; w < 16; ++w) shared.tail_stream[w / 4].words[w % 4] = block.words[w];
    });
    warp.step([&](int lane) {
      if (lane >= static_cast<int>(shape.tail_chunks)) return;
      const std::uint32_t offset = static_cast<std::uint32_t>(lane) * 16;
      const std::uint32_t left = shape.tail_bytes - offset;
      const std::uint32_t bytes = left < 16 ? left : 16;
      const std::uint64_t behind = static_cast<std::uint64_t>(shape.rows) * kRowBytes + offset;
      std::byte* const wire = job.wire + segment.place.wire + behind;
      Chunk in{};
      if constexpr (kOpen) {
        for (std::uint32_t b = 0; b < bytes; ++b) {
          const std::uint32_t value = warp.window_byte(wire + b) << (8 * (b % 4));
#pragma unroll
          for (std::uint32_t w = 0; w < 4; ++w) in.words[w] |= w == b / 4 ? value : 0u;
        }
      } else {
        in = load_bytes(job.plaintext + segment.place.payload + behind, bytes);
      }
      const Chunk out = truncated(in ^ shared.tail_stream[lane], bytes);
      shared.tail[segment.parity()][lane] = kOpen ? in : out;
      if constexpr (kOpen)
        shared.tail_plain[segment.tail()][lane] = out;
      else
        store_bytes(wire, out, bytes);
    });
  }

  // The accepted plaintext of segment i into the tensor.
  template <class Warp>
  SR_HOST_DEVICE static void combine_segment(Warp& warp, Shared& shared, const SegmentJob& job, Column column,
                                             const Segment& segment) {
    const std::byte* const local = job.combine.local + segment.place.payload;
    std::byte* const dst = job.combine.dst + segment.place.payload;
    const bool aligned = misalignment(dst) == 0 && misalignment(local) == 0;
    const ConstUserMemory memory{job.combine.local, payload_bytes_of(job)};
    const int worker = warp.index();
    constexpr bool kReads = Config::kCombine != CombineKind::replace;
    for (std::uint32_t tile = first_tile(segment.shape, worker); tile < segment.shape.tiles;
         tile += kWorkers) {
      const Chunk* const plain = waiting(shared, job, column, segment, worker, tile);
      const int origin = static_cast<int>(tile * kTileChunks - 4 * segment.shape.pad_rows);
      warp.step([&](int lane) {
        Chunk mine[4] = {};
        if constexpr (kReads) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const std::int64_t at = origin + lane + c * kLanes;
            if (at >= 0)
              mine[c] = aligned ? load_aligned(local + at * 16) : load_any(memory, local + at * 16);
          }
        }
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const std::int64_t at = origin + lane + c * kLanes;
          if (at < 0) continue;
          const Chunk out = combined<Config::kCombine>(job.combine, mine[c], plain[coalesced_slot(lane, c)]);
          if (aligned)
            store_aligned(dst + at * 16, out);
          else
            store_any(dst + at * 16, out);
        }
      });
    }
    if (worker != 0) return;
    warp.step([&](int lane) {
      if (lane >= static_cast<int>(segment.shape.tail_chunks)) return;
      const std::uint32_t offset = static_cast<std::uint32_t>(lane) * 16;
      const std::uint32_t left = segment.shape.tail_bytes - offset;
      const std::uint32_t bytes = left < 16 ? left : 16;
      const std::uint64_t behind = static_cast<std::uint64_t>(segment.shape.rows) * kRowBytes + offset;
      const Chunk mine = kReads ? load_bytes(local + behind, bytes) : Chunk{};
      store_bytes(dst + behind,
                  combined<Config::kCombine>(job.combine, mine, shared.tail_plain[segment.tail()][lane]),
                  bytes);
    });
  }

  // What a lane of the finisher adds to the sum: the lengths, or a chunk of the tail.
  SR_HOST_DEVICE static void add_extra(const Shared& shared, const Segment& segment, const Prep& prep,
                                       int lane, poly1305::Columns& columns) {
    const int tail = static_cast<int>(segment.shape.tail_chunks);
    if (lane > tail) return;
    // [RFC 8439 §2.8] le64 lengths of AAD and ciphertext
    const Chunk block =
        lane == tail ? Chunk{{static_cast<std::uint32_t>(kAadBytes), 0, segment.place.payload_bytes, 0}}
                     : shared.tail[segment.parity()][lane];
    add_product(columns, poly1305::number_of(block.words[0], block.words[1], block.words[2], block.words[3]),
                multiplier_of(prep.low[tail - lane]));
  }

  // Adds up a segment's sums; every lane gets the tag.
  template <class Warp>
  SR_HOST_DEVICE static Chunk tag_of(Warp& warp, Shared& shared, const Segment& segment) {
    using poly1305::Number;
    const Prep& prep = prep_of(shared, segment.i);
    typename Warp::template Lanes<std::uint32_t> limbs[5];
    warp.step([&](int lane) {
      const Number* const sums = shared.sums[segment.parity()];
      poly1305::Columns workers{};
      add_number(workers, sums[lane]);
      for (int worker = 1; worker < kWorkers; ++worker)
        add_product(workers, sums[worker * kLanes + lane], multiplier_of(prep.worker[worker]));
      // The last chunk of lane 31 has the tail and the lengths behind it.
      const int exponent = 33 - lane + static_cast<int>(segment.shape.tail_chunks);
      const Number weight = multiply(prep.low[(exponent - 1) & 7], prep.high[(exponent - 1) >> 3]);
      poly1305::Columns columns{};
      add_product(columns, carried(workers), multiplier_of(weight));
      add_extra(shared, segment, prep, lane, columns);
      const Number all = carried(columns);
#pragma unroll
      for (int i = 0; i < 5; ++i) limbs[i][lane] = all.limb[i];
    });
    poly1305::Columns columns{};
#pragma unroll
    for (int i = 0; i < 5; ++i) columns.column[i] = warp.sum(limbs[i]);
    Chunk tag;
    poly1305::finish(carried(columns), prep.s, tag.words);
    return tag;
  }

  template <class Warp>
  SR_HOST_DEVICE static void finish_segment(Warp& warp, Shared& shared, const SegmentJob& job,
                                            const Segment& segment) {
    const Chunk tag = tag_of(warp, shared, segment);
    std::byte* const at = job.wire + segment.place.wire + segment.place.payload_bytes;
    if constexpr (!kOpen) {
      put_tag(warp, tag, at);
    } else {
      const bool refused = is_refused(warp, tag, [&](int lane) { return warp.window_byte(at + lane); });
      warp.step([&](int lane) {
        if (lane != 0) return;
        if (refused && shared.bad.refused == 0) shared.bad = BadTag{1, segment.k};
        // After the first refusal the column writes nothing more.
        shared.accepted[segment.parity()] = shared.bad.refused == 0 ? 1u : 0u;
      });
    }
  }

  template <class Warp>
  SR_HOST_DEVICE static void prepare_batch(Warp& warp, Shared& shared, const OpView& op, const KeyWords& key,
                                           Column column, std::uint32_t count, std::uint32_t first) {
    warp.step([&](int lane) {
      const std::uint32_t i = first + static_cast<std::uint32_t>(lane);
      if (lane < kBatch && i < count)
        prepare_segment<kWorkers>(key, op, column.index + i * column.count, prep_of(shared, i));
    });
  }

  // Before the first segment: its preparation, and meanwhile its first keystream.
  template <class Block>
  SR_HOST_DEVICE static void begin(Block& block, Shared& shared, const SegmentJob& job, const OpView& op,
                                   const KeyWords& key, Column column, std::uint32_t count) {
    block.phase([&](typename Block::Warp& warp) {
      const int worker = warp.index();
      if (worker == kPreparer) {
        prepare_batch(warp, shared, op, key, column, count, 0);
      } else if (worker == kFinisher) {
        warp.step([&](int lane) {
          if (lane == 0) shared.bad = BadTag{};
        });
      } else if (count > 0) {
        const Segment segment = segment_of(job, column, 0);
        const std::uint32_t tile = first_tile(segment.shape, worker);
        const NonceWords nonce = nonce_words(key, op.first_number + segment.k);
        if (tile >= segment.shape.tiles) return;
        Chunk* const stream = transposed(shared, segment, worker, tile);
        warp.step([&](int lane) { stream_tile(key, nonce, segment.shape, tile, lane, stream); });
      }
    });
  }

  // Phase i: see the head of this file. `block` may be the group of workers and finisher.
  template <class Block>
  SR_HOST_DEVICE static void phases_of(Block& block, Shared& shared, const SegmentJob& job, const OpView& op,
                                       const KeyWords& key, Column column, std::uint32_t count,
                                       std::uint32_t i) {
    using Warp = typename Block::Warp;
    block.phase([&](Warp& warp) {
      if (warp.index() < kWorkers) {
        if constexpr (kOpen) {
          if (i >= kDepth && shared.accepted[i % kDepth] != 0) {
            const Segment old = segment_of(job, column, i - kDepth);
            if (i < count && can_fuse(job, old, segment_of(job, column, i))) {
              combine_and_cipher(warp, shared, job, old, job, op, key, column, segment_of(job, column, i));
              return;
            }
            combine_segment(warp, shared, job, column, old);
          }
        }
        if (i < count) cipher_segment(warp, shared, job, op, key, column, segment_of(job, column, i), i == 0);
      } else if (warp.index() == kFinisher) {
        if (kDepth == 2 && i >= 1 && i <= count)
          finish_segment(warp, shared, job, segment_of(job, column, i - 1));
      }
    });
    if (kDepth == 2 || i >= count) return;
    block.phase([&](Warp& warp) {
      if (warp.index() == kFinisher) finish_segment(warp, shared, job, segment_of(job, column, i));
    });
  }

  template <class Block>
  SR_HOST_DEVICE static void run(Block& block, Shared& shared, const SegmentJob& job, const OpView& op,
                                 const KeyWords& key, Column column) {
    const std::uint32_t count =
        column.index < job.segments ? (job.segments - column.index + column.count - 1) / column.count : 0;
    begin(block, shared, job, op, key, column, count);
    if (count == 0) return;
    const std::uint32_t end = count + (kOpen ? kDepth : 1);
    for (std::uint32_t first = 0; first < end; first += kBatch) {
      // The first phase of a batch still finishes with the batch before, whose place the next one will take.
      phases_of(block, shared, job, op, key, column, count, first);
      const std::uint32_t behind = first + kBatch < end ? first + kBatch : end;
      block.split(
          kWorkers + 1,
          [&](auto& group) {
            for (std::uint32_t i = first + 1; i < behind; ++i)
              phases_of(group, shared, job, op, key, column, count, i);
          },
          [&](auto& warp) { prepare_batch(warp, shared, op, key, column, count, first + kBatch); });
    }
  }
};

}  // namespace sealring::cuda
