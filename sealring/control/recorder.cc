#include "sealring/control/recorder.h"

#include <algorithm>

namespace sealring {

void FlightRecorder::started(const OpContext& context) {
  ops_.push_back(context);
  if (ops_.size() > RecorderReport::kOpsMax) ops_.pop_front();
}

void FlightRecorder::finished(const std::array<std::byte, 32>& group_id, std::uint64_t seq, bool ok) {
  const auto at = std::find_if(ops_.rbegin(), ops_.rend(), [&](const OpContext& op) {
    return op.seq == seq && op.state == OpContext::State::started && op.group_id == group_id;
  });
  if (at != ops_.rend()) at->state = ok ? OpContext::State::done : OpContext::State::failed;
}

}  // namespace sealring
