// Small parts of the ChaCha20-Poly1305 body that know nothing of its configuration: how a tile lies in shared
// memory, and conversions.
#pragma once

#include "sealring/device/cuda/segment_job.h"
#include "sealring/device/cuda/user_memory.h"
#include "sealring/primitives/chacha20.h"
#include "sealring/primitives/poly1305.h"

namespace sealring::cuda {

/// Where lane `lane` finds chunk lane + 32 c of a tile: row lane/4 + 8 c, turned within the row.
SR_HOST_DEVICE inline std::uint32_t coalesced_slot(int lane, int c) {
  return static_cast<std::uint32_t>(c * kLanes + (lane & ~3) + ((lane & 3) ^ ((lane >> 3) & 3)));
}
/// Where chunk c of the row `lane` lies.
SR_HOST_DEVICE inline std::uint32_t row_slot(int lane, int c) {
  return static_cast<std::uint32_t>(lane * 4 + (c ^ ((lane >> 1) & 3)));
}

/// A lane's row into the places of its chunks.
SR_HOST_DEVICE inline void put_stream(const chacha20::Block& block, int lane, Chunk* stream) {
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    stream[row_slot(lane, c)] =
        Chunk{{block.words[4 * c], block.words[4 * c + 1], block.words[4 * c + 2], block.words[4 * c + 3]}};
  }
}

/// The keystream of a row to its places, and a lane's four chunks of misaligned memory, `at` being the first:
/// two aligned ones for each. One half of them is on its way during the first rounds, the other meanwhile the
/// others are done, so that nobody waits and the registers hold one half.
template <int kUnroll, int kProducts>
SR_HOST_DEVICE inline void stream_and_load_shifted(const KeyWords& key, const NonceWords& nonce,
                                                   std::uint32_t counter, const std::byte* at, int lane,
                                                   Chunk (&data)[4], Chunk* stream) {
  const std::uint32_t shift = misalignment(at);
  const std::byte* const from = at - shift;
  chacha20::Block block = chacha20::begin(key.key, nonce.words, counter);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Chunk low[2], high[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      low[c] = load_aligned(from + (2 * half + c) * kLanes * 16);
      high[c] = load_aligned(from + (2 * half + c) * kLanes * 16 + 16);
    }
    chacha20::double_rounds<kUnroll, kProducts>(block, half == 0 ? 4 : 6);
#pragma unroll
    for (int c = 0; c < 2; ++c) data[2 * half + c] = funnel(low[c], high[c], shift);
  }
  chacha20::end<false>(block, key.key, nonce.words, counter);
  put_stream(block, lane, stream);
}

SR_HOST_DEVICE inline poly1305::Columns columns_of(const poly1305::Number& number) {
  poly1305::Columns out{};
  add_number(out, number);
  return out;
}

}  // namespace sealring::cuda
