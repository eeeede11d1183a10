// The CUDA device below BulkCipher: keys in device memory, and ops enqueued on a stream whose numbers the
// device gives out itself, so that they may be captured into a graph and replayed.
#pragma once

#include <cstdint>
#include <memory>

#include "sealring/base/result.h"
#include "sealring/base/secret.h"
#include "sealring/device/cuda/kernel_list.h"
#include "sealring/device/cuda/key_refill.h"
#include "sealring/device/cuda/key_state.h"
#include "sealring/device/cuda/verdict.h"

namespace sealring::cuda {

class CudaSlots;

/// The state of one key chain on one device: up to four epochs, counters, verdict. Cleared when destroyed,
/// which waits for the device. Not thread-safe; the device itself refuses two ops at once (SEQ_REUSE_GUARD).
class DeviceKeyRing {
 public:
  ~DeviceKeyRing();
  DeviceKeyRing(const DeviceKeyRing&) = delete;
  DeviceKeyRing& operator=(const DeviceKeyRing&) = delete;

  /// `first_epoch` is the epoch of the first op. Errors: OUT_OF_MEMORY, CUDA.
  static Result<std::unique_ptr<DeviceKeyRing>> make(unsigned device, Suite suite, Epoch first_epoch,
                                                     const KeyBudget& budget);
  /// Fills the slot epoch mod 4 and sets it live last. The slot must be empty or free. Errors:
  /// INVALID_ARGUMENT (sizes; slot in use), CUDA.
  Result<void> upload(Epoch epoch, const SecretBytes& key, const SecretBytes& iv);
  /// Hands the chain of keys over: fills the slots that hold none, and then a thread of its own refills each
  /// slot that the device has freed, also while graphs are replayed or captured. upload() is refused from
  /// here on. `period`: between its looks. Errors: INVALID_ARGUMENT (a second call), CUDA.
  Result<void> refill_from(std::unique_ptr<KeySource> source,
                           std::chrono::milliseconds period = KeyRefill::kPeriod);
  /// Ends the refilling; what is on the device stays, and KEY_LIMIT follows when it is used up.
  void stop_refill();
  /// All epochs below this have been uploaded by the refill.
  Epoch filled_to() const { return refill_ ? refill_->filled_to() : 0; }
  /// What has become of the refill.
  Result<void> refill_status() const { return refill_ ? refill_->status() : Result<void>{}; }
  /// The first error of this ring's ops, by an ordinary copy behind everything enqueued on `stream` (a
  /// cudaStream_t) so far, for which it waits. Errors: the ops'; INVALID_ARGUMENT (captured), CUDA.
  Result<void> verdict(void* stream) const;
  /// The same of the ops that have ended by now: waits for none, on no stream of the caller's.
  Result<void> verdict_so_far() const;

  /// What an op does is in `job` and `numbers`; it joins the order of `stream`. `entry` null: the preferred
  /// kernel. Errors: UNSUPPORTED (no kernel for this job), INVALID_ARGUMENT (alignment), OUT_OF_MEMORY, CUDA.
  Result<void> enqueue(const SegmentJob& job, Direction direction, OpRequest numbers, void* stream,
                       const KernelEntry* entry = nullptr);

  Suite suite() const { return suite_; }
  unsigned device() const { return device_; }
  unsigned multiprocessors() const { return multiprocessors_; }
  /// Limits an op's grid (0: as many blocks as fit).
  void limit_columns(unsigned columns) { columns_ = columns; }
  /// Limits it to so much of what fits, in percent.
  void limit_share(unsigned percent) { share_percent_ = percent; }
  /// What open needs of private device memory for segments up to this size, whatever it combines.
  std::uint64_t open_memory_bytes(std::uint32_t segment_bytes) const;
  /// Such memory for all opens to come, which another ring may use before or after them in stream order. Not
  /// owned: outlives the ops.
  void lend_open_memory(std::byte* memory, std::uint64_t bytes);
  /// Tests: change one field of the state behind the product's back.
  KeyState* state() const { return state_; }

 private:
  DeviceKeyRing() = default;
  unsigned columns_of(const KernelEntry& entry, std::uint32_t segments) const;
  static std::uint64_t private_bytes_of(const KernelEntry& entry, std::uint32_t segment_bytes);
  Result<void> reserve_private_tiles(std::uint64_t bytes);
  Result<void> told(const DeviceVerdict& verdict) const;

  Suite suite_ = Suite::chacha20_poly1305;
  unsigned device_ = 0;
  unsigned multiprocessors_ = 1;
  unsigned columns_ = 0;
  unsigned share_percent_ = 100;
  std::size_t shared_max_ = 0;
  bool overlapped_ = false;  ///< a kernel may begin while the one before it ends
  std::uint32_t next_descriptor_ = 0;
  KeyState* state_ = nullptr;
  GcmKey* gcm_keys_ = nullptr;  ///< AES suites: one a slot
  std::unique_ptr<CudaSlots> slots_;
  std::unique_ptr<KeyRefill> refill_;  ///< its thread uses slots_
  std::byte* private_tiles_ = nullptr;
  std::uint64_t private_bytes_ = 0;
  bool private_lent_ = false;
};

/// Loads every kernel of this build and checks that the device can run them. Errors: GPU_ABSENT,
/// GPU_UNSUPPORTED, CUDA.
Result<void> prepare_device(unsigned device);

}  // namespace sealring::cuda
