// Refilling a device's key slots while ops run, replayed graphs included: what is due, in which order it is
// written, and the thread that does it. No CUDA header: the device is behind SlotMemory, and tests drive all
// of it on the host.
//
// [protocol A.3, "Slots"] Epoch e lies in slot e mod 4. The epilogue of the first op of epoch e+1 marks slot
// e FREE; the thread finds that by an ordinary copy, wipes the slot, writes epoch e+4, and sets it LIVE last.
// An op that comes before that is refused with KEY_LIMIT by the device, before it seals.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "sealring/base/result.h"
#include "sealring/device/cuda/key_state.h"
#include "sealring/device/key_source.h"

namespace sealring::cuda {

/// What the refill reads of the device: no key.
struct SlotHead {
  Epoch epoch;
  std::uint32_t state;
};
struct SlotLook {
  std::array<SlotHead, kSlots> heads;
  std::uint32_t verdict;
};

/// The slots of one KeyState, wherever it lies. A call returns when the device has what was written: nothing
/// of a later call is seen there before it.
class SlotMemory {
 public:
  virtual ~SlotMemory() = default;
  virtual Result<SlotLook> look() = 0;
  virtual Result<void> set_state(std::uint32_t slot, SlotState state) = 0;
  /// Zeroes a slot that is EMPTY, and what was made of its key.
  virtual Result<void> wipe(std::uint32_t slot) = 0;
  /// Writes the slot of key.epoch, which is EMPTY and stays so. No copy of the key is left on the host.
  virtual Result<void> write_key(const EpochKey& key) = 0;
};

enum class SlotDue { no, fill, broken };

/// Whether the slot of epoch `next`, which looks like `head`, is to be filled with it.
constexpr SlotDue slot_due(const SlotHead& head, Epoch next) {
  switch (static_cast<SlotState>(head.state)) {
    case SlotState::live:
      return SlotDue::no;
    case SlotState::empty:
      return SlotDue::fill;
    case SlotState::free:  // of the epoch four before, or somebody else writes here
      return head.epoch + kSlots == next ? SlotDue::fill : SlotDue::broken;
  }
  return SlotDue::broken;
}

/// The order of a slot's writes: no op finds half a key, for LIVE comes last.
inline Result<void> fill_slot(SlotMemory& memory, const EpochKey& key) {
  const std::uint32_t slot = key.epoch % kSlots;
  SR_TRY(memory.set_state(slot, SlotState::empty));
  SR_TRY(memory.wipe(slot));
  SR_TRY(memory.write_key(key));
  return memory.set_state(slot, SlotState::live);
}

/// Fills every slot that is due, in the order of epochs; gives how many. After the device's verdict no key is
/// taken any more. Errors: CUDA (a slot holds what nobody put there; those of `memory`).
inline Result<unsigned> refill_once(SlotMemory& memory, KeySource& source) {
  SR_TRY(const SlotLook look, memory.look());
  unsigned filled = 0;
  while (look.verdict == 0 && filled < kSlots) {
    const Epoch next = source.next_epoch();
    const SlotHead& head = look.heads[next % kSlots];
    const SlotDue due = slot_due(head, next);
    if (due == SlotDue::no) break;
    if (due == SlotDue::broken)
      return fail(Code::cuda, "device.refill",
                  "the key slot for epoch " + std::to_string(next) + " holds epoch " +
                      std::to_string(head.epoch) + " in state " + std::to_string(head.state),
                  "start a new session; if it happens again, memory of the device is being overwritten");
    SR_TRY(fill_slot(memory, source.next()));
    ++filled;
  }
  return filled;
}

/// The thread. After the device's verdict it takes no more keys, and it ends at its own first error; the
/// device then runs out of keys and says KEY_LIMIT. `memory` outlives it.
class KeyRefill {
 public:
  /// The protocol says every 20 ms at least; an epoch lasts 100 ms at least.
  static constexpr std::chrono::milliseconds kPeriod{5}, kPeriodMax{20};

  KeyRefill(SlotMemory& memory, std::unique_ptr<KeySource> source, std::chrono::milliseconds period = kPeriod)
      : memory_(memory), source_(std::move(source)), period_(period) {}
  KeyRefill(const KeyRefill&) = delete;
  KeyRefill& operator=(const KeyRefill&) = delete;
  ~KeyRefill() { stop(); }

  /// Fills what is due now, then begins to look by itself. Errors: those of refill_once().
  Result<void> start() {
    SR_TRY(refill_once(memory_, *source_));
    filled_to_ = source_->next_epoch();
    thread_ = std::thread([this] { run(); });
    return {};
  }
  /// Ends the thread and erases the source. Keys that are on the device stay.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
    source_.reset();
  }
  /// The thread's first error.
  Result<void> status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  /// All epochs below this have been uploaded.
  Epoch filled_to() const { return filled_to_; }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, period_, [&] { return stopping_; })) {
      lock.unlock();
      const auto filled = refill_once(memory_, *source_);
      lock.lock();
      filled_to_ = source_->next_epoch();
      if (filled) continue;
      status_ = tl::unexpected(filled.error());
      return;
    }
  }

  SlotMemory& memory_;
  std::unique_ptr<KeySource> source_;
  const std::chrono::milliseconds period_;
  std::atomic<Epoch> filled_to_{0};
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  Result<void> status_;
  std::thread thread_;
};

}  // namespace sealring::cuda
