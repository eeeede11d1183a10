// Small parts of the ChaCha20-Poly1305 body that know nothing of its configuration: how a tile lies in shared
// memory, and conversions.
#pragma once

#include "sealring/device/cuda/block.h"
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

SR_HOST_DEVICE inline poly1305::Columns columns_of(const poly1305::Number& number) {
  poly1305::Columns out{};
  add_number(out, number);
  return out;
}

}  // namespace sealring::cuda
