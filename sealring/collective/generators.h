// The generators behind make_schedule: one pure function a family of algorithms. Each fills a schedule whose
// rank, world, elements and algorithm are set; world is at least 2.
#pragma once

#include <algorithm>

#include "sealring/collective/schedule.h"

namespace sealring::generators {

/// Reduce-scatter around the ring, then all-gather around it; every hop opens, adds and seals again.
void ring_all_reduce(const ScheduleRequest& request, Schedule& schedule);
void ring_reduce_scatter(const ScheduleRequest& request, Schedule& schedule);
void ring_all_gather(const ScheduleRequest& request, Schedule& schedule);

/// Pieces straight to their owners, who add all in rank order; then each owner multicasts its sum.
void one_hop_all_reduce(const ScheduleRequest& request, Schedule& schedule);
void one_hop_reduce_scatter(const ScheduleRequest& request, Schedule& schedule);
void one_hop_all_gather(const ScheduleRequest& request, Schedule& schedule);

/// Everything to everybody in one step; each adds all contributions in rank order.
void one_shot_all_reduce(const ScheduleRequest& request, Schedule& schedule);

/// One step between the root and everybody, or between everybody and everybody.
void direct_broadcast(const ScheduleRequest& request, Schedule& schedule);
void direct_reduce(const ScheduleRequest& request, Schedule& schedule);
void direct_gather(const ScheduleRequest& request, Schedule& schedule);
void direct_scatter(const ScheduleRequest& request, Schedule& schedule);
void direct_all_to_all(const ScheduleRequest& request, Schedule& schedule);
void direct_barrier(const ScheduleRequest& request, Schedule& schedule);

/// Piece `index` of `elements` cut into `world` pieces of ceil(elements/world): the last ones may be short or
/// empty.
inline Range piece_of(Buffer buffer, std::uint64_t elements, std::uint16_t world, Rank index) {
  const std::uint64_t whole = elements / world + (elements % world != 0 ? 1 : 0);
  const std::uint64_t begin = std::min<std::uint64_t>(whole * index, elements);
  return Range{buffer, begin, std::min(whole, elements - begin)};
}

/// (rank + distance) mod world; distance may be negative, down to -2 * world.
inline Rank around(Rank rank, int distance, std::uint16_t world) {
  return static_cast<Rank>((rank + distance + 2 * world) % world);
}

}  // namespace sealring::generators
