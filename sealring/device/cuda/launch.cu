#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "sealring/device/bulk_cipher.h"
#include "sealring/device/cuda/aes_key.h"
#include "sealring/device/cuda/errors.h"
#include "sealring/device/cuda/key_slots.h"
#include "sealring/device/cuda/launch.h"
#include "sealring/device/cuda/launched.h"

namespace sealring::cuda {
namespace {

// [protocol A.3] The prologue: its own launch of one thread. It lets the op's kernel be launched meanwhile;
// that one waits for the end of this one before it reads anything, as this one waits for whatever is before
// it in the stream.
__global__ void prologue(KeyState* const state, const OpRequest request) {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
  begin_op(*state, request);
}

Chunk poison_pattern(DType dtype) {
  Chunk out;
  poison(dtype, {reinterpret_cast<std::byte*>(&out), sizeof out});
  return out;
}

Result<void> check_aligned(const SegmentJob& job) {
  if (job.wire == nullptr || reinterpret_cast<std::uintptr_t>(job.wire) % 16 != 0)
    return fail(Code::invalid_argument, "device.cuda", "a wire buffer is not aligned to 16 bytes");
  if (job.segments > 1 && job.layout.segment_bytes % 16 != 0)
    return fail(Code::invalid_argument, "device.cuda", "a segment size is not a multiple of 16 bytes",
                "choose segments of a multiple of 128 bytes");
  return {};
}

}  // namespace

DeviceKeyRing::~DeviceKeyRing() {
  // [protocol A.6] Cleared before it is freed; nothing here can be reported.
  refill_.reset();  // its thread writes there
  const DeviceGuard guard(device_);
  if (state_ != nullptr) {
    cudaDeviceSynchronize();
    cudaMemset(state_, 0, sizeof(KeyState));
    cudaFree(state_);
  }
  if (gcm_keys_ != nullptr) {
    cudaMemset(gcm_keys_, 0, kSlots * sizeof(GcmKey));
    cudaFree(gcm_keys_);
  }
  if (private_tiles_ != nullptr && !private_lent_) {
    cudaMemset(private_tiles_, 0, private_bytes_);
    cudaFree(private_tiles_);
  }
}

Result<std::unique_ptr<DeviceKeyRing>> DeviceKeyRing::make(unsigned device, Suite suite, Epoch first_epoch,
                                                           const KeyBudget& budget) {
  const DeviceGuard guard(device);
  std::unique_ptr<DeviceKeyRing> out(new DeviceKeyRing);
  out->suite_ = suite;
  out->device_ = device;
  int value = 0;
  SR_TRY(checked(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, static_cast<int>(device)),
                 "query"));
  out->multiprocessors_ = static_cast<unsigned>(value);
  SR_TRY(checked(
      cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(device)),
      "query"));
  out->shared_max_ = static_cast<std::size_t>(value);
  SR_TRY(out->overlapped_, can_overlap(device));
  SR_TRY(checked(cudaMalloc(&out->state_, sizeof(KeyState)), "key state", sizeof(KeyState)));
  if (suite_has_gcm_key(suite))
    SR_TRY(
        checked(cudaMalloc(&out->gcm_keys_, kSlots * sizeof(GcmKey)), "key state", kSlots * sizeof(GcmKey)));
  KeyState state{};
  state.budget = budget;
  state.epoch = first_epoch;
  SR_TRY(out->slots_, CudaSlots::make(device, suite, out->state_, out->gcm_keys_));
  SR_TRY(out->slots_->write_state(state));
  return out;
}

Result<void> DeviceKeyRing::upload(Epoch epoch, const SecretBytes& key, const SecretBytes& iv) {
  if (refill_)
    return fail(Code::invalid_argument, "device.load", "a chain of keys fills the slots of this ring");
  SR_TRY(const SlotLook look, slots_->look());
  if (look.heads[epoch % kSlots].state == static_cast<std::uint32_t>(SlotState::live))
    return fail(Code::invalid_argument, "device.load", "the slot of this epoch holds a live key");
  return fill_slot(*slots_, EpochKey{epoch, key.clone(), iv.clone()});
}

Result<void> DeviceKeyRing::refill_from(std::unique_ptr<KeySource> source, std::chrono::milliseconds period) {
  if (refill_) return fail(Code::invalid_argument, "device.load", "this ring has a chain of keys already");
  refill_ = std::make_unique<KeyRefill>(*slots_, std::move(source), period);
  return refill_->start();
}

void DeviceKeyRing::stop_refill() {
  if (refill_) refill_->stop();
}

Result<void> DeviceKeyRing::told(const DeviceVerdict& verdict) const {
  if (verdict.code == 0) return {};
  return fail(verdict_error(verdict, refill_status()));
}

Result<void> DeviceKeyRing::verdict(void* stream) const {
  const DeviceGuard guard(device_);
  const auto native = static_cast<cudaStream_t>(stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  SR_TRY(checked(cudaStreamIsCapturing(native, &capture), "verdict"));
  if (capture != cudaStreamCaptureStatusNone)
    return fail(Code::invalid_argument, "data.cuda",
                "the verdict of a stream was asked for while it is captured",
                "ask behind the end of the capture, or without waiting");
  DeviceVerdict found;
  SR_TRY(checked(cudaMemcpyAsync(&found, &state_->verdict, sizeof found, cudaMemcpyDeviceToHost, native),
                 "verdict"));
  SR_TRY(checked(cudaStreamSynchronize(native), "verdict"));
  return told(found);
}

Result<void> DeviceKeyRing::verdict_so_far() const {
  SR_TRY(const DeviceVerdict found, slots_->verdict_now());
  return told(found);
}

Result<void> DeviceKeyRing::reserve_private_tiles(std::uint64_t bytes) {
  if (bytes <= private_bytes_) return {};
  // Larger segments than ever before: ops in flight still use the old memory.
  SR_TRY(checked(cudaDeviceSynchronize(), "private tiles"));
  if (private_tiles_ != nullptr && !private_lent_) {
    cudaMemset(private_tiles_, 0, private_bytes_);
    cudaFree(private_tiles_);
  }
  private_tiles_ = nullptr;
  private_bytes_ = 0;
  private_lent_ = false;
  SR_TRY(checked(cudaMalloc(&private_tiles_, bytes), "private tiles", bytes));
  private_bytes_ = bytes;
  return {};
}

unsigned DeviceKeyRing::columns_of(const KernelEntry& entry, std::uint32_t segments) const {
  const unsigned room = std::max(entry.blocks * multiprocessors_ * share_percent_ / 100, 1u);
  const unsigned columns = std::min(segments, room);
  return columns_ != 0 ? std::min(columns, columns_) : columns;
}

std::uint64_t DeviceKeyRing::private_bytes_of(const KernelEntry& entry, std::uint32_t segment_bytes) {
  if (entry.private_step == 0) return 0;
  return entry.private_depth *
         ((segment_bytes + std::uint64_t{entry.private_step} - 1) / entry.private_step * entry.private_step +
          entry.private_more);
}

std::uint64_t DeviceKeyRing::open_memory_bytes(std::uint32_t segment_bytes) const {
  std::uint64_t out = 0;
  for (const KernelEntry& entry : kernel_list()) {
    if (entry.suite == kernel_suite(suite_) && entry.direction == Direction::open &&
        pick_kernel(kernel_list(), suite_, Direction::open, entry.combine, segment_bytes, shared_max_) ==
            &entry)
      out = std::max(out, private_bytes_of(entry, segment_bytes) * columns_of(entry, ~std::uint32_t{0}));
  }
  return out;
}

void DeviceKeyRing::lend_open_memory(std::byte* memory, std::uint64_t bytes) {
  SR_CHECK(private_tiles_ == nullptr, "a ring has private tiles already");
  private_tiles_ = memory;
  private_bytes_ = bytes;
  private_lent_ = true;
}

Result<void> DeviceKeyRing::enqueue(const SegmentJob& given, Direction direction, OpRequest numbers,
                                    void* stream, const KernelEntry* given_entry) {
  // Only a reserved number seals. [protocol A.3]
  const bool reserves = numbers.numbers == Numbers::seal_next || numbers.numbers == Numbers::seal_at;
  SR_CHECK((direction == Direction::seal) == reserves, "numbers", static_cast<int>(numbers.numbers));
  const DeviceGuard guard(device_);
  SR_TRY(check_aligned(given));
  SegmentJob job = given;
  const CombineOp& combine = job.combine;
  const CombineKind kind = combine_kind(combine.redop, combine.dtype, combine.divisor);
  const auto largest =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(job.layout.segment_bytes, payload_bytes_of(job)));
  const KernelEntry* entry = given_entry;
  if (entry == nullptr)
    entry = pick_kernel(kernel_list(), suite_, direction, kind, largest, shared_max_, job.segments,
                        multiprocessors_);
  if (given_entry == nullptr && entry != nullptr && entry->small &&
      columns_of(*entry, job.segments) < job.segments)  // the grid is limited to fewer blocks
    entry = pick_kernel(kernel_list(), suite_, direction, kind, largest, shared_max_);
  if (entry == nullptr || largest > entry->segment_max)
    return fail(Code::unsupported, "device.cuda",
                "no kernel for segments of " + std::to_string(largest) + " bytes of suite " +
                    std::string(to_string(suite_)));
  const unsigned columns = columns_of(*entry, job.segments);
  if (entry->private_step != 0) {
    SR_TRY(reserve_private_tiles(private_bytes_of(*entry, job.layout.segment_bytes) * columns));
    job.private_tiles = private_tiles_;
  }
  numbers.descriptor = next_descriptor_++ % kDescriptors;
  numbers.segments = job.segments;
  numbers.payload_bytes = payload_bytes_of(job);
  const auto native = static_cast<cudaStream_t>(stream);
  void* prologue_arguments[] = {&state_, &numbers};
  SR_TRY(
      launched(reinterpret_cast<const void*>(&prologue), 1, 1, 0, native, overlapped_, prologue_arguments));
  Chunk pattern = poison_pattern(combine.dtype);
  void* arguments[] = {&job, &state_, &numbers.descriptor, &pattern};
  // Not where the op is to share the multiprocessors with another one.
  const std::size_t shared_bytes = share_percent_ == 100
                                       ? claimed_bytes(*entry, columns, multiprocessors_, shared_max_)
                                       : entry->shared_bytes;
  return launched(entry->kernel, columns, entry->threads, shared_bytes, native, overlapped_, arguments);
}

Result<void> prepare_device(unsigned device) {
  int count = 0;
  const auto wanted = static_cast<int>(device);
  if (const cudaError_t found = cudaGetDeviceCount(&count); found != cudaSuccess)
    return fail(error_of(found, "query", 0, wanted));
  if (wanted >= count) return fail(error_of(cudaErrorInvalidDevice, "query", 0, wanted));
  const DeviceGuard guard(device);
  int shared_max = 0;
  SR_TRY(
      checked(cudaDeviceGetAttribute(&shared_max, cudaDevAttrMaxSharedMemoryPerBlockOptin, wanted), "query"));
  SR_TRY(load_kernel(reinterpret_cast<const void*>(&prologue)));
  for (const KernelEntry& entry : kernel_list()) {
    SR_TRY(load_kernel(entry.kernel));
    if (entry.shared_bytes > static_cast<std::size_t>(shared_max)) continue;  // pick_kernel leaves it out
    const std::size_t most = claimed_bytes(entry, 1, 1, static_cast<std::size_t>(shared_max));
    SR_TRY(checked(cudaFuncSetAttribute(entry.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(most)),
                   "load"));
  }
  return {};
}

}  // namespace sealring::cuda
