// What follows from a group's configuration alone, alike on all ranks. No CUDA header.
#pragma once

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
  return has_fused(config) ? SlotPlace::beside_fused : SlotPlace::windows;
}
inline std::uint64_t slot_bytes_of(const DeviceGroupConfig& config) {
  return slot_bytes_of(static_cast<std::uint32_t>(config.members.size()), slot_place(config));
}

}  // namespace sealring::cuda
