#include <cuda_runtime.h>

#include <algorithm>

#include "sealring/device/bulk_cipher.h"
#include "sealring/device/cuda/errors.h"
#include "sealring/device/cuda/launched.h"
#include "sealring/device/cuda/plain_body.h"
#include "sealring/device/cuda/reduce.h"

namespace sealring::cuda {
namespace {

constexpr unsigned kThreads = 256;

// For the whole block, whatever becomes of the verdict meanwhile.
__device__ bool failed(const GroupState& state) {
  __shared__ std::uint32_t verdict;
  if (threadIdx.x == 0) verdict = verdict_of(state);
  __syncthreads();
  return verdict != 0;
}

template <DType D, RedOp R>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(const GroupState* const state, const ReduceArguments job) {
  if (failed(*state)) return;  // what a refused key was to release is not summed either
  reduce_chunks<D, R>(job, std::uint64_t{blockIdx.x} * kThreads + threadIdx.x,
                      std::uint64_t{gridDim.x} * kThreads);
}

template <DType D>
__global__ void __launch_bounds__(kThreads) scale_kernel(const ScaleArguments job) {
  scale_chunks<D>(job, std::uint64_t{blockIdx.x} * kThreads + threadIdx.x,
                  std::uint64_t{gridDim.x} * kThreads);
}

__global__ void __launch_bounds__(kPlainThreads)
    plain_seal_kernel(const GroupState* const state, const SegmentJob job) {
  if (failed(*state)) return;
  DeviceBlock block;
  PlainSealBody::run(block, job, Column{blockIdx.x, gridDim.x});
}

template <CombineKind K>
__global__ void __launch_bounds__(kPlainThreads)
    plain_open_kernel(const GroupState* const state, const SegmentJob job) {
  if (failed(*state)) return;
  DeviceBlock block;
  PlainOpenBody<K>::run(block, job, Column{blockIdx.x, gridDim.x});
}

struct ReduceKernel {
  template <DType D, RedOp R>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&reduce_kernel<D, R>);
  }
};
const void* reduce_kernel_of(DType dtype, RedOp redop) { return for_reduction(dtype, redop, ReduceKernel{}); }

const void* scale_kernel_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return reinterpret_cast<const void*>(&scale_kernel<DType::f32>);
    case DType::f64:
      return reinterpret_cast<const void*>(&scale_kernel<DType::f64>);
    case DType::f16:
      return reinterpret_cast<const void*>(&scale_kernel<DType::f16>);
    case DType::bf16:
      return reinterpret_cast<const void*>(&scale_kernel<DType::bf16>);
    default:
      return nullptr;
  }
}

const void* plain_open_kernel_of(CombineKind kind) {
  switch (kind) {
    case CombineKind::replace:
      return reinterpret_cast<const void*>(&plain_open_kernel<CombineKind::replace>);
    case CombineKind::sum_f32:
      return reinterpret_cast<const void*>(&plain_open_kernel<CombineKind::sum_f32>);
    case CombineKind::sum_bf16:
      return reinterpret_cast<const void*>(&plain_open_kernel<CombineKind::sum_bf16>);
    case CombineKind::sum_f16:
      return reinterpret_cast<const void*>(&plain_open_kernel<CombineKind::sum_f16>);
    case CombineKind::any:
      break;
  }
  return reinterpret_cast<const void*>(&plain_open_kernel<CombineKind::any>);
}

Result<void> launch(const void* kernel, std::uint64_t blocks, unsigned blocks_max, void** arguments,
                    void* stream) {
  const auto grid = static_cast<unsigned>(std::clamp<std::uint64_t>(blocks, 1, std::max(blocks_max, 1u)));
  static_assert(kPlainThreads == kThreads);
  return checked(
      cudaLaunchKernel(kernel, dim3(grid), dim3(kThreads), arguments, 0, static_cast<cudaStream_t>(stream)),
      "launch");
}

/// Blocks whose threads have a few chunks each.
std::uint64_t blocks_for(std::uint64_t bytes) { return bytes / (std::uint64_t{kThreads} * 64) + 1; }

}  // namespace

Result<void> load_reductions() {
  for (const DType dtype : all_dtypes()) {
    for (const RedOp redop : {RedOp::sum, RedOp::min, RedOp::max, RedOp::product})
      SR_TRY(load_kernel(reduce_kernel_of(dtype, redop)));
    if (const void* const kernel = scale_kernel_of(dtype); kernel != nullptr) SR_TRY(load_kernel(kernel));
  }
  SR_TRY(load_kernel(reinterpret_cast<const void*>(&plain_seal_kernel)));
  for (const CombineKind kind : {CombineKind::replace, CombineKind::sum_f32, CombineKind::sum_bf16,
                                 CombineKind::sum_f16, CombineKind::any})
    SR_TRY(load_kernel(plain_open_kernel_of(kind)));
  return {};
}

Result<void> enqueue_reduce(const GroupState* state, DType dtype, RedOp redop, const ReduceArguments& job,
                            unsigned blocks_max, void* stream) {
  if (!reduction_supported(dtype, redop))
    return fail(Code::unsupported, "device.cuda",
                "there is no " + std::string(to_string(redop)) + " of " + std::string(to_string(dtype)));
  ReduceArguments copy = job;
  void* arguments[] = {&state, &copy};
  return launch(reduce_kernel_of(dtype, redop), blocks_for(job.bytes), blocks_max, arguments, stream);
}

Result<void> enqueue_scale(DType dtype, const ScaleArguments& job, unsigned blocks_max, void* stream) {
  const void* const kernel = scale_kernel_of(dtype);
  if (kernel == nullptr)
    return fail(Code::unsupported, "device.cuda",
                "there is no premul_sum of " + std::string(to_string(dtype)));
  ScaleArguments copy = job;
  void* arguments[] = {&copy};
  return launch(kernel, blocks_for(job.bytes), blocks_max, arguments, stream);
}

Result<void> enqueue_plain_seal(const GroupState* state, const SegmentJob& job, unsigned blocks_max,
                                void* stream) {
  SegmentJob copy = job;
  void* arguments[] = {&state, &copy};
  return launch(reinterpret_cast<const void*>(&plain_seal_kernel), job.segments, blocks_max, arguments,
                stream);
}

Result<void> enqueue_plain_open(const GroupState* state, const SegmentJob& job, unsigned blocks_max,
                                void* stream) {
  const CombineOp& combine = job.combine;
  const void* const kernel =
      plain_open_kernel_of(combine_kind(combine.redop, combine.dtype, combine.divisor));
  SegmentJob copy = job;
  void* arguments[] = {&state, &copy};
  return launch(kernel, job.segments, blocks_max, arguments, stream);
}

}  // namespace sealring::cuda
