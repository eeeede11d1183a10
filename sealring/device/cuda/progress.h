// In which order a column of a fused kernel works, and why no column waits for ever.
//
// A fused kernel is one step of a schedule; its columns each take a share of every record's segments, and
// column c talks to column c of the peers alone. A column's work is cut into TURNS: turn u is
// segment u / stride of the (u % stride)-th record, so that `stride` turns are a segment of every record.
// `stride` is the larger of the numbers of records that this rank pushes and pulls; a record that has no such
// segment leaves its turn empty. In iteration u a column
//
// 1. seals push turn u; waits for the flag of pull turn u - lag;
//
// 2. posts the flag of push turn u; then gives the slot of pull turn u - lag - 1 back (its credit); then
//    waits for the credit that push turn u + 1 needs: that of the record's segment `slots` before.
//
// The time of iteration u is u / stride, in segments, on a clock that all ranks read alike, whatever their
// strides are. Lag is a whole number D of segments (D * stride turns). Then
//
// - a flag of segment s is posted before time s + 1 and waited for at time s + D or later;
//
// - a credit of segment s is given at time s + D + 1 at the latest, and waited for at time s + slots - 1 or
//   later, in an iteration that has given its own credits before;
//
// so with D >= 1 and slots >= D + 2 (D of each rank) every wait is for something that stands at an earlier
// place of the peer's list: an earlier time, or the same time and an earlier place of phase 2. The unfinished
// column that stands at the earliest place of all never waits for ever. Columns take their number from a
// counter when they start (never blockIdx), so the lowest unfinished column runs on every rank as long as
// each has room for one block. For a block is a column, or some teams that have one each at a time and go on
// with those that are left: if a rank has not started the lowest unfinished column, all that it has started
// have ended, so a team of it is free, or a block's room. Step follows step in the same order
// on all ranks. tests/device/progress_test.cc runs this against a model of the waits.
//
// Columns of AES-GCM (fused_gcm.h; one record each way at most) do ITEMS, a segment each: push 0; push 1,
// pull 0; push 2, pull 1; ... without those that there are not. An item's word, a credit or a flag, is looked
// at beside the item before; if it is not there, it is waited for when all items before have been told of. So
// of iteration u whoever waits has told of push u-1 and pull u-2 before it waits for the credit of push u,
// and of push u, too, before it waits for the flag of pull u-1: the list above with D = 1, but that what is
// posted stands earlier.
#pragma once

#include <cstdint>

#include "sealring/base/host_device.h"

namespace sealring::cuda {

/// Of a window: how many segments of a record may be under way in a column.
inline constexpr std::uint32_t kFusedSlots = 4;
/// D: how many segments pulls are behind pushes, at most. Ranks need not have the same.
inline constexpr std::uint32_t kLagSegments = 2;
/// D of a step. With one record each way, every turn between the first segment and its opening counts; where
/// a segment takes several turns, a rank that is late costs less with 2.
SR_HOST_DEVICE constexpr std::uint32_t lag_of(std::uint32_t stride) { return stride == 1 ? 1 : kLagSegments; }

SR_HOST_DEVICE constexpr bool progresses(std::uint32_t lag_segments, std::uint32_t slots) {
  return lag_segments >= 1 && slots >= lag_segments + 2;
}
static_assert(progresses(kLagSegments, kFusedSlots));

/// Which segment of which record a turn is.
struct Turn {
  std::uint32_t link = 0;     ///< record, in the order of the step's pushes or pulls
  std::uint32_t segment = 0;  ///< of the column's share of the record
};
SR_HOST_DEVICE constexpr Turn turn_of(std::uint32_t stride, std::uint32_t turn) {
  return Turn{turn % stride, turn / stride};
}
/// One more than the last turn of a record of which a column has `segments`; 0: it has none.
SR_HOST_DEVICE constexpr std::uint32_t turns_end(std::uint32_t stride, std::uint32_t link,
                                                 std::uint32_t segments) {
  return segments == 0 ? 0 : (segments - 1) * stride + link + 1;
}
/// How many of a record's segments column `index` has when `columns` share them.
SR_HOST_DEVICE constexpr std::uint32_t share_of(std::uint32_t segments, std::uint32_t columns,
                                                std::uint32_t index) {
  return index < columns && index < segments ? (segments - index + columns - 1) / columns : 0;
}

enum class Act : std::uint32_t { wait_credit, wait_flag, post_flag, post_credit };

/// Calls visit(act, link, segment) for every word that a column waits for or posts, in its order. `pushes`
/// and `pulls`: how many segments the column has of each record.
template <class Counts, class Visit>
constexpr void walk_column(std::uint32_t stride, std::uint32_t lag, const Counts& pushes, const Counts& pulls,
                           Visit&& visit) {
  std::uint32_t end = 0;
  for (std::uint32_t i = 0; i < pushes.size(); ++i) {
    const std::uint32_t behind = turns_end(stride, i, pushes[i]);
    end = end < behind ? behind : end;
  }
  for (std::uint32_t i = 0; i < pulls.size(); ++i) {
    const std::uint32_t behind = pulls[i] == 0 ? 0 : turns_end(stride, i, pulls[i]) + lag + 1;
    end = end < behind ? behind : end;
  }
  const auto if_there = [&](const Counts& counts, Act act, std::uint32_t turn) {
    const Turn at = turn_of(stride, turn);
    if (at.link < counts.size() && at.segment < counts[at.link]) visit(act, at.link, at.segment);
  };
  if (end > 0) if_there(pushes, Act::wait_credit, 0);
  for (std::uint32_t u = 0; u < end; ++u) {
    if (u >= lag) if_there(pulls, Act::wait_flag, u - lag);
    if_there(pushes, Act::post_flag, u);
    if (u > lag) if_there(pulls, Act::post_credit, u - lag - 1);
    if_there(pushes, Act::wait_credit, u + 1);
  }
}

/// A segment that a column of AES-GCM pushes or pulls, in the order of the column.
struct Item {
  bool push = false;
  std::uint32_t segment = 0;  ///< of the column's share of the record
};
struct Items {
  std::uint32_t pushes = 0, pulls = 0;  ///< segments of the column
  SR_HOST_DEVICE constexpr std::uint32_t count() const { return pushes + pulls; }
  SR_HOST_DEVICE constexpr Item at(std::uint32_t order) const {
    if (pushes == 0) return Item{false, order};
    if (order == 0) return Item{true, 0};
    const std::uint32_t pairs = pushes - 1 < pulls ? pushes - 1 : pulls;
    const std::uint32_t behind = order - 1;
    if (behind < 2 * pairs) return Item{behind % 2 == 0, behind / 2 + (behind % 2 == 0 ? 1u : 0u)};
    const bool push = pushes - 1 > pairs;
    return Item{push, behind - pairs + (push ? 1u : 0u)};
  }
};

/// Calls visit(act, segment) for every word that such a column waits for or posts, in its order.
template <class Visit>
constexpr void walk_items(const Items& items, Visit&& visit) {
  for (std::uint32_t order = 0; order < items.count(); ++order) {
    const Item item = items.at(order);
    visit(item.push ? Act::wait_credit : Act::wait_flag, item.segment);
    visit(item.push ? Act::post_flag : Act::post_credit, item.segment);
  }
}

}  // namespace sealring::cuda
