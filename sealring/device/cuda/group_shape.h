// What follows from a group's configuration alone, alike on all ranks. No CUDA header.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sealring/device/cuda/fused_state.h"
#include "sealring/device/cuda/move_plan.h"
#include "sealring/device/device_group.h"

namespace sealring::cuda {

/// Shared memory of a block of the fused AES-GCM kernels, at most: a GPU that has less is staged.
inline constexpr std::size_t kGcmSharedBytes = 227 * 1024;

/// The fused kernels do what they can do wherever windows are; the rest is staged. AES-GCM's are of two
/// ranks.
inline bool has_fused(const DeviceGroupConfig& config) {
  const std::size_t ranks = config.members.size();
  if (!config.fused || config.wire == DeviceWireKind::nccl || ranks < 2) return false;
  return config.suite == Suite::chacha20_poly1305 ? ranks <= kFusedRanksMax
                                                  : takes_multiprocessors(config.suite) && ranks == 2;
}

inline SlotPlace slot_place(const DeviceGroupConfig& config) {
  if (config.wire == DeviceWireKind::nccl) return SlotPlace::nccl;
  if (has_fused(config)) return SlotPlace::beside_fused;
  return takes_multiprocessors(config.suite) ? SlotPlace::long_launches : SlotPlace::windows;
}
inline std::uint64_t slot_bytes_of(const DeviceGroupConfig& config) {
  return slot_bytes_of(static_cast<std::uint32_t>(config.members.size()), slot_place(config));
}

/// Columns that a block has side by side where blocks are few: as many as fit a multiprocessor. Few: no more
/// than the multiprocessors of an H100 or H200, whatever the GPU, since ranks must agree.
inline constexpr std::uint32_t kFusedTeams = 3;
inline constexpr std::uint32_t kFewBlocks = 132;

/// Columns of a fused step, at most, which all ranks must have alike; and blocks of its kernel.
struct FusedGrid {
  std::uint32_t columns = 0;
  std::uint32_t alone = columns;   ///< columns of steps whose kernel has no teams
  std::uint32_t blocks = columns;  ///< fewer than columns: a block has several, side by side or in turn
  std::uint32_t each = 1;          ///< AES-GCM: columns of a block
  bool has_teams() const { return each == 1 && blocks < columns; }
};
static_assert(kFusedTeams * kFewBlocks <= kFusedColumnsMax);
/// All columns that fit at once; of ranks that may share the device each its part, so that every one of them
/// has some running. `config.columns` bounds the blocks; where those are few, two ranks' have the columns of
/// a whole multiprocessor each. Columns that were asked for depend on nothing that differs from GPU to GPU.
inline FusedGrid fused_grid(const DeviceGroupConfig& config, std::uint32_t multiprocessors) {
  const auto ranks = static_cast<std::uint32_t>(config.members.size());
  const bool shares_device = config.wire == DeviceWireKind::local;
  if (takes_multiprocessors(config.suite)) {
    // A block takes a multiprocessor. Ranks that share the device have no more than their part, whatever was
    // asked for: else one's blocks would take them all, and wait for the other's.
    const std::uint32_t all = shares_device ? std::max(1u, (multiprocessors - 1) / ranks) : multiprocessors;
    const std::uint32_t asked = config.columns == 0 ? all
                                : shares_device     ? std::min(config.columns, all)
                                                    : config.columns;
    const std::uint32_t blocks = std::min(asked, kFusedColumnsMax / kGcmColumns);
    return {kGcmColumns * blocks, kGcmColumns * blocks, blocks, kGcmColumns};
  }
  if (config.columns != 0) {
    if (shares_device || ranks != 2 || config.columns > kFewBlocks) return {config.columns};
    return {kFusedTeams * config.columns, config.columns, std::min(config.columns, multiprocessors)};
  }
  const std::uint32_t resident = ranks == 2 ? 3 : 2;
  if (!shares_device) return {multiprocessors * resident, multiprocessors * 2, multiprocessors * resident};
  // One multiprocessor is left to the small kernels between.
  return {std::max(1u, (multiprocessors - 1) * resident / ranks)};
}

/// Of every wait: far below the end of the device's clock, so that a deadline never wraps.
inline std::uint64_t wait_ns_of(const DeviceGroupConfig& config) {
  return std::min<std::uint64_t>(static_cast<std::uint64_t>(config.timeout.count()), 1ull << 60);
}

}  // namespace sealring::cuda
