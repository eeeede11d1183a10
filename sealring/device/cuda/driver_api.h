// CUDA's driver functions for memory with an address of its own, found through the runtime at run time:
// nothing links libcuda, so that a build with CUDA starts on machines without a driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "sealring/base/result.h"

namespace sealring::cuda {

struct DriverApi {
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuDeviceGetAttribute) device_attribute = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) unreserve = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
  decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
};

/// The loaded driver's; lives as long as the process. Errors: GPU_UNSUPPORTED (the driver lacks one), CUDA.
Result<const DriverApi*> driver_api();

/// An error where `status` is one. The driver's numbers are the runtime's [CUDA runtime's driver_types.h];
/// those that say that the machine cannot do it at all are GPU_UNSUPPORTED.
Result<void> driver_checked(CUresult status, const char* doing, std::uint64_t wanted_bytes = 0);

}  // namespace sealring::cuda
