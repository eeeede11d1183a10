#include "sealring/device/cuda/errors.h"

#include "sealring/device/cuda/cuda_problem.h"

namespace sealring::cuda {
namespace {

constexpr bool same(CudaStatus ours, cudaError_t theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(same(CudaStatus::success, cudaSuccess));
static_assert(same(CudaStatus::out_of_memory, cudaErrorMemoryAllocation));
static_assert(same(CudaStatus::insufficient_driver, cudaErrorInsufficientDriver));
static_assert(same(CudaStatus::devices_unavailable, cudaErrorDevicesUnavailable));
static_assert(same(CudaStatus::invalid_device_function, cudaErrorInvalidDeviceFunction));
static_assert(same(CudaStatus::no_device, cudaErrorNoDevice));
static_assert(same(CudaStatus::invalid_device, cudaErrorInvalidDevice));
static_assert(same(CudaStatus::no_kernel_image, cudaErrorNoKernelImageForDevice));
static_assert(same(CudaStatus::ecc_uncorrectable, cudaErrorECCUncorrectable));
static_assert(same(CudaStatus::unsupported_ptx, cudaErrorUnsupportedPtxVersion));
static_assert(same(CudaStatus::illegal_address, cudaErrorIllegalAddress));
static_assert(same(CudaStatus::launch_timeout, cudaErrorLaunchTimeout));
static_assert(same(CudaStatus::hardware_stack_error, cudaErrorHardwareStackError));
static_assert(same(CudaStatus::illegal_instruction, cudaErrorIllegalInstruction));
static_assert(same(CudaStatus::misaligned_address, cudaErrorMisalignedAddress));
static_assert(same(CudaStatus::invalid_address_space, cudaErrorInvalidAddressSpace));
static_assert(same(CudaStatus::invalid_pc, cudaErrorInvalidPc));
static_assert(same(CudaStatus::launch_failure, cudaErrorLaunchFailure));
static_assert(same(CudaStatus::system_not_ready, cudaErrorSystemNotReady));
static_assert(same(CudaStatus::system_driver_mismatch, cudaErrorSystemDriverMismatch));
static_assert(same(CudaStatus::compat_not_supported, cudaErrorCompatNotSupportedOnDevice));
static_assert(same(CudaStatus::capture_unsupported, cudaErrorStreamCaptureUnsupported));
static_assert(same(CudaStatus::capture_invalidated, cudaErrorStreamCaptureInvalidated));
static_assert(same(CudaStatus::capture_implicit, cudaErrorStreamCaptureImplicit));
static_assert(same(CudaStatus::capture_wrong_thread, cudaErrorStreamCaptureWrongThread));

}  // namespace

Error error_of(cudaError_t error, const char* doing, std::uint64_t wanted_bytes, int wanted_device) {
  cudaGetLastError();  // not the next call's
  CudaFacts facts;
  facts.doing = doing;
  facts.name = cudaGetErrorName(error);
  facts.text = cudaGetErrorString(error);
  facts.built_version = CUDART_VERSION;
  facts.built_for = SEALRING_CUDA_ARCHITECTURES;
  facts.wanted_bytes = wanted_bytes;
  // What cannot be asked any more stays unknown.
  int device = wanted_device;
  if (device < 0 && cudaGetDevice(&device) != cudaSuccess) device = 0;
  facts.device = static_cast<unsigned>(device);
  if (cudaGetDeviceCount(&facts.devices) != cudaSuccess) facts.devices = 0;
  if (cudaDriverGetVersion(&facts.driver_version) != cudaSuccess) facts.driver_version = 0;
  if (device < facts.devices) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) {
      facts.gpu = properties.name;
      facts.major = properties.major;
      facts.minor = properties.minor;
    }
    std::size_t free = 0, total = 0;
    if (error == cudaErrorMemoryAllocation && cudaMemGetInfo(&free, &total) == cudaSuccess) {
      facts.free_bytes = free;
      facts.total_bytes = total;
    }
  }
  cudaGetLastError();
  return cuda_problem(static_cast<int>(error), facts);
}

}  // namespace sealring::cuda
