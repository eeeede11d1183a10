// Steps of the AES-GCM body that one warp does together: table lookups, and GHASH on tensor cores.
//
// GHASH by a constant is a 128 x 128 matrix over GF(2). The 1-bit AND-and-count matrix instruction takes
// ciphertext words as they are; the low bit of each count is a bit of the product.
#pragma once

#include "sealring/device/cuda/aes_key.h"
#include "sealring/device/cuda/segment_job.h"

namespace sealring::cuda {

/// Four tables of 256 words, one copy a lane: lane l only touches bank l, so a lookup's time does not depend
/// on data.
struct AesTables {
  std::uint32_t words[2][256][2][kLanes];  ///< [table / 2][byte][table % 2][lane]
};

/// Where dynamic shared memory begins (behind the 1 KiB that sm_80 and newer keep for themselves): part of
/// the lookup instruction, so that an address is one byte permutation. The kernel checks it and refuses to
/// work elsewhere.
inline constexpr std::uint32_t kTablesAddress = 1024;

class LaneTables {
 public:
  SR_HOST_DEVICE LaneTables([[maybe_unused]] const AesTables& tables, int lane)
#if defined(__CUDA_ARCH__)
      : lane_(static_cast<std::uint32_t>(lane) * 4){}
#else
      : tables_(tables), lane_(static_cast<std::uint32_t>(lane)) {
  }
#endif

        template <int kTable, int kByte>
        SR_HOST_DEVICE std::uint32_t at(std::uint32_t column) const {
#if defined(__CUDA_ARCH__)
    std::uint32_t out;
    asm volatile("ld.shared.u32 %0, [%1+%2];"
                 : "=r"(out)
                 : "r"(__byte_perm(column, lane_, 0x7604 | (kByte << 4))),
                   "n"(kTablesAddress + (kTable / 2) * 65536 + (kTable % 2) * 128));
    return out;
#else
    return tables_.words[kTable / 2][(column >> (8 * kByte)) & 0xFFu][kTable % 2][lane_];
#endif
  }

 private:
#if !defined(__CUDA_ARCH__)
  const AesTables& tables_;
#endif
  std::uint32_t lane_;
};

/// A lane's words of a tile's 32 rows: with g = lane/4 and q = lane%4, word q of rows g, g+8, g+16, g+24.
struct RowWords {
  std::uint32_t words[4];
};

SR_HOST_DEVICE inline RowWords row_words(const Chunk* rows, int lane) {
  RowWords out;
#pragma unroll
  for (int i = 0; i < 4; ++i) out.words[i] = rows[lane / 4 + 8 * i].words[lane % 4];
  return out;
}
SR_HOST_DEVICE inline void put_row_words(const RowWords& words, Chunk* rows, int lane) {
#pragma unroll
  for (int i = 0; i < 4; ++i) rows[lane / 4 + 8 * i].words[lane % 4] = words.words[i];
}

/// Rows 16 m .. 16 m + 15 of two blocks a row: the left operand of one step.
SR_HOST_DEVICE inline FragmentA fragment(const RowWords& first, const RowWords& second, int m) {
  return FragmentA{
      {first.words[2 * m], first.words[2 * m + 1], second.words[2 * m], second.words[2 * m + 1]}};
}

/// The lowest bytes of four words.
SR_HOST_DEVICE inline std::uint32_t low_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                              std::uint32_t d) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
#else
  return (a & 0xFFu) | (b & 0xFFu) << 8 | (c & 0xFFu) << 16 | (d & 0xFFu) << 24;
#endif
}
/// The low bits of the counts of a pair of column tiles, behind the bits that are there: see output_bit().
SR_HOST_DEVICE inline void add_parities(const Counts& first, const Counts& second, int m, RowWords& out) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t bytes =
        low_bytes(first.words[2 * i], first.words[2 * i + 1], second.words[2 * i], second.words[2 * i + 1]);
    out.words[2 * m + i] = (out.words[2 * m + i] << 1) | (bytes & 0x01010101u);
  }
}

/// GHASH of two tiles side by side, each in a sum of its own: they share what is loaded of the matrices.
/// `stage`: four blocks of each row, of one tile behind the other. `value`: the sums before and behind it.
template <class Warp>
SR_HOST_DEVICE inline void absorb_tiles(Warp& warp, const Chunk* stage, const MatrixPair* step,
                                        typename Warp::template Lanes<RowWords> (&value)[2]) {
  typename Warp::template Lanes<FragmentA> left[2][2][2];  // [tile][half of the matrices][half of the rows]
  warp.each([&](int lane) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const Chunk* const blocks = stage + tile * static_cast<int>(kGcmTileChunks);
      const RowWords first = row_words(blocks, lane);
      const RowWords second = row_words(blocks + kGcmRows, lane);
      const RowWords third = row_words(blocks + 2 * kGcmRows, lane);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        left[tile][0][m][lane] = fragment(first, second, m);
        left[tile][1][m][lane] = fragment(third, value[tile][lane], m);
      }
      value[tile][lane] = RowWords{};
    }
  });
#pragma unroll 2
  for (int pair = 0; pair < kTilePairs; ++pair) {
    typename Warp::template Lanes<Chunk> b[2];
    warp.each([&](int lane) {
#pragma unroll
      for (int s = 0; s < 2; ++s) b[s][lane] = step[s][pair][lane];
    });
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      typename Warp::template Lanes<Counts> counts[2][2];  // [column tile of the pair][half of the rows]
      warp.each([&](int lane) {
#pragma unroll
        for (int m = 0; m < 2; ++m) counts[0][m][lane] = counts[1][m][lane] = Counts{};
      });
#pragma unroll
      for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          warp.count_products(counts[0][m], left[tile][s][m], b[s], 0);
          warp.count_products(counts[1][m], left[tile][s][m], b[s], 1);
        }
      }
      warp.each([&](int lane) {
#pragma unroll
        for (int m = 0; m < 2; ++m)
          add_parities(counts[0][m][lane], counts[1][m][lane], m, value[tile][lane]);
      });
    }
  }
  warp.each([&](int lane) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const RowWords fourth = row_words(stage + tile * static_cast<int>(kGcmTileChunks) + 3 * kGcmRows, lane);
#pragma unroll
      for (int i = 0; i < 4; ++i) value[tile][lane].words[i] ^= fourth.words[i];
    }
  });
}

}  // namespace sealring::cuda
