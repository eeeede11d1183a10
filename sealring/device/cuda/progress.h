// In which order a column of a fused kernel works, and why no column waits for ever.
//
// A fused all_reduce is one kernel a rank; its columns (blocks) each take a share of the segments, and column
// c talks to column c of every peer alone. A column goes through the segments t = 0, 1, ...:
//
// push(t) waits for a free slot at the owner (its credit for segment t - slots) and seals my input there.
//
// reduce(t - D1), more than two ranks: waits for all peers' push of it, adds in rank order, waits for free
// slots (credits for the segment gather_slots before), seals the sum to all peers.
//
// pull(t - D2) waits for the peers' reduce of it (two ranks: for the peer's push), opens into the output.
//
// Every wait is for something that the peer does at an earlier place of its own list, exactly when
// slots > D1, gather_slots > D2 - D1 and D2 >= D1 (two ranks: slots > D2). The lists of all ranks are the
// same, so the unfinished column that stands at the earliest place of all never waits for ever. Columns take
// their number from a counter when they start (never blockIdx), so the lowest unfinished column runs on every
// rank as long as each has room for one block; when it ends, it makes room for the next.
// tests/device/progress_test.cc runs this against a model of the waits.
#pragma once

#include <cstdint>

#include "sealring/base/host_device.h"

namespace sealring::cuda {

/// Lags and slots, in segments of a column.
struct Pipeline {
  std::uint32_t reduce_lag = 0;    ///< D1; unused by two ranks
  std::uint32_t pull_lag = 0;      ///< D2
  std::uint32_t slots = 0;         ///< of the window that is pushed into, a peer
  std::uint32_t gather_slots = 0;  ///< of the window that sums come through, a peer; unused by two ranks
};

SR_HOST_DEVICE constexpr bool progresses(const Pipeline& p, bool two_ranks) {
  if (two_ranks) return p.slots > p.pull_lag;
  return p.slots > p.reduce_lag && p.pull_lag >= p.reduce_lag && p.gather_slots > p.pull_lag - p.reduce_lag;
}

inline constexpr Pipeline kTwoRankPipeline{0, 3, 4, 0};
inline constexpr Pipeline kManyRankPipeline{2, 4, 4, 4};
static_assert(progresses(kTwoRankPipeline, true) && progresses(kManyRankPipeline, false));

enum class Stage : std::uint32_t { push, reduce, pull };

/// Calls visit(stage, segment) for all that a column of `segments` segments does, in its order.
template <class Visit>
SR_HOST_DEVICE constexpr void walk_column(const Pipeline& p, bool two_ranks, std::uint32_t segments,
                                          Visit&& visit) {
  const std::uint32_t lag = two_ranks || p.pull_lag > p.reduce_lag ? p.pull_lag : p.reduce_lag;
  for (std::uint32_t t = 0; t < segments + lag; ++t) {
    if (t < segments) visit(Stage::push, t);
    if (!two_ranks && t >= p.reduce_lag && t - p.reduce_lag < segments)
      visit(Stage::reduce, t - p.reduce_lag);
    if (t >= p.pull_lag && t - p.pull_lag < segments) visit(Stage::pull, t - p.pull_lag);
  }
}

}  // namespace sealring::cuda
