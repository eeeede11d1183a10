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

/// The low bits of a pair of column tiles' counts, to their places in the rows.
SR_HOST_DEVICE inline void add_parities(const Counts& counts, int tile, int m, RowWords& out) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    out.words[2 * m + i] |= (counts.words[2 * i] & 1u) << (2 * tile);
    out.words[2 * m + i] |= (counts.words[2 * i + 1] & 1u) << (2 * tile + 1);
  }
}

/// Four blocks of each row, and what the row was before: the row's new value is in `value`.
template <class Warp>
struct TileOperands {
  typename Warp::template Lanes<RowWords> block[4];
  typename Warp::template Lanes<RowWords> value;
};

template <class Warp>
SR_HOST_DEVICE inline void absorb_tile(Warp& warp, const MatrixPair* step, TileOperands<Warp>& tile) {
  typename Warp::template Lanes<FragmentA> a[2][2];
  warp.each([&](int lane) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      a[0][m][lane] = fragment(tile.block[0][lane], tile.block[1][lane], m);
      a[1][m][lane] = fragment(tile.block[2][lane], tile.value[lane], m);
    }
    tile.value[lane] = RowWords{};
  });
#pragma unroll
  for (int pair = 0; pair < kTilePairs; ++pair) {
    typename Warp::template Lanes<Counts> counts[2][2];
    typename Warp::template Lanes<Chunk> b[2];
    warp.each([&](int lane) {
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        b[s][lane] = step[s][pair][lane];
        for (int m = 0; m < 2; ++m) counts[s][m][lane] = Counts{};  // here s counts column tiles
      }
    });
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        warp.count_products(counts[0][m], a[s][m], b[s], 0);
        warp.count_products(counts[1][m], a[s][m], b[s], 1);
      }
    }
    warp.each([&](int lane) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        for (int m = 0; m < 2; ++m) add_parities(counts[half][m][lane], 2 * pair + half, m, tile.value[lane]);
      }
    });
  }
  warp.each([&](int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) tile.value[lane].words[i] ^= tile.block[3][lane].words[i];
  });
}

/// How many warps share the columns of the sum over warps.
inline constexpr int kFinishGroups = 4;

/// What sum_warps() gives: byte `group` of each word.
SR_HOST_DEVICE inline void put_row_bytes(const RowWords& words, Chunk* rows, int lane, int group) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    reinterpret_cast<std::uint8_t*>(&rows[lane / 4 + 8 * i].words[lane % 4])[group] =
        static_cast<std::uint8_t>(words.words[i]);
}

/// The sum over warps: rows[w] (32 chunks each, zero where there is nothing) times H^(128 w), for w < 2 *
/// steps; of each word of the sum the byte `group`, in the lowest bits.
template <class Warp>
SR_HOST_DEVICE inline void sum_warps(Warp& warp, const MatrixPair* finish, const Chunk (*rows)[kGcmRows],
                                     std::uint32_t steps, int group,
                                     typename Warp::template Lanes<RowWords>& sum) {
  constexpr int kPairs = kTilePairs / kFinishGroups;
  static_assert(2 * 2 * kPairs == 8, "a column tile gives two bits of each word");
  constexpr std::uint32_t kAhead = 4;  // steps whose matrices are on their way at once: they come from far
  static_assert(kGcmWorkers / 2 % kAhead == 0);
  typename Warp::template Lanes<Counts> counts[2 * kPairs][2];
  warp.each([&](int lane) {
    sum[lane] = RowWords{};
#pragma unroll
    for (int tile = 0; tile < 2 * kPairs; ++tile) {
      for (int m = 0; m < 2; ++m) counts[tile][m][lane] = Counts{};
    }
  });
#pragma unroll 1
  for (std::uint32_t from = 0; from < steps; from += kAhead) {
    typename Warp::template Lanes<Chunk> b[kAhead][kPairs];
    warp.each([&](int lane) {
#pragma unroll
      for (std::uint32_t s = 0; s < kAhead; ++s) {
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair)
          b[s][pair][lane] = from + s < steps ? finish[from + s][group * kPairs + pair][lane] : Chunk{};
      }
    });
#pragma unroll
    for (std::uint32_t s = 0; s < kAhead; ++s) {
      typename Warp::template Lanes<FragmentA> a[2];
      warp.each([&](int lane) {
        const RowWords first = row_words(rows[2 * (from + s)], lane);
        const RowWords second = row_words(rows[2 * (from + s) + 1], lane);
        for (int m = 0; m < 2; ++m) a[m][lane] = fragment(first, second, m);
      });
#pragma unroll
      for (int tile = 0; tile < 2 * kPairs; ++tile) {
#pragma unroll
        for (int m = 0; m < 2; ++m) warp.count_products(counts[tile][m], a[m], b[s][tile / 2], tile % 2);
      }
    }
  }
  warp.each([&](int lane) {
#pragma unroll
    for (int tile = 0; tile < 2 * kPairs; ++tile) {
      for (int m = 0; m < 2; ++m) add_parities(counts[tile][m][lane], tile, m, sum[lane]);
    }
  });
}

}  // namespace sealring::cuda
