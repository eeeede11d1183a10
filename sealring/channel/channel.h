// Channel: one group's sealed exchange. Session keys, numbers, the device's cipher and the transport meet
// here, and only here.
//
// A caller (the executor) says what an op is, reserves its numbers with begin(), then moves memory with
// exchange(), step by step. Plaintext goes in, plaintext comes out; what the transport sees is
// ciphertext||tag.
//
// Flow of one segment: user memory -> [scale] -> seal -> wire buffer -> transport -> staging -> open ->
// private scratch
// -> combine -> user memory. Sealing of segment k+1 overlaps the wire of segment k, because sources seal when
// the transport asks for the next piece.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "sealring/base/verdict.h"
#include "sealring/channel/exchange.h"
#include "sealring/channel/key_line.h"
#include "sealring/device/bulk_cipher.h"
#include "sealring/session/keys.h"
#include "sealring/transport/transport.h"

namespace sealring {

/// A cost per crypto operation of suite plain, for emulated rows of the study.
struct ChannelEmulation {
  double a_ns = 0, b_ns_per_byte = 0;
  bool offload = false;
};

struct ChannelConfig {
  std::uint32_t segment_bytes = 256 * 1024;
  KeyBudget budget;
  unsigned workers = 0;
  std::optional<ChannelEmulation> emulation;
  /// False: point-to-point only; the pair and sender chains are left to another (channel/device_channel.h).
  bool collectives = true;
};

/// Since the channel was made; relaxed atomics, read at any time.
struct ChannelCounters {
  std::atomic<std::uint64_t> seals{0}, opens{0}, sealed_segments{0}, opened_segments{0};
  std::atomic<std::uint64_t> sealed_bytes{0}, opened_bytes{0};
  std::atomic<std::uint64_t> seal_ns{0}, open_ns{0}, wire_ns{0};
  std::atomic<Epoch> epoch{0};
};

/// Collectives (begin, exchange) come from one thread, one op at a time. Each direction of point-to-point
/// comes from a thread of its own. Any error is final for the session: the caller sets the verdict, poisons
/// and ends.
class Channel final : public Exchange {
 public:
  /// Takes the pair, p2p and sender chains of `keys` (the p2p ones alone without ChannelConfig::collectives).
  /// The cipher, transport and verdict outlive it.
  Channel(ChannelConfig config, GroupKeys& keys, BulkCipher& cipher, Transport& transport, Verdict& verdict);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  Rank rank() const override { return rank_; }
  std::uint16_t size() const override { return static_cast<std::uint16_t>(members_.size()); }
  std::uint32_t segment_bytes() const override { return config_.segment_bytes; }

  /// Errors: KEY_LIMIT; the first error of a dead session. Nothing was sealed then.
  Result<void> begin(const OpInfo& op, const OpTotals& totals) override;
  /// Errors: DATA_TAG, TIMEOUT, PEER_LOST, ABORTED. What was combined before the error stays: the caller
  /// poisons.
  Result<void> exchange(std::span<const OutgoingMove> out, std::span<const IncomingMove> in, StepRules rules,
                        Deadline deadline) override;
  Result<std::byte*> scratch(std::uint64_t bytes) override;
  Result<void> copy(DType dtype, const std::byte* from, std::byte* to, std::uint64_t elements,
                    double scale) override;
  /// One point-to-point message; `op.seq` counts per direction.
  Result<void> send(const OpInfo& op, const OutgoingMove& move, Deadline deadline);
  Result<void> recv(const OpInfo& op, const IncomingMove& move, Deadline deadline);
  /// Many messages at the same time, at most one a peer and direction; `op.seq` is that of all of them.
  Result<void> messages(const OpInfo& op, std::span<const OutgoingMove> out, std::span<const IncomingMove> in,
                        Deadline deadline);
  /// The one of `from` (group ranks, not empty) whose next message of `payload_bytes` has wholly or, when
  /// longer, in its first segment arrived. Reads ahead: nobody else may be receiving from one of them.
  /// Errors: TIMEOUT, PEER_LOST, ABORTED.
  Result<Rank> wait_any(std::span<const Rank> from, std::uint64_t payload_bytes, Deadline deadline);

  const ChannelCounters& counters() const { return counters_; }
  /// Erase keys, each from the thread that uses them: those of collectives, those of one point-to-point
  /// direction.
  void wipe_collective() noexcept;
  void wipe_direction(Rank peer, bool outgoing) noexcept;

 private:
  friend class MoveBuilder;
  struct PeerLines {
    std::unique_ptr<KeyLine> pair_out, pair_in, p2p_out, p2p_in;
  };
  struct Reserved {
    std::optional<SealPermit> permit;  ///< outgoing
    std::uint64_t next_number = 0;     ///< incoming
  };

  RecordContext context(const OpInfo& op) const;
  StreamId stream(Rank peer, Kind kind) const;

  ChannelConfig config_;
  BulkCipher& cipher_;
  Transport& transport_;
  Verdict& verdict_;
  std::vector<Rank> members_;
  Rank rank_ = 0;
  Suite suite_;
  std::array<std::byte, 32> group_id_{};
  std::array<std::byte, 64> th3_{};
  std::vector<PeerLines> peers_;                   // by group rank
  std::vector<std::unique_ptr<KeyLine>> senders_;  // by group rank
  OpInfo op_;
  std::vector<Reserved> to_, from_, sender_;  // of the op in progress
  Bytes scratch_;
  std::unique_ptr<WorkerPool> workers_;
  ChannelCounters counters_;
};

}  // namespace sealring
