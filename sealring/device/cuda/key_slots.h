// The key slots of a KeyState on a CUDA device, reached by ordinary copies.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "sealring/base/types.h"
#include "sealring/device/cuda/copy_stream.h"
#include "sealring/device/cuda/key_refill.h"
#include "sealring/device/cuda/verdict.h"

namespace sealring::cuda {

/// Works while other streams of the process are captured into graphs, and waits for none of them: the stream
/// (copy_stream.h) is non-blocking, and each call runs in relaxed capture mode. Copies alone, no kernel and
/// no memset: a GPU full of waiting kernels does not stop them. Thread-safe as far as one slot is written by
/// one thread.
class CudaSlots final : public SlotMemory {
 public:
  /// `state` and `gcm_keys` (null: the suite needs none) lie on the device and outlive this.
  static Result<std::unique_ptr<CudaSlots>> make(unsigned device, Suite suite, KeyState* state,
                                                 GcmKey* gcm_keys);
  CudaSlots(const CudaSlots&) = delete;
  CudaSlots& operator=(const CudaSlots&) = delete;

  /// The whole state, before anybody uses it.
  Result<void> write_state(const KeyState& state) { return copy_in(state_, &state, sizeof state); }
  Result<SlotLook> look() override;
  Result<void> set_state(std::uint32_t slot, SlotState state) override;
  Result<void> wipe(std::uint32_t slot) override;
  /// Errors: INVALID_ARGUMENT (a size that is not the suite's), CUDA.
  Result<void> write_key(const EpochKey& key) override;
  /// As it is now; waits for no op.
  Result<DeviceVerdict> verdict_now();

 private:
  CudaSlots(unsigned device, Suite suite, KeyState* state, GcmKey* gcm_keys);
  Result<void> copy_in(void* device_at, const void* from, std::size_t bytes);

  unsigned device_;
  Suite suite_;
  KeyState* state_;
  GcmKey* gcm_keys_;
  std::shared_ptr<const CopyStream> copies_;
  std::vector<std::byte> zeros_;
};

}  // namespace sealring::cuda
