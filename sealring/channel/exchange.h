// Exchange: what an executor runs a schedule over: a Channel on CPUs, a DeviceChannel on one GPU.
//
// The executor says what an op is (begin), then gives it the moves of each step; memory is host memory or
// device memory, as the exchange is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sealring/base/deadline.h"
#include "sealring/base/result.h"
#include "sealring/base/types.h"

namespace sealring {

/// What all ranks of the group must mean alike; goes into every segment's authenticated data.
struct OpInfo {
  std::uint64_t seq = 0;
  Op op = Op::barrier;
  RedOp redop = RedOp::none;
  DType dtype = DType::u8;
  Algorithm algorithm = Algorithm::direct;
  Rank root = kNoRoot;         ///< group rank
  std::uint64_t elements = 0;  ///< as RecordContext::elements
  std::uint32_t tag = 0;       ///< point-to-point only
};

/// Memory that this rank seals and sends. Ranks are group ranks.
struct OutgoingMove {
  std::vector<Rank> peers;  ///< one; several only with multicast
  bool multicast = false;   ///< sealed once under the sender key
  std::uint16_t step = 0;
  const std::byte* data = nullptr;
  std::uint64_t elements = 0;
  std::uint64_t element_offset = 0;
  double scale = 1.0;  ///< premul_sum: applied (and rounded to the type) before sealing
};

/// Memory that this rank receives: dst = received, or local (+) received.
struct IncomingMove {
  Rank peer = 0;
  bool multicast = false;
  std::uint16_t step = 0;
  std::byte* dst = nullptr;
  std::uint64_t elements = 0;
  std::uint64_t element_offset = 0;
  const std::byte* local = nullptr;  ///< null: replace
  double local_scale = 1.0;
  std::uint32_t divisor = 1;  ///< avg's last hop
  std::uint64_t position =
      0;  ///< multicast: index of its first segment among those the peer seals in this op
};

/// How the moves of one step depend on each other; see Combine and Step in collective/schedule.h.
struct StepRules {
  /// Receives with the same dst are summed with `local` in group rank order, in fp32 for 16-bit types,
  /// rounded once.
  bool ordered = false;
  /// A receive's segment k is written only after every send's segment k was read; receives must reduce.
  bool lockstep = false;
};

/// What an op seals under each key, known alike to both ends. Index: group rank; mine is unused in to/from.
struct OpTotals {
  struct Key {
    std::uint64_t segments = 0, bytes = 0;
  };
  std::vector<Key> to, from;  ///< pair keys
  std::vector<Key> sender;    ///< sender keys, by origin, mine included
};

/// Used by the one thread that runs a group's collectives. Any error is final for the session.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual Rank rank() const = 0;  ///< mine, in the group
  virtual std::uint16_t size() const = 0;
  /// How a record of an op is cut; alike on all ranks.
  virtual std::uint32_t segment_bytes() const = 0;
  /// Starts a collective: reserves every number that it will use, before its first byte [protocol A.3].
  virtual Result<void> begin(const OpInfo& op, const OpTotals& totals) = 0;
  /// Runs (on a device: enqueues) the moves of one step.
  virtual Result<void> exchange(std::span<const OutgoingMove> out, std::span<const IncomingMove> in,
                                StepRules rules, Deadline deadline) = 0;
  /// Private memory for partial sums of the op that has begun, kept for later ops.
  virtual Result<std::byte*> scratch(std::uint64_t bytes) = 0;
  /// to[i] = from[i] * scale, rounded to the type; the memory is the same or disjoint.
  virtual Result<void> copy(DType dtype, const std::byte* from, std::byte* to, std::uint64_t elements,
                            double scale) = 0;
};

}  // namespace sealring
