// Which devices this build has. CUDA is chosen at link time: device/cuda/ or device/cuda_absent.cc (design
// decision 6).
#pragma once

#include <memory>

#include "sealring/base/result.h"
#include "sealring/device/bulk_cipher.h"

namespace sealring {

/// True when the CUDA code is linked in; says nothing about a device.
bool cuda_built() noexcept;
/// CUDA devices that this process sees; 0 without CUDA code.
unsigned cuda_device_count() noexcept;
/// Errors: GPU_ABSENT without CUDA code or device.
Result<std::unique_ptr<BulkCipher>> make_cuda_bulk_cipher(unsigned device);

}  // namespace sealring
