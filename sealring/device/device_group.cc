#include "sealring/device/device_group.h"

namespace sealring {

std::string_view to_string(DeviceWireKind kind) {
  switch (kind) {
    case DeviceWireKind::local:
      return "local";
    case DeviceWireKind::ipc:
      return "ipc";
    case DeviceWireKind::nccl:
      return "nccl";
    case DeviceWireKind::fabric:
      return "fabric";
  }
  return "?";
}

std::string_view to_string(WireFallback fallback) {
  switch (fallback) {
    case WireFallback::none:
      return "nothing";
    case WireFallback::windows:
      return "other windows";
    case WireFallback::staged:
      return "anything";
  }
  return "?";
}

}  // namespace sealring
