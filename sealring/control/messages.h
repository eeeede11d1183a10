// What control frames say: fixed layouts, one type byte first, every length checked (docs/wire-format.md).
//
// A message comes from an authenticated rank, which may still be broken or hostile: text is escaped on
// receipt, counts have bounds, unknown numbers are MALFORMED.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sealring/base/bytes.h"
#include "sealring/base/error.h"
#include "sealring/base/result.h"
#include "sealring/base/types.h"
#include "sealring/control/control.h"

namespace sealring {

/// First byte of a message; assigned once, never reused.
enum class ControlMessageType : std::uint8_t {
  heartbeat = 1,
  abort = 2,
  recorder = 3,
  leave = 4,
  leave_seen = 5,
  reattest = 6,  ///< reserved (protocol A.3): refused as MALFORMED until it exists
};

/// The first 8 bytes of a group id, as in heartbeats and stream names.
using GroupTag = std::array<std::byte, 8>;
GroupTag group_tag(const std::array<std::byte, 32>& group_id);

/// First 8 bytes of SHA-256 of an op's signature.
using OpDigest = std::array<std::byte, 8>;

struct OpMark {
  std::uint64_t seq = 0;
  OpDigest digest{};
  friend bool operator==(const OpMark&, const OpMark&) = default;
};

/// One group in a heartbeat: its last issued op, and recent ops by rising seq, none after the last.
struct GroupBeat {
  static constexpr std::size_t kMarksMax = 64;
  GroupTag group{};
  std::uint64_t last_seq = 0;
  std::vector<OpMark> marks;
  friend bool operator==(const GroupBeat&, const GroupBeat&) = default;
};

struct Heartbeat {
  /// Keeps a frame far below its limit; a sender with more to say sends several heartbeats.
  static constexpr std::size_t kGroupsMax = 32;
  std::vector<GroupBeat> groups;
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

/// Why a session died, as its origin reported it; passed on unchanged.
struct AbortReport {
  static constexpr std::size_t kStageBytesMax = 64;
  static constexpr std::size_t kWhatBytesMax = 512;
  Code code = Code::aborted;
  Rank origin = 0;          ///< global rank that saw it first
  std::int32_t peer = -1;   ///< global rank concerned, or -1
  std::string stage, what;  ///< bounded; printable after decoding
  friend bool operator==(const AbortReport&, const AbortReport&) = default;
};

struct RecorderReport {
  static constexpr std::size_t kOpsMax = 64;
  std::vector<OpContext> ops;  ///< in the order of their start
};

struct Leave {};
/// "I know that you are leaving": only then may the leaver close.
struct LeaveSeen {};

using ControlMessage = std::variant<Heartbeat, AbortReport, RecorderReport, Leave, LeaveSeen>;

/// Text over its bound is cut. Counts over their bounds are programmer errors.
Bytes encode(const ControlMessage& message);
/// `world` bounds the ranks inside. Errors: MALFORMED.
Result<ControlMessage> decode_control_message(ByteView bytes, std::uint16_t world);

/// Printable ASCII as it is, everything else as \xNN. Applied twice it changes nothing more.
std::string printable(std::string_view text);

}  // namespace sealring
