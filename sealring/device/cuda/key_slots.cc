#include "sealring/device/cuda/key_slots.h"

#include <cstddef>
#include <cstring>
#include <new>

#include "sealring/device/cuda/aes_key.h"
#include "sealring/device/cuda/capture.h"
#include "sealring/device/cuda/errors.h"

namespace sealring::cuda {

CudaSlots::CudaSlots(unsigned device, Suite suite, KeyState* state, GcmKey* gcm_keys)
    : device_(device),
      suite_(suite),
      state_(state),
      gcm_keys_(gcm_keys),
      zeros_(gcm_keys != nullptr ? sizeof(GcmKey) : 0) {}

Result<std::unique_ptr<CudaSlots>> CudaSlots::make(unsigned device, Suite suite, KeyState* state,
                                                   GcmKey* gcm_keys) {
  const DeviceGuard guard(device);
  std::unique_ptr<CudaSlots> out(new CudaSlots(device, suite, state, gcm_keys));
  SR_TRY(out->copies_, CopyStream::of(device));
  return out;
}

// Waits: the next copy is enqueued when this one's bytes have arrived, so the device sees them in this order;
// and the caller may wipe `from`.
Result<void> CudaSlots::copy_in(void* device_at, const void* from, std::size_t bytes) {
  const DeviceGuard guard(device_);
  const RelaxedCapture relaxed;
  const cudaError_t enqueued =
      cudaMemcpyAsync(device_at, from, bytes, cudaMemcpyHostToDevice, copies_->stream());
  const cudaError_t ended = cudaStreamSynchronize(copies_->stream());
  SR_TRY(checked(enqueued, "key upload"));
  return checked(ended, "key upload");
}

Result<SlotLook> CudaSlots::look() {
  const DeviceGuard guard(device_);
  const RelaxedCapture relaxed;
  SlotLook out{};
  static_assert(offsetof(KeySlot, epoch) == 0 && offsetof(KeySlot, state) == offsetof(SlotHead, state));
  SR_TRY(checked(cudaMemcpy2DAsync(out.heads.data(), sizeof(SlotHead), state_->slots, sizeof(KeySlot),
                                   sizeof(SlotHead), kSlots, cudaMemcpyDeviceToHost, copies_->stream()),
                 "key slots"));
  SR_TRY(checked(cudaMemcpyAsync(&out.verdict, &state_->verdict, sizeof out.verdict, cudaMemcpyDeviceToHost,
                                 copies_->stream()),
                 "key slots"));
  SR_TRY(checked(cudaStreamSynchronize(copies_->stream()), "key slots"));
  return out;
}

Result<DeviceVerdict> CudaSlots::verdict_now() {
  const DeviceGuard guard(device_);
  const RelaxedCapture relaxed;
  DeviceVerdict out;
  SR_TRY(
      checked(cudaMemcpyAsync(&out, &state_->verdict, sizeof out, cudaMemcpyDeviceToHost, copies_->stream()),
              "verdict"));
  SR_TRY(checked(cudaStreamSynchronize(copies_->stream()), "verdict"));
  return out;
}

Result<void> CudaSlots::set_state(std::uint32_t slot, SlotState state) {
  const auto value = static_cast<std::uint32_t>(state);
  return copy_in(&state_->slots[slot].state, &value, sizeof value);
}

Result<void> CudaSlots::wipe(std::uint32_t slot) {
  const KeySlot none{};  // its state is EMPTY
  static_assert(static_cast<std::uint32_t>(SlotState::empty) == 0);
  SR_TRY(copy_in(&state_->slots[slot], &none, sizeof none));
  if (gcm_keys_ == nullptr) return {};
  return copy_in(gcm_keys_ + slot, zeros_.data(), sizeof(GcmKey));
}

Result<void> CudaSlots::write_key(const EpochKey& key) {
  if (key.key.size() != suite_key_bytes(suite_) || key.iv.size() != kNonceBytes)
    return fail(Code::invalid_argument, "device.load", "a key or its iv has the wrong size");
  const std::uint32_t at = key.epoch % kSlots;
  if (gcm_keys_ != nullptr) {
    SecretBytes memory(sizeof(GcmKey) + alignof(GcmKey));
    void* place = memory.data();
    std::size_t room = memory.size();
    auto* const made = ::new (std::align(alignof(GcmKey), sizeof(GcmKey), place, room)) GcmKey;
    make_gcm_key({key.key.data(), key.key.size()}, *made);
    SR_TRY(copy_in(gcm_keys_ + at, made, sizeof *made));
  }
  SecretBytes memory(sizeof(KeySlot));  // wiped at the end of this function, when the copy has ended
  KeySlot& slot = *::new (memory.data()) KeySlot{};
  slot.epoch = key.epoch;
  slot.canary = canary_of(key.epoch);
  std::memcpy(slot.words.key, key.key.data(), key.key.size());
  std::memcpy(slot.words.iv, key.iv.data(), key.iv.size());
  slot.words.gcm = gcm_keys_ != nullptr ? gcm_keys_ + at : nullptr;
  return copy_in(&state_->slots[at], &slot, sizeof slot);
}

}  // namespace sealring::cuda
