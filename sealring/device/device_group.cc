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

}  // namespace sealring
