// What follows from a group's configuration alone, alike on all ranks. No CUDA header.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sealring/device/cuda/fused_window.h"
#include "sealring/device/cuda/move_plan.h"
#include "sealring/device/device_group.h"

namespace sealring::cuda {

/// The fused kernels do what they can do wherever windows are; the rest is staged.
inline bool has_fused(const DeviceGroupConfig& config) {
  return config.fused && config.wire != DeviceWireKind::nccl && config.suite == Suite::chacha20_poly1305 &&
         config.members.size() > 1 && config.members.size() <= kFusedRanksMax;
}

inline SlotPlace slot_place(const DeviceGroupConfig& config) {
  if (config.wire == DeviceWireKind::nccl) return SlotPlace::nccl;
  if (has_fused(config)) return SlotPlace::beside_fused;
  return takes_multiprocessors(config.suite) ? SlotPlace::long_launches : SlotPlace::windows;
}
inline std::uint64_t slot_bytes_of(const DeviceGroupConfig& config) {
  return slot_bytes_of(static_cast<std::uint32_t>(config.members.size()), slot_place(config));
}

/// Of every wait: far below the end of the device's clock, so that a deadline never wraps.
inline std::uint64_t wait_ns_of(const DeviceGroupConfig& config) {
  return std::min<std::uint64_t>(static_cast<std::uint64_t>(config.timeout.count()), 1ull << 60);
}

}  // namespace sealring::cuda
