// How kernels are loaded and launched. A launch may begin while the one before it in the stream ends
// (programmatic dependent launch).
//
// Such a kernel waits for the whole of the one before by cudaGridDependencySynchronize() before it reads
// anything; the one before lets it begin by cudaTriggerProgrammaticLaunchCompletion(), or at its end. From
// sm_90 on; an older chip launches in plain stream order.
#pragma once

#include <cuda_runtime.h>

#include "sealring/device/cuda/errors.h"

namespace sealring::cuda {

/// Loads a kernel, so that nothing is loaded while streams are captured or kernels wait for other ranks. All
/// kernels here ask for the largest share of shared memory: one that asked for less would have to wait for a
/// multiprocessor that runs none of the others.
inline Result<void> load_kernel(const void* kernel) {
  cudaFuncAttributes attributes{};
  SR_TRY(checked(cudaFuncGetAttributes(&attributes, kernel), "load"));
  return checked(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                      cudaSharedmemCarveoutMaxShared),
                 "load");
}

inline Result<bool> can_overlap(unsigned device) {
  int major = 0;
  SR_TRY(checked(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, static_cast<int>(device)),
                 "query"));
  return major >= 9;
}

inline Result<void> launched(const void* kernel, unsigned blocks, dim3 threads, std::size_t shared_bytes,
                             cudaStream_t stream, bool overlapped, void** arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlapped ? 1 : 0;
  return checked(cudaLaunchKernelExC(&config, kernel, arguments), "launch");
}

}  // namespace sealring::cuda
