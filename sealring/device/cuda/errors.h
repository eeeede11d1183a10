// CUDA's errors as the library's, naming what was found and what is needed.
#pragma once

#include <cuda_runtime.h>

#include "sealring/base/result.h"

namespace sealring::cuda {

/// Makes `device` current, and gives the old one back.
class DeviceGuard {
 public:
  explicit DeviceGuard(unsigned device) {
    cudaGetDevice(&before_);
    if (before_ != static_cast<int>(device)) cudaSetDevice(static_cast<int>(device));
    changed_ = before_ != static_cast<int>(device);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(before_);
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// `error`, met while `doing`, with what this process and the current device say beside it. `wanted_bytes`:
/// of an allocation. `wanted_device`: where the choice of a device failed.
Error error_of(cudaError_t error, const char* doing, std::uint64_t wanted_bytes = 0, int wanted_device = -1);

/// An error where `error` is one.
inline Result<void> checked(cudaError_t error, const char* doing, std::uint64_t wanted_bytes = 0) {
  if (error == cudaSuccess) return {};
  return fail(error_of(error, doing, wanted_bytes));
}

}  // namespace sealring::cuda
