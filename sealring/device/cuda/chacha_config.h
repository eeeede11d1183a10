// The choices of one ChaCha20-Poly1305 kernel.
#pragma once

#include <cstdint>

#include "sealring/device/cuda/kernel_list.h"

namespace sealring::cuda {

/// The choices of one kernel. kTile: bytes of the largest segment whose plaintext waits in shared memory
/// (open); 0: it waits in job.private_tiles (memory of this process on the device), 2 * segment_bytes a
/// column.
template <Direction kDirectionOf, int kWorkersOf, int kBlocksOf, std::uint32_t kTileOf,
          CombineKind kCombineOf, int kDepthOf = 2, int kUnrollOf = 2, int kProductsOf = 0>
struct ChachaConfig {
  static constexpr Direction kDirection = kDirectionOf;
  static constexpr int kWorkers = kWorkersOf;
  static constexpr int kBlocks =
      kBlocksOf;  ///< resident on a multiprocessor: limits registers and shared memory
  static constexpr std::uint32_t kTile = kTileOf;
  static constexpr CombineKind kCombine = kCombineOf;
  static constexpr int kUnroll = kUnrollOf;      ///< of ChaCha's double rounds
  static constexpr int kProducts = kProductsOf;  ///< of four quarter rounds: rotations by a product
  static constexpr int kDepth = kDepthOf;        ///< segments in flight in a block
  static constexpr int kBatch = kDirection == Direction::seal ? 16 : 8;  ///< segments prepared at once
};

}  // namespace sealring::cuda
