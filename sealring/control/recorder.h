// FlightRecorder: the last ops of this rank, in the order of their start.
#pragma once

#include <deque>
#include <vector>

#include "sealring/control/messages.h"

namespace sealring {

/// Keeps RecorderReport::kOpsMax entries. Not thread-safe.
class FlightRecorder {
 public:
  void started(const OpContext& context);
  void finished(const std::array<std::byte, 32>& group_id, std::uint64_t seq, bool ok);
  std::vector<OpContext> ops() const { return {ops_.begin(), ops_.end()}; }

 private:
  std::deque<OpContext> ops_;
};

}  // namespace sealring
