#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "sealring/device/bulk_cipher.h"
#include "sealring/device/cuda/errors.h"
#include "sealring/device/cuda/fused.h"
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {
namespace {

constexpr const char* kStage = "device.cuda.fused";

// [protocol A.3] The prologue: its own launch of one thread, in stream order.
__global__ void fused_prologue(FusedState* const state, KeyState* const out, KeyState* const in,
                               const OpRequest request) {
  begin_fused(*state, *out, *in, request, DeviceFabric::now_ns());
}

// Everything is loaded and allocated before the first op: a kernel that waits for another rank must not meet
// a hidden wait of the host.
Result<std::vector<FusedEntry>> loaded_entries(const cudaDeviceProp& properties) {
  std::vector<FusedEntry> list;
  add_fused_f32(list);
  add_fused_bf16(list);
  add_fused_f16(list);
  add_fused_any(list);
  cudaFuncAttributes attributes{};
  SR_TRY(checked(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&fused_prologue)), "load"));
  for (const FusedEntry& entry : list) {
    SR_TRY(checked(cudaFuncGetAttributes(&attributes, entry.kernel), "load"));
    if (entry.shared_bytes > properties.sharedMemPerBlockOptin)
      return fail(
          Code::gpu_unsupported, kStage,
          "a fused kernel needs " + std::to_string(entry.shared_bytes) + " bytes of shared memory a block");
    SR_TRY(checked(cudaFuncSetAttribute(entry.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(entry.shared_bytes)),
                   "load"));
    SR_TRY(checked(cudaFuncSetAttribute(entry.kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                        cudaSharedmemCarveoutMaxShared),
                   "load"));
  }
  return list;
}

Result<void> check_job(const FusedJob& job, const WindowShape& shape) {
  const std::uint32_t segment = job.push.layout.segment_bytes;
  if (segment % 16 != 0 || segment > kFusedSegmentMax || segment != job.pull.layout.segment_bytes ||
      job.push.layout.payload_bytes != job.pull.layout.payload_bytes)
    return fail(Code::invalid_argument, kStage, "both directions must be cut alike, by fused_cut");
  if (WindowShape::of(1, segment).slot_bytes > shape.slot_bytes)
    return fail(Code::invalid_argument, kStage, "a segment does not fit into a slot");
  return {};
}

}  // namespace

FusedRank::~FusedRank() {
  const DeviceGuard guard(device_);
  cudaDeviceSynchronize();
  if (private_stream_ != nullptr) cudaStreamDestroy(static_cast<cudaStream_t>(private_stream_));
  if (window_ != nullptr) cudaFree(window_);
  if (state_ != nullptr) {
    cudaMemset(state_, 0, sizeof(FusedState));
    cudaFree(state_);
  }
}

Result<std::unique_ptr<FusedRank>> FusedRank::make(unsigned device, std::uint32_t columns,
                                                   std::chrono::nanoseconds timeout) {
  if (columns == 0 || columns > kFusedColumnsMax)
    return fail(
        Code::invalid_argument, kStage,
        "columns must be 1 to " + std::to_string(kFusedColumnsMax) + ", not " + std::to_string(columns));
  const DeviceGuard guard(device);
  std::unique_ptr<FusedRank> out(new FusedRank);
  out->device_ = device;
  cudaDeviceProp properties{};
  SR_TRY(checked(cudaGetDeviceProperties(&properties, static_cast<int>(device)), "query"));
  SR_TRY(out->entries_, loaded_entries(properties));
  out->shape_ = WindowShape::of(columns, kFusedSegmentMax);
  SR_TRY(checked(cudaMalloc(&out->window_, out->shape_.bytes()), "window"));
  SR_TRY(checked(cudaMalloc(&out->state_, sizeof(FusedState)), "fused state"));
  SR_TRY(checked(cudaMemset(out->window_, 0, out->shape_.bytes()), "window"));
  FusedState state{};
  state.timeout_ns = static_cast<std::uint64_t>(timeout.count());
  SR_TRY(checked(cudaMemcpy(out->state_, &state, sizeof state, cudaMemcpyHostToDevice), "fused state"));
  cudaStream_t stream = nullptr;
  SR_TRY(checked(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream"));
  out->private_stream_ = stream;
  SR_TRY(checked(cudaDeviceSynchronize(), "window"));
  return out;
}

Result<void> FusedRank::enqueue(FusedJob job, DeviceKeyRing& out, DeviceKeyRing& in, void* stream) {
  if (peer_window_ == nullptr)
    return fail(Code::invalid_argument, kStage, "the peer's window is not connected");
  if (out.suite() != Suite::chacha20_poly1305 || in.suite() != out.suite())
    return fail(Code::unsupported, kStage, "the fused kernels are of chacha20-poly1305 only");
  SR_TRY(check_job(job, shape_));
  const DeviceGuard guard(device_);
  job.shape = shape_;
  job.push.wire = peer_window_;
  job.pull.wire = window_;
  const CombineOp& combine = job.pull.combine;
  const CombineKind kind = combine_kind(combine.redop, combine.dtype, combine.divisor);
  const auto entry = std::ranges::find(entries_, kind, &FusedEntry::combine);
  if (entry == entries_.end()) return fail(Code::unsupported, kStage, "an all_reduce reduces");
  OpRequest request;
  request.descriptor = next_descriptor_++ % kDescriptors;
  request.segments = job.push.segments;
  request.payload_bytes = payload_bytes_of(job.push);
  KeyState *out_keys = out.state(), *in_keys = in.state();
  const auto native = static_cast<cudaStream_t>(stream);
  void* prologue_arguments[] = {&state_, &out_keys, &in_keys, &request};
  SR_TRY(checked(cudaLaunchKernel(reinterpret_cast<const void*>(&fused_prologue), dim3(1), dim3(1),
                                  prologue_arguments, 0, native),
                 "launch"));
  Chunk pattern;
  poison(combine.dtype, {reinterpret_cast<std::byte*>(&pattern), sizeof pattern});
  void* arguments[] = {&job, &state_, &out_keys, &in_keys, &request.descriptor, &pattern};
  const unsigned columns = std::min(shape_.columns, job.push.segments);
  return checked(cudaLaunchKernel(entry->kernel, dim3(columns), dim3(entry->threads), arguments,
                                  entry->shared_bytes, native),
                 "launch");
}

Result<void> FusedRank::verdict(void* stream) const {
  const DeviceGuard guard(device_);
  const auto native = static_cast<cudaStream_t>(stream);
  std::uint32_t words[2] = {};
  static_assert(offsetof(FusedState, bad_segment) == offsetof(FusedState, verdict) + 4);
  SR_TRY(checked(cudaMemcpyAsync(words, &state_->verdict, sizeof words, cudaMemcpyDeviceToHost, native),
                 "verdict"));
  SR_TRY(checked(cudaStreamSynchronize(native), "verdict"));
  if (words[0] == 0) return {};
  Error error;
  error.code = static_cast<Code>(words[0]);
  error.stage = kStage;
  error.what = error.code == Code::data_tag
                   ? "a record is not authentic (segment " + std::to_string(words[1]) + ")"
               : error.code == Code::timeout ? "the peer did not take part in time"
               : error.code == Code::aborted ? "the op was aborted here, or its peer gave up"
                                             : "the device refused an operation before it sealed anything";
  return fail(std::move(error));
}

Result<void> FusedRank::abort() {
  const DeviceGuard guard(device_);
  const auto native = static_cast<cudaStream_t>(private_stream_);
  static const std::uint32_t one = 1;
  SR_TRY(checked(cudaMemcpyAsync(&state_->abort, &one, sizeof one, cudaMemcpyHostToDevice, native), "abort"));
  return checked(cudaStreamSynchronize(native), "abort");
}

}  // namespace sealring::cuda
