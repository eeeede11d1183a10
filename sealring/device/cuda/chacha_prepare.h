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
  poly1305::Multiplier
      stride[4];  ///< r^(128 workers), r^96, r^64, r^32: from tile to tile, and within a tile
  poly1305::Number worker[kWorkers];  ///< r^0, r^128, ...: what lies behind a worker's last tile
  poly1305::Number low[8];            ///< r^1 .. r^8
  poly1305::Number high[5];           ///< r^0, r^8, .. r^32
  std::uint32_t s[4];
};

template <int kWorkers>
SR_HOST_DEVICE inline void prepare_segment(const KeyWords& key, const OpView& op, std::uint32_t k,
                                           SegmentPrep<kWorkers>& out) {
  using poly1305::multiply;
  using poly1305::Number;
  const NonceWords nonce = nonce_words(key, op.first_number + k);
  const chacha20::Block once = chacha20::keystream(key.key, nonce.words, 0);  // [RFC 8439 §2.6]
  const Number r = poly1305::clamped_r(once.words[0], once.words[1], once.words[2], once.words[3]);
  for (int i = 0; i < 4; ++i) out.s[i] = once.words[4 + i];

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
  out.stride[1] = multiplier_of(multiply(r64, r32));
  out.stride[2] = multiplier_of(r64);
  out.stride[3] = multiplier_of(r32);
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
  out.stride[0] = multiplier_of(far);
}

/// The same for a segment that nothing else can be done for meanwhile, by all lanes of `warp`: products that
/// do not wait for each other in one step, seven one after the other instead of nineteen.
template <class Warp>
SR_HOST_DEVICE inline void prepare_alone(Warp& warp, const KeyWords& key, const OpView& op, std::uint32_t k,
                                         SegmentPrep<1>& out) {
  using poly1305::multiply;
  using poly1305::Number;
  const NonceWords nonce = nonce_words(key, op.first_number + k);
  warp.step([&](int lane) {
    if (lane != 0) return;
    const chacha20::Block once = chacha20::keystream(key.key, nonce.words, 0);  // [RFC 8439 §2.6]
    out.low[0] = poly1305::clamped_r(once.words[0], once.words[1], once.words[2], once.words[3]);
    for (int i = 0; i < 4; ++i) out.s[i] = once.words[4 + i];
    out.worker[0] = out.high[0] = poly1305::one();
  });
  warp.step([&](int lane) {
    if (lane == 0) out.low[1] = multiply(out.low[0], out.low[0]);
  });
  warp.step([&](int lane) {
    if (lane < 2) out.low[2 + lane] = multiply(out.low[1], out.low[lane]);
  });
  warp.step([&](int lane) {
    if (lane < 4) out.low[4 + lane] = multiply(out.low[3], out.low[lane]);
  });
  warp.step([&](int lane) {
    if (lane == 0) out.high[2] = multiply(out.low[7], out.low[7]);
    if (lane == 1) out.high[1] = out.low[7];
  });
  warp.step([&](int lane) {
    if (lane < 2) out.high[3 + lane] = multiply(out.high[2], lane == 0 ? out.low[7] : out.high[2]);
  });
  warp.step([&](int lane) {
    if (lane == 0) out.stride[2] = multiplier_of(multiply(out.high[4], out.high[4]));
    if (lane == 1) out.stride[3] = multiplier_of(out.high[4]);
  });
  warp.step([&](int lane) {
    if (lane >= 2) return;
    Number far;  // r^64
    for (int i = 0; i < 5; ++i) far.limb[i] = out.stride[2].limb[i];
    out.stride[lane] = multiplier_of(multiply(far, lane == 0 ? far : out.high[4]));
  });
}

}  // namespace sealring::cuda
