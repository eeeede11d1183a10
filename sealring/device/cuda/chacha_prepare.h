// What one segment needs before its first byte: the one-time key and the powers of r [RFC 8439 §2.6, §2.8].
//
// A lane prepares a segment, so a warp prepares up to 32 of them at the price of one.
#pragma once

#include <cstdint>

#include "sealring/device/cuda/segment_job.h"
#include "sealring/primitives/chacha20.h"
#include "sealring/primitives/poly1305.h"

namespace sealring::cuda {

inline constexpr std::uint32_t kRowBytes = 64;                 ///< one ChaCha block: a row of 4 chunks
inline constexpr std::uint32_t kTileChunks = 4 * kLanes;       ///< what a warp does at once: a row a lane
inline constexpr std::uint32_t kTileBytes = 16 * kTileChunks;  ///< 2 KiB

/// A segment cut into tiles. The first tile is padded in front by rows that do not exist, so that the powers
/// of r of the last tile do not depend on the length; what is behind the last whole row is the tail.
struct Shape {
  std::uint32_t rows;         ///< whole rows
  std::uint32_t tiles;        ///< of rows, the first may be padded
  std::uint32_t pad_rows;     ///< rows of the first tile that do not exist
  std::uint32_t tail_bytes;   ///< 0..63
  std::uint32_t tail_chunks;  ///< 0..4, the last may be short
};

SR_HOST_DEVICE inline Shape shape_of(std::uint32_t payload_bytes) {
  Shape out;
  out.rows = payload_bytes / kRowBytes;
  out.tiles = (out.rows + kLanes - 1) / kLanes;
  out.pad_rows = out.tiles * kLanes - out.rows;
  out.tail_bytes = payload_bytes % kRowBytes;
  out.tail_chunks = (out.tail_bytes + 15) / 16;
  return out;
}

/// The exponent of a block is 1 + the number of blocks behind it, the block of lengths being the last.
template <int kWorkers>
struct SegmentPrep {
  poly1305::ColumnMultiplier stride;  ///< r^(128 workers): from tile to tile
  poly1305::WordMultiplier inner[3];  ///< r^96, r^64, r^32: within a tile
  poly1305::Columns ones;             ///< what the 2^128 of a row's four blocks add to it
  poly1305::Number worker[kWorkers];  ///< r^0, r^128, ...: what lies behind a worker's last tile
  poly1305::Number low[8];            ///< r^1 .. r^8
  poly1305::Number high[5];           ///< r^0, r^8, .. r^32
  std::uint32_t s[4];
};

/// What the 2^128 of a row's blocks add, from the sum r^96 + r^64 + r^32.
SR_HOST_DEVICE inline poly1305::Columns ones_of(const poly1305::Columns& inner) {
  using namespace poly1305;
  const Number high = multiply(carried(inner), word_power(4));
  Columns out{};
  add_number(out, high);
  add_number(out, word_power(4));
  return out;
}

/// A lane alone: r and s are there.
template <int kWorkers>
SR_HOST_DEVICE inline void prepare_powers(const poly1305::Number& r, SegmentPrep<kWorkers>& out) {
  using poly1305::multiplier_of;
  using poly1305::multiply;
  using poly1305::Number;
  // Products that do not wait for each other stand together.
  const Number r2 = multiply(r, r);
  const Number r4 = multiply(r2, r2);
  const Number r3 = multiply(r2, r);
  const Number r8 = multiply(r4, r4);
  out.low[0] = r;
  out.low[1] = r2;
  out.low[2] = r3;
  out.low[3] = r4;
  out.low[7] = r8;
  const Number r16 = multiply(r8, r8);
  out.low[4] = multiply(r4, r);
  const Number r32 = multiply(r16, r16);
  out.low[5] = multiply(r4, r2);
  const Number r64 = multiply(r32, r32);
  out.low[6] = multiply(r4, r3);
  out.high[0] = poly1305::one();
  out.high[1] = r8;
  out.high[2] = r16;
  out.high[3] = multiply(r16, r8);
  out.high[4] = r32;
  out.inner[0].number[0] = multiply(r64, r32);
  out.inner[1].number[0] = r64;
  out.inner[2].number[0] = r32;
  poly1305::Columns inner{};
  for (auto& multiplier : out.inner) {
    add_number(inner, multiplier.number[0]);
    for (int i = 1; i < 4; ++i) multiplier.number[i] = word_higher(multiplier.number[i - 1]);
  }
  out.ones = ones_of(inner);
  static_assert((kWorkers & (kWorkers - 1)) == 0, "a power of two");
  Number far = multiply(r64, r64);
  out.worker[0] = poly1305::one();
#pragma unroll
  for (int known = 1; known < kWorkers; known *= 2) {  // far = r^(128 known)
    out.worker[known] = far;
#pragma unroll
    for (int i = 1; i < known; ++i) out.worker[known + i] = multiply(out.worker[i], far);
    far = multiply(far, far);
  }
  out.stride.low = multiplier_of(far);
  out.stride.high = multiplier_of(word_higher(far));
}

template <int kWorkers>
SR_HOST_DEVICE inline poly1305::Number prepare_key(const KeyWords& key, const OpView& op, std::uint32_t k,
                                                   SegmentPrep<kWorkers>& out) {
  const NonceWords nonce = nonce_words(key, op.first_number + k);
  const chacha20::Block once = chacha20::keystream(key.key, nonce.words, 0);  // [RFC 8439 §2.6]
  for (int i = 0; i < 4; ++i) out.s[i] = once.words[4 + i];
  return poly1305::clamped_r(once.words[0], once.words[1], once.words[2], once.words[3]);
}

/// One segment by one lane: how a batch is made, a segment a lane.
template <int kWorkers>
SR_HOST_DEVICE inline void prepare_segment(const KeyWords& key, const OpView& op, std::uint32_t k,
                                           SegmentPrep<kWorkers>& out) {
  prepare_powers(prepare_key(key, op, k, out), out);
}

/// Powers of r that a segment's preparation by all lanes computes one after the other, a place each.
inline constexpr int kPowerPlaces = 21;

/// powers[to + j] = powers[left] powers[right + j] for j below count, a lane each.
template <class Warp>
SR_HOST_DEVICE inline void multiply_powers(Warp& warp, poly1305::Number* powers, int to, int count, int left,
                                           int right) {
  warp.step([&](int lane) {
    if (lane < count) powers[to + lane] = multiply(powers[left], powers[right + lane]);
  });
}

/// One segment by all lanes, where a block waits for it: a chain of about eleven products instead of
/// thirty-odd. `powers`: kPowerPlaces numbers of shared memory.
template <int kWorkers, class Warp>
SR_HOST_DEVICE inline void prepare_together(Warp& warp, const KeyWords& key, const OpView& op,
                                            std::uint32_t k, poly1305::Number* powers,
                                            SegmentPrep<kWorkers>& out) {
  using namespace poly1305;
  static_assert(kWorkers == 4 || kWorkers == 8);
  warp.step([&](int lane) {
    if (lane == 0) powers[0] = prepare_key(key, op, k, out);
  });
  multiply_powers(warp, powers, 1, 1, 0, 0);                        // r^2
  multiply_powers(warp, powers, 2, 2, 1, 0);                        // r^3, r^4
  multiply_powers(warp, powers, 4, 4, 3, 0);                        // r^5 .. r^8
  multiply_powers(warp, powers, 8, 1, 7, 7);                        // r^16
  multiply_powers(warp, powers, 9, 2, 8, 7);                        // r^24, r^32
  multiply_powers(warp, powers, 11, 1, 10, 10);                     // r^64
  multiply_powers(warp, powers, 12, 2, 11, 10);                     // r^96, r^128
  multiply_powers(warp, powers, 14, 1, 13, 13);                     // r^256
  multiply_powers(warp, powers, 15, 2, 14, 13);                     // r^384, r^512
  if (kWorkers == 8) multiply_powers(warp, powers, 17, 4, 16, 13);  // r^640 .. r^1024
  // The last step: what is copied, and by lanes 0 to 11 the inner multipliers, word by word.
  constexpr int kFar = 12 + kWorkers;
  const auto inner_power = [&](int i) { return powers[i == 0 ? 12 : i == 1 ? 11 : 10]; };
  warp.step([&](int lane) {
    if (lane < 12) {
      out.inner[lane / 4].number[lane % 4] = multiply(inner_power(lane / 4), word_power(lane % 4));
    } else if (lane == 12) {
      out.stride.low = multiplier_of(powers[kFar]);
      out.stride.high = multiplier_of(word_higher(powers[kFar]));
    } else if (lane == 13) {
      Columns inner{};
      for (int i = 0; i < 3; ++i) add_number(inner, inner_power(i));
      out.ones = ones_of(inner);
    } else if (lane < 14 + kWorkers) {
      out.worker[lane - 14] = lane == 14 ? one() : powers[lane - 2];  // r^(128 i) is at 12 + i
    }
    if (lane < 8) out.low[lane] = powers[lane];
    if (lane >= 16 && lane < 21) out.high[lane - 16] = lane == 16 ? one() : powers[lane - 10];
  });
}

}  // namespace sealring::cuda
