// Diagnosis: the second line of an error, drawn from what authenticated peers recorded.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sealring/control/messages.h"

namespace sealring {

/// What this rank knows of one peer when the session has died.
struct PeerRecord {
  bool answered = false;       ///< it sent its recorder after the death
  bool gone = false;           ///< its control stream has ended
  std::vector<OpContext> ops;  ///< its recorder
  /// Last seq it told of in a heartbeat, by group.
  std::map<std::array<std::byte, 32>, std::uint64_t> last_seq;
  std::chrono::milliseconds silent_for{0};  ///< since its last authenticated frame
  std::optional<AbortReport> report;        ///< the first abort that it sent
};

struct DiagnosisInput {
  Rank me = 0;
  std::array<std::byte, 32> world_group{};
  Error error;  ///< the verdict
  std::vector<OpContext> mine;
  std::map<std::array<std::byte, 32>, std::vector<Rank>> members;  ///< world and groups in `mine`
  std::map<Rank, PeerRecord> peers;
};

/// One line, or empty when the records support none. In this order: the first op for which two ranks' records
/// differ, with the fields; for a TIMEOUT anywhere, the ranks which have not issued the op that is waited
/// for; the reason that a peer reported, when the verdict does not hold it.
std::string diagnose(const DiagnosisInput& input);

/// "the world group" or "group 1a2b3c4d".
std::string group_name(const std::array<std::byte, 32>& group_id,
                       const std::array<std::byte, 32>& world_group);
/// "rank 2 reported SR-E602 DATA_TAG at data.open: ..., passed on by rank 1".
std::string report_text(const AbortReport& report, Rank sender);

}  // namespace sealring
