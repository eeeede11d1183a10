// The control plane: every rank knows who lives, learns why a session died, and can say what differed.
//
// Its own sealed streams (ctl keys, aes-256-gcm, own numbers), one thread. Frame: u32 length || ciphertext ||
// tag with AAD = L("ctl") || TH3[0..8) || u32 i || u32 j || u32 epoch || u64 number || u32 length (protocol
// A.4).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sealring/base/deadline.h"
#include "sealring/base/result.h"
#include "sealring/base/types.h"
#include "sealring/base/verdict.h"
#include "sealring/session/keys.h"
#include "sealring/transport/transport.h"
#include "sealring/wire/nonce_sequence.h"

namespace sealring {

/// What one rank did, or was about to do, as op `seq` of a group: an entry of the flight recorder.
struct OpContext {
  std::array<std::byte, 32> group_id{};
  std::uint64_t seq = 0;
  Op op = Op::barrier;
  RedOp redop = RedOp::none;
  DType dtype = DType::u8;
  Algorithm algorithm = Algorithm::ring;
  Rank root = kNoRoot;  ///< group rank
  std::uint64_t elements = 0;
  enum class State : std::uint8_t { started = 1, done = 2, failed = 3 } state = State::started;

  /// Fixed layout, without `state`: what ranks must agree on.
  Bytes signature() const;
  /// "all_reduce bf16 x 4096 sum ring".
  std::string describe() const;
};

struct ControlConfig {
  Rank rank = 0;
  std::uint16_t world = 1;
  std::chrono::milliseconds heartbeat{100};
  /// A peer that is silent longer is PEER_LOST; 0: silence alone is never an error (a stopped process is
  /// found by the operations' own deadline).
  std::chrono::milliseconds silence_max{0};
  KeyBudget budget;
};

/// One a session. Thread-safe. Owns the streams and the ctl chains.
class Control {
 public:
  /// Starts the thread. `keys` is the world group (its ctl chains are taken). `verdict` outlives it.
  static Result<std::unique_ptr<Control>> start(const ControlConfig& config, GroupKeys& keys,
                                                std::unique_ptr<ControlStreams> streams, Verdict& verdict);
  virtual ~Control() = default;

  /// Records the op in the flight recorder (last 64 a session) and in the next heartbeat.
  ///
  /// A peer of the group whose signature for the same seq differs makes the session dead with OP_MISMATCH,
  /// the field named in `diagnosis`: "rank 2 called all_reduce bf16 x 4096, this rank fp16". Ops of kind send
  /// are recorded and not compared: their numbers count per direction.
  virtual void op_started(const OpContext& context, const std::vector<Rank>& members) = 0;
  virtual void op_finished(const std::array<std::byte, 32>& group_id, std::uint64_t seq, bool ok) = 0;
  /// The last op of a group that `peer` (global) has told of in a heartbeat; nullopt when none.
  virtual std::optional<std::uint64_t> last_heard(const std::array<std::byte, 32>& group_id,
                                                  Rank peer) const = 0;
  /// The group is gone: its entries no longer take part in heartbeats.
  virtual void forget_group(const std::array<std::byte, 32>& group_id) = 0;

  /// After the verdict was set (which by itself starts all this): sends ABORT with the reason to every peer,
  /// exchanges recorders, sets the verdict's diagnosis, all within `deadline` (at most 2 s), then wipes the
  /// ctl keys and closes. Idempotent, any thread but the control thread.
  virtual void announce_death(const Error& error, Deadline deadline) noexcept = 0;
  /// Orderly end: tells every peer that this rank is leaving, so that closing is not taken for a loss; waits
  /// until every peer has said the same or the deadline.
  virtual Result<void> leave(Deadline deadline) = 0;
};

}  // namespace sealring
