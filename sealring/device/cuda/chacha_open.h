// The open kernels of one combine. The first that serves a job is preferred.
#pragma once

#include "sealring/device/cuda/chacha_small.h"
#include "sealring/device/cuda/kernel.h"

namespace sealring::cuda {

template <CombineKind kCombine, int kWorkers, int kBlocks, std::uint32_t kTile, int kDepth>
void add_chacha_open_kernel(std::vector<KernelEntry>& list) {
  using Body = ChachaBody<ChachaConfig<Direction::open, kWorkers, kBlocks, kTile, kCombine, kDepth>>;
  constexpr std::uint32_t kLargest = kTile != 0 ? kTile : 1u << 30;
  constexpr std::uint32_t kStep = kTile != 0 ? 0 : kWorkers * kTileBytes;
  list.push_back(entry_of<Body>(Suite::chacha20_poly1305, kCombine, kLargest, kStep));
}

template <CombineKind kCombine>
void add_chacha_open(std::vector<KernelEntry>& list) {
  using Small = ChachaSmall<Direction::open, kCombine>;
  list.push_back(entry_of<Small>(Suite::chacha20_poly1305, kCombine, Small::kSegmentMax, 0));
  add_chacha_open_kernel<kCombine, 4, 4, 16384, 2>(list);
  add_chacha_open_kernel<kCombine, 4, 4, 32768, 1>(list);
  add_chacha_open_kernel<kCombine, 8, 2, 65536, 1>(list);
  add_chacha_open_kernel<kCombine, 4, 4, 0, 2>(list);
}

}  // namespace sealring::cuda
