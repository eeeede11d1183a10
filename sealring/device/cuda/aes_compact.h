// AES-GCM of many segments for GPUs that give a block little shared memory (99 KiB on sm_86, sm_89 and
// sm_120; 163 KiB on sm_80): the body of the seal and the open kernels [NIST SP 800-38D §7].
//
// One table of 1 KiB, a copy a lane (32 KiB), turned for the other three, so two blocks fit a multiprocessor;
// GHASH by ordinary products, no matrix instruction. Simple before fast: a thread takes every 256th block of
// a segment, the sums meet behind a barrier, one warp makes the tag. open leaves the plaintext in private
// memory until the tag is known: ciphertext is read once, and nothing reaches the tensor before its tag was
// accepted [protocol E.1].
#pragma once

#include <cstddef>

#include "sealring/device/cuda/aes_key.h"
#include "sealring/device/cuda/combine.h"
#include "sealring/device/cuda/kernel_list.h"
#include "sealring/device/cuda/user_memory.h"

namespace sealring::cuda {

/// Lane l only touches bank l, so a lookup's time does not depend on data.
struct LaneTable {
  const std::uint32_t (*words)[kLanes];
  int lane;
  template <int kTable, int kByte>
  SR_HOST_DEVICE std::uint32_t at(std::uint32_t column) const {
    return aes::turned(words[(column >> (8 * kByte)) & 0xFFu][lane], kTable);
  }
};

template <Direction kDirection, CombineKind kCombine>
struct AesCompactBody {
  static constexpr bool kOpen = kDirection == Direction::open;
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * kLanes;
  static constexpr int kBlocks = 2;
  static constexpr std::uint32_t kStep = 16;      ///< open: private memory is counted in chunks
  static constexpr std::uint32_t kDepth = 1;      ///< open: segments whose plaintext waits
  static constexpr int kExtras = kAadChunks + 1;  ///< blocks of AAD, and the lengths
  static_assert(kThreads == 256, "GcmKey holds H^256");

  struct Shared {
    std::uint32_t table[256][kLanes];
    ghash::Element sums[kWarps];
    alignas(16) std::uint32_t round_keys[60];
    std::uint32_t rounds;
    std::uint32_t accepted;
    BadTag bad;
  };
  /// What lies behind is cleared at the end of a kernel.
  static constexpr std::size_t kSecretsFrom = offsetof(Shared, sums);

  /// One segment, as all warps see it.
  struct Segment {
    std::uint32_t k;  ///< place in the job
    Place place;
    std::uint32_t blocks;
    NonceWords nonce;
  };
  SR_HOST_DEVICE static Segment segment_of(const SegmentJob& job, const OpView& op, const KeyWords& key,
                                           std::uint32_t k) {
    const Place place = place_of(job, k);
    return Segment{k, place, (place.payload_bytes + 15) / 16, nonce_words(key, op.first_number + k)};
  }
  SR_HOST_DEVICE static std::uint32_t bytes_of(const Segment& segment, std::uint32_t block) {
    const std::uint32_t left = segment.place.payload_bytes - 16 * block;
    return left < 16 ? left : 16;
  }
  /// Where the plaintext of the column's segment waits for its tag.
  SR_HOST_DEVICE static Chunk* waiting(const SegmentJob& job, Column column) {
    const std::uint64_t room = (std::uint64_t{job.layout.segment_bytes} + kStep - 1) / kStep * kStep;
    return reinterpret_cast<Chunk*>(job.private_tiles + room * column.index);
  }

  SR_HOST_DEVICE static Chunk key_stream(const Shared& shared, const NonceWords& nonce, std::uint32_t counter,
                                         int lane) {
    aes::Block block[1] = {
        aes::Block{{nonce.words[0], nonce.words[1], nonce.words[2], ghash::swapped(counter)}}};
    aes::encrypt(block, shared.round_keys, shared.rounds, LaneTable{shared.table, lane});
    return Chunk{{block[0].words[0], block[0].words[1], block[0].words[2], block[0].words[3]}};
  }

  template <class Warp>
  SR_HOST_DEVICE static Chunk load(Warp& warp, const SegmentJob& job, const Segment& segment,
                                   std::uint32_t block, std::uint32_t bytes) {
    if constexpr (!kOpen) {
      const std::byte* const from = job.plaintext + segment.place.payload + std::uint64_t{16} * block;
      if (bytes < 16) return load_bytes(from, bytes);
      return load_any(ConstUserMemory{job.plaintext, payload_bytes_of(job)}, from);
    } else {
      const std::byte* const from = job.wire + segment.place.wire + std::uint64_t{16} * block;
      if (bytes == 16) return warp.window_chunk(from);
      Chunk out{};
      for (std::uint32_t b = 0; b < bytes; ++b)
        out.words[b / 4] |= warp.window_byte(from + b) << (8 * (b % 4));
      return out;
    }
  }

  // Encrypts or decrypts one block; gives its ciphertext, zeros behind the end.
  template <class Warp>
  SR_HOST_DEVICE static Chunk cipher_block(Warp& warp, const Shared& shared, const SegmentJob& job,
                                           Column column, const Segment& segment, std::uint32_t block,
                                           int lane) {
    const std::uint32_t bytes = bytes_of(segment, block);
    const Chunk in = load(warp, job, segment, block, bytes);
    // [SP 800-38D §7.1] J0 ends in 1, so the data begins with 2.
    const Chunk out = in ^ key_stream(shared, segment.nonce, block + 2, lane);
    if constexpr (kOpen) {
      waiting(job, column)[block] = out;
      return in;
    } else {
      std::byte* const to = job.wire + segment.place.wire + std::uint64_t{16} * block;
      if (bytes == 16) {
        store_aligned(to, out);
        return out;
      }
      store_bytes(to, out, bytes);
      return truncated(out, bytes);
    }
  }

  // All blocks of a segment, and the sum of each warp's part of GHASH.
  template <class Warp>
  SR_HOST_DEVICE static void cipher_segment(Warp& warp, Shared& shared, const SegmentJob& job,
                                            const KeyWords& key, Column column, const Segment& segment) {
    typename Warp::template Lanes<std::uint32_t> words[4];
    warp.step([&](int lane) {
      const auto first = static_cast<std::uint32_t>(warp.thread(lane));
      ghash::Element sum = ghash::zero();
      std::uint32_t behind = 0;  // the last block of this thread, those behind it, and the lengths
      for (std::uint32_t block = first; block < segment.blocks; block += kThreads) {
        const Chunk cipher = cipher_block(warp, shared, job, column, segment, block, lane);
        sum = ghash::multiply(sum, key.gcm->powers[1][1]) ^ ghash::element_of(cipher.words);
        behind = segment.blocks - block + 1;
      }
      if (behind != 0) sum = ghash::multiply(sum, power_of(*key.gcm, behind));
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i][lane] = sum.words[i];
    });
    const ghash::Element sum{
        {warp.sum_bits(words[0]), warp.sum_bits(words[1]), warp.sum_bits(words[2]), warp.sum_bits(words[3])}};
    const int worker = warp.index();
    warp.step([&](int lane) {
      if (lane == 0) shared.sums[worker] = sum;
    });
  }

  // What lane `lane` adds beside the ciphertext: a block of AAD, or the lengths, times its power.
  SR_HOST_DEVICE static ghash::Element extra(const SegmentJob& job, const OpView& op, const KeyWords& key,
                                             const Segment& segment, int lane) {
    if (lane < kAadChunks) {
      const std::uint32_t behind = segment.blocks + 6 - static_cast<std::uint32_t>(lane);
      return ghash::multiply(ghash::element_of(aad_chunk(job, op, segment.k, lane).words),
                             power_of(*key.gcm, behind));
    }
    const std::uint64_t bits = std::uint64_t{segment.place.payload_bytes} * 8;
    return ghash::multiply(
        ghash::Element{{0, static_cast<std::uint32_t>(kAadBytes) * 8, static_cast<std::uint32_t>(bits >> 32),
                        static_cast<std::uint32_t>(bits)}},
        power_of(*key.gcm, 1));
  }

  // Every lane gets the tag.
  template <class Warp>
  SR_HOST_DEVICE static Chunk tag_of(Warp& warp, const Shared& shared, const SegmentJob& job,
                                     const OpView& op, const KeyWords& key, const Segment& segment) {
    typename Warp::template Lanes<std::uint32_t> words[4];
    warp.step([&](int lane) {
      ghash::Element sum = lane < kWarps ? shared.sums[lane] : ghash::zero();
      if (lane < kExtras) sum = sum ^ extra(job, op, key, segment, lane);
      const Chunk mask = key_stream(shared, segment.nonce, 1, lane);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i][lane] = ghash::swapped(sum.words[i]) ^ (lane == 0 ? mask.words[i] : 0u);
    });
    return Chunk{
        {warp.sum_bits(words[0]), warp.sum_bits(words[1]), warp.sum_bits(words[2]), warp.sum_bits(words[3])}};
  }
  SR_HOST_DEVICE static std::uint32_t byte_of(const Chunk& chunk, int b) {
    std::uint32_t word = chunk.words[0];
#pragma unroll
    for (int i = 1; i < 4; ++i) word = b / 4 == i ? chunk.words[i] : word;
    return (word >> (8 * (b & 3))) & 0xFFu;
  }

  template <class Warp>
  SR_HOST_DEVICE static void finish_segment(Warp& warp, Shared& shared, const SegmentJob& job,
                                            const OpView& op, const KeyWords& key, const Segment& segment) {
    const Chunk tag = tag_of(warp, shared, job, op, key, segment);
    std::byte* const at = job.wire + segment.place.wire + segment.place.payload_bytes;
    if constexpr (!kOpen) {
      put_tag(warp, tag, at);
    } else {
      const bool refused = is_refused(warp, tag, [&](int lane) { return warp.window_byte(at + lane); });
      warp.step([&](int lane) {
        if (lane != 0) return;
        if (refused && shared.bad.refused == 0) shared.bad = BadTag{1, segment.k};
        // After the first refusal the column writes nothing more.
        shared.accepted = shared.bad.refused == 0 ? 1u : 0u;
      });
    }
  }

  // The accepted plaintext of a segment into the tensor: each thread the blocks that it has decrypted.
  template <class Warp>
  SR_HOST_DEVICE static void combine_segment(Warp& warp, const SegmentJob& job, Column column,
                                             const Segment& segment) {
    const Chunk* const plain = waiting(job, column);
    warp.step([&](int lane) {
      for (auto block = static_cast<std::uint32_t>(warp.thread(lane)); block < segment.blocks;
           block += kThreads) {
        const std::uint64_t at = segment.place.payload + std::uint64_t{16} * block;
        const std::uint32_t bytes = bytes_of(segment, block);
        Chunk mine{};
        if constexpr (kCombine != CombineKind::replace) {
          const std::byte* const local = job.combine.local;
          mine = bytes == 16 ? load_any(ConstUserMemory{local, payload_bytes_of(job)}, local + at)
                             : load_bytes(local + at, bytes);
        }
        const Chunk out = combined<kCombine>(job.combine, mine, plain[block]);
        if (bytes == 16)
          store_any(job.combine.dst + at, out);
        else
          store_bytes(job.combine.dst + at, out, bytes);
      }
    });
  }

  template <class Warp>
  SR_HOST_DEVICE static void set_up(Warp& warp, Shared& shared, const GcmKey& key) {
    for (int entry = warp.index(); entry < 256; entry += kWarps)
      warp.each([&](int lane) { shared.table[entry][lane] = key.table[entry]; });
    if (warp.index() != 0) return;
    warp.step([&](int lane) {
      for (int i = lane; i < 60; i += kLanes) shared.round_keys[i] = key.round_keys[i];
      if (lane != 0) return;
      shared.rounds = key.rounds;
      shared.bad = BadTag{};
    });
  }

  template <class Block>
  SR_HOST_DEVICE static void run(Block& block, Shared& shared, const SegmentJob& job, const OpView& op,
                                 const KeyWords& key, Column column) {
    using Warp = typename Block::Warp;
    block.phase([&](Warp& warp) { set_up(warp, shared, *key.gcm); });
    for (std::uint32_t k = column.index; k < job.segments; k += column.count) {
      const Segment segment = segment_of(job, op, key, k);
      block.phase([&](Warp& warp) { cipher_segment(warp, shared, job, key, column, segment); });
      block.phase([&](Warp& warp) {
        if (warp.index() == 0) finish_segment(warp, shared, job, op, key, segment);
      });
      if constexpr (kOpen) {
        block.phase([&](Warp& warp) {
          if (shared.accepted != 0) combine_segment(warp, job, column, segment);
        });
      }
    }
  }
};

}  // namespace sealring::cuda
