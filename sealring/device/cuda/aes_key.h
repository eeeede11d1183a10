// What AES-GCM kernels need of a key, made once by the host and kept in private device memory: round keys,
// and GHASH's multiplications by powers of H as bit matrices in the layout of tensor-core fragments [NIST SP
// 800-38D §6.4].
//
// A tile is 128 blocks in 32 rows: row r holds blocks r, r+32, r+64, r+96, and one row is what a lane
// encrypts. The row becomes
//   Y' = C0 H^96 + C1 H^64 + C2 H^32 + C3 + Y H^256
// so three blocks and Y are multiplied by one matrix each, and the last block is just added: Horner's rule on
// matrices. Y is the row's value two tiles ago: even and odd tiles are summed up side by side, and share what
// is loaded of the matrices. At the end of a segment row r counts H^(31-r), and H^128 more in the sum that
// the last tile is not in.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "sealring/device/cuda/block.h"
#include "sealring/primitives/aes.h"
#include "sealring/primitives/ghash.h"

namespace sealring::cuda {

inline constexpr int kGcmRows = kLanes;  ///< of a tile
inline constexpr std::uint32_t kGcmTileChunks = 4 * kGcmRows;
inline constexpr std::uint32_t kGcmTileBytes = 16 * kGcmTileChunks;
inline constexpr int kTilePairs = 8;  ///< 128 columns of a matrix: 8 pairs of tiles of 8

/// One step of a matrix instruction multiplies by two matrices, one above the other: [pair of column
/// tiles][lane] is the lane's part of two B fragments.
using MatrixPair = Chunk[kTilePairs][kLanes];

/// H^n for n in -125 .. 161, the powers that rows of a segment may count.
inline constexpr int kNearFirst = -125;
inline constexpr int kNearPowers = 33 + static_cast<int>(kGcmTileChunks) - kNearFirst + 1;

/// Secret.
struct GcmKey {
  alignas(16) std::uint32_t round_keys[60];
  std::uint32_t rounds;
  std::uint32_t unused[3];
  std::uint32_t table[256];                 ///< aes::table_entry; the same for every key
  MatrixPair step[2];                       ///< H^96, H^64; H^32, H^256
  ghash::Element near_powers[kNearPowers];  ///< H^(i + kNearFirst)
  ghash::Element powers[3][256];            ///< H^(256^j i)
};

/// H^n, n < 2^24.
SR_HOST_DEVICE inline ghash::Element power_of(const GcmKey& key, std::uint32_t n) {
  ghash::Element out = key.powers[0][n & 255u];
  if (n > 255) out = ghash::multiply(out, key.powers[1][(n >> 8) & 255u]);
  if (n > 65535) out = ghash::multiply(out, key.powers[2][(n >> 16) & 255u]);
  return out;
}

/// The logical bit of a matrix's output that physical column `column` (0..7) of column tile `tile` (0..15)
/// computes: so that the sums which one thread gets of a row are the bits of one word of it, and those of a
/// pair of tiles the same bit of its four bytes.
SR_HOST_DEVICE constexpr int output_bit(int tile, int column) {
  return 32 * (column / 2) + 16 * (tile % 2) + 8 * (column % 2) + kTilePairs - 1 - tile / 2;
}

namespace aes_key_internal {

inline void put_pair(const ghash::Element& first, const ghash::Element& second, MatrixPair& out) {
  const auto matrices = std::make_unique<ghash::Matrix[]>(2);
  ghash::matrix_of(first, matrices[0]);
  ghash::matrix_of(second, matrices[1]);
  for (int tile = 0; tile < 2 * kTilePairs; ++tile) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const int o =
          output_bit(tile, lane / 4);  // [PTX ISA, mma.m16n8k256] B: column lane/4, word lane%4 of each half
      for (int half = 0; half < 2; ++half)
        out[tile / 2][lane].words[2 * (tile % 2) + half] = matrices[half].rows[o][lane % 4];
    }
  }
  volatile std::uint32_t* const secrets = &matrices[0].rows[0][0];
  for (std::size_t i = 0; i < 2 * sizeof(ghash::Matrix) / 4; ++i) secrets[i] = 0;
}

}  // namespace aes_key_internal

/// `key` is 16 or 32 bytes.
inline void make_gcm_key(std::span<const std::byte> key, GcmKey& out) {
  namespace in = aes_key_internal;
  using ghash::Element;
  using ghash::multiply;
  std::uint32_t words[8] = {};
  std::memcpy(words, key.data(), std::min<std::size_t>(key.size(), sizeof words));
  aes::RoundKeys keys;
  aes::expand(words, static_cast<std::uint32_t>(key.size() / 4), keys);
  std::copy_n(keys.words, 60, out.round_keys);
  out.rounds = keys.rounds;
  for (std::uint32_t i = 0; i < 256; ++i) out.table[i] = aes::table_entry(i);

  aes::Block zero[1] = {};
  aes::encrypt(zero, keys.words, keys.rounds, aes::PlainTables{});
  const Element h = ghash::element_of(zero[0].words);
  Element base = h;
  for (auto& level : out.powers) {
    level[0] = ghash::one();
    for (int i = 1; i < 256; ++i) level[i] = multiply(level[i - 1], base);
    base = multiply(level[255], base);
  }
  const Element back = ghash::inverse(h);
  out.near_powers[-kNearFirst] = ghash::one();
  for (int n = -kNearFirst - 1; n >= 0; --n) out.near_powers[n] = multiply(out.near_powers[n + 1], back);
  for (int n = -kNearFirst + 1; n < kNearPowers; ++n)
    out.near_powers[n] = multiply(out.near_powers[n - 1], h);

  in::put_pair(out.powers[0][96], out.powers[0][64], out.step[0]);
  in::put_pair(out.powers[0][32], out.powers[1][1], out.step[1]);
  for (std::uint32_t& word : words) *static_cast<volatile std::uint32_t*>(&word) = 0;
  for (std::uint32_t& word : keys.words) *static_cast<volatile std::uint32_t*>(&word) = 0;
}

}  // namespace sealring::cuda
