// CUDA's errors as the library's, naming what was found and what is needed.
#pragma once

#include <cuda_runtime.h>

#include <string>

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

inline Result<void> checked(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // not the next call's
  const std::string what =
      std::string(doing) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation)
    return fail(Code::out_of_memory, "device.cuda", what,
                "free memory on the device, or use smaller segments");
  return fail(Code::cuda, "device.cuda", what);
}

inline tl::unexpected<Error> driver_too_old() {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  const auto text = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  return fail(Code::gpu_unsupported, "device.cuda",
              "the driver serves CUDA " + text(driver) + ", this build needs " + text(CUDART_VERSION),
              "update the driver, or build with an older CUDA toolkit");
}

inline tl::unexpected<Error> wrong_architecture(const cudaDeviceProp& found) {
  return fail(Code::gpu_unsupported, "device.cuda",
              std::string(found.name) + " is of architecture sm_" + std::to_string(found.major) +
                  std::to_string(found.minor) + ", this build holds code for " SEALRING_CUDA_ARCHITECTURES,
              "build with -DCMAKE_CUDA_ARCHITECTURES naming this one");
}

}  // namespace sealring::cuda
