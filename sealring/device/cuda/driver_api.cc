#include "sealring/device/cuda/driver_api.h"

#include <string>

#include "sealring/device/cuda/errors.h"

namespace sealring::cuda {
namespace {

constexpr unsigned kApiVersion = 12000;  // every function here is older

template <class Function>
Result<void> find(const char* symbol, Function& out) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  SR_TRY(checked(cudaGetDriverEntryPointByVersion(symbol, &entry, kApiVersion, cudaEnableDefault, &found),
                 "driver functions"));
#else
  SR_TRY(checked(cudaGetDriverEntryPoint(symbol, &entry, cudaEnableDefault, &found), "driver functions"));
#endif
  if (entry == nullptr || found != cudaDriverEntryPointSuccess)
    return fail(Code::gpu_unsupported, "device.cuda", std::string("the driver has no ") + symbol,
                "update the driver, or use the staged path");
  out = reinterpret_cast<Function>(entry);
  return {};
}

Result<DriverApi> found_api() {
  DriverApi out;
  SR_TRY(find("cuDeviceGet", out.device_get));
  SR_TRY(find("cuDeviceGetAttribute", out.device_attribute));
  SR_TRY(find("cuMemGetAllocationGranularity", out.granularity));
  SR_TRY(find("cuMemCreate", out.create));
  SR_TRY(find("cuMemRelease", out.release));
  SR_TRY(find("cuMemAddressReserve", out.reserve));
  SR_TRY(find("cuMemAddressFree", out.unreserve));
  SR_TRY(find("cuMemMap", out.map));
  SR_TRY(find("cuMemUnmap", out.unmap));
  SR_TRY(find("cuMemSetAccess", out.set_access));
  SR_TRY(find("cuMemExportToShareableHandle", out.export_handle));
  SR_TRY(find("cuMemImportFromShareableHandle", out.import_handle));
  return out;
}

}  // namespace

Result<const DriverApi*> driver_api() {
  static const Result<DriverApi> api = found_api();
  if (!api) return fail(api.error());
  return &*api;
}

Result<void> driver_checked(CUresult status, const char* doing, std::uint64_t wanted_bytes) {
  if (status == CUDA_SUCCESS) return {};
  Error error = error_of(static_cast<cudaError_t>(status), doing, wanted_bytes);
  switch (status) {
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
      error.code = Code::gpu_unsupported;
      error.next = "use the staged path; or look at what the driver, the container and the topology allow";
      break;
    default:
      break;
  }
  return fail(std::move(error));
}

}  // namespace sealring::cuda
