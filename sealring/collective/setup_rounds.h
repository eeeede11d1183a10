// SetupRounds: how the members of a group on a device agree, before the device can be used and when it is
// given up. In a round each tells all others one record of fixed size, sealed, over the group's streams
// between CPUs.
#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <vector>

#include "sealring/channel/channel.h"
#include "sealring/collective/session_core.h"
#include "sealring/device/device_group.h"

namespace sealring {

/// What a member says in a round. Encoded: u8 version(2) || u8 wire || u8 fallback || u8 0 || u32 columns
/// || u16 code || u16 body bytes || body || zeros, kBytes in all, big-endian.
struct SetupRecord {
  static constexpr std::size_t kHeadBytes = 12;
  static constexpr std::size_t kBodyBytesMax = DeviceGroup::kOfferBytesMax;
  static constexpr std::size_t kBytes = kHeadBytes + kBodyBytesMax;

  DeviceWireKind wire = DeviceWireKind::ipc;  ///< as DevicePlace, to be the same on all members
  WireFallback fallback = WireFallback::staged;
  std::uint32_t columns = 0;
  Code code = Code::ok;  ///< how the member fared since the last round
  Bytes body;            ///< ok: what the round is about; else a sentence

  /// A body that is too long is a programmer error.
  Bytes encode() const;
  /// Errors: MALFORMED for anything that encode() does not make.
  static Result<SetupRecord> parse(ByteView bytes);
};

/// Owns the group's streams. share() by one thread at a time; wipe() from any.
class SetupRounds {
 public:
  /// Takes the p2p chains of `keys`, whose p2p streams are connected.
  SetupRounds(SessionCore& core, GroupKeys& keys);
  ~SetupRounds();
  SetupRounds(const SetupRounds&) = delete;
  SetupRounds& operator=(const SetupRounds&) = delete;

  /// One round: what every member said, by group rank, mine included. It depends on every member's entry.
  /// After an error the streams cannot be used again. Errors: DATA_TAG, MALFORMED, TIMEOUT, PEER_LOST,
  /// ABORTED.
  Result<std::vector<SetupRecord>> share(const SetupRecord& mine, Deadline deadline);
  /// Erases the keys; where a round is under way, at its end. Does not wait.
  void wipe() noexcept;

 private:
  Result<std::vector<SetupRecord>> run(const SetupRecord& mine, Deadline deadline);
  void wipe_if_wanted() noexcept;

  SessionCore& core_;
  std::vector<Rank> members_;
  std::array<std::byte, 8> label_{};
  Channel channel_;
  std::uint64_t next_round_ = 0;
  std::mutex mutex_;  ///< held while keys are used
  std::atomic<bool> wipe_wanted_{false};
};

}  // namespace sealring
