// The order in which rounds of chunks go over NCCL: which buffer each chunk lies in, what waits for what on
// three streams, and when a wait has become too long. Without CUDA: streams and events are the caller's.
//
// Each round is one exchange of NCCL's, on a stream of its own between the stream of the seals and that of
// the opens. kWireSlots buffers a peer and a direction: round r+3 is sealed into what round r was sent from,
// and received into what round r was opened from. Both ends give a round's chunks in the same order, so the
// number of a buffer is nobody's business but this rank's.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "sealring/base/deadline.h"
#include "sealring/device/cuda/move_plan.h"
#include "sealring/device/cuda/nccl_comm.h"
#include "sealring/device/cuda/wire.h"

namespace sealring::cuda {

/// What a round records in a stream, each with kWireSlots events.
enum class RoundEvent : std::uint8_t { sealed, moved, taken };
inline constexpr std::size_t kRoundEvents = 3;

/// The device's count of exchanges whose turn has come and of those that have ended: device memory, so that
/// replayed graphs count as well. [protocol E.5]
struct NcclMarks {
  std::uint64_t begun = 0, ended = 0;
};
enum class NcclMark : std::uint8_t { begun, ended };

/// What NcclRounds asks of CUDA. `stream` is a cudaStream_t.
class RoundStreams {
 public:
  virtual ~RoundStreams() = default;
  /// 0: not captured.
  virtual Result<std::uint64_t> capture_of(void* stream) = 0;
  /// NCCL's stream for eager rounds, or for captured ones.
  virtual void* nccl_stream(bool captured) = 0;
  virtual Result<void> record(RoundEvent event, std::uint8_t slot, void* stream) = 0;
  virtual Result<void> wait(void* stream, RoundEvent event, std::uint8_t slot) = 0;
  virtual Result<void> mark(NcclMark which, void* stream) = 0;
  /// Where a verdict that was set meanwhile becomes that of everything behind it in the stream.
  virtual Result<void> gate(void* stream) = 0;
};

/// Buffers of a rank: out and in, kWireSlots for each peer.
struct NcclStaging {
  std::byte* data = nullptr;
  std::uint64_t slot_bytes = 0;
  Rank rank = 0;  ///< mine

  static constexpr std::uint64_t bytes(std::uint32_t world, std::uint64_t slot_bytes) {
    return 2 * std::uint64_t{world - 1} * kWireSlots * slot_bytes;
  }
  std::byte* out(Rank peer, std::uint8_t slot) const { return data + 2 * index(peer, slot) * slot_bytes; }
  std::byte* in(Rank peer, std::uint8_t slot) const { return out(peer, slot) + slot_bytes; }

 private:
  std::uint64_t index(Rank peer, std::uint8_t slot) const {
    return std::uint64_t{peer < rank ? peer : peer - 1u} * kWireSlots + slot;
  }
};

/// As DeviceWire says it, in its order. `comm` and `streams` must outlive it.
class NcclRounds {
 public:
  NcclRounds(NcclComm& comm, RoundStreams& streams, NcclStaging staging, std::chrono::nanoseconds timeout)
      : comm_(comm), streams_(streams), staging_(staging), timeout_(timeout) {}

  Result<void> ready(const WireRound& round, void* stream);
  Result<void> sent(const WireRound& round, void* stream);
  Result<void> arrived(const WireRound& round, void* stream);
  Result<void> taken(const WireRound& round, void* stream);
  std::byte* out_place(Rank peer) const { return staging_.out(peer, slot_); }
  const std::byte* in_place(Rank peer) const { return staging_.in(peer, slot_); }

 private:
  struct Slot {
    // The capture in which the event was recorded last, 0: none; nothing: it never was.
    std::optional<std::uint64_t> moved, taken;
  };
  Slot& slot() { return slots_[slot_]; }

  NcclComm& comm_;
  RoundStreams& streams_;
  const NcclStaging staging_;
  const std::chrono::nanoseconds timeout_;
  std::array<Slot, kWireSlots> slots_;
  std::uint64_t rounds_ = 0;
  // Of the round that began last:
  std::uint8_t slot_ = 0;
  std::uint64_t capture_ = 0;
};

/// Says when an exchange has taken longer than the timeout, from marks that are looked at now and then.
class NcclWatch {
 public:
  explicit NcclWatch(std::chrono::nanoseconds timeout) : timeout_(timeout) {}
  /// True when the exchange that runs has run for the timeout.
  bool expired(const NcclMarks& seen, Clock::time_point now);

 private:
  const std::chrono::nanoseconds timeout_;
  NcclMarks last_;
  Clock::time_point since_{};
};

/// A rank's word to its peers: NCCL's version, and from group rank 0 what all need to meet.
Bytes nccl_offer(int version, Rank rank, const NcclUniqueId& id);
/// Rank 0's, when all offers fit this rank's NCCL of `version`. Errors: MALFORMED, VERSION_MISMATCH.
Result<NcclUniqueId> accept_nccl_offers(std::span<const Bytes> offers, int version);

}  // namespace sealring::cuda
