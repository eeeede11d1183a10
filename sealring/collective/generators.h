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

/// For nodes of equally many ranks, two or more nodes of two or more ranks: n ranks, m a node, N = n/m nodes.
/// A rail is the ranks of the same place on each node.
///
/// all_reduce of S bytes: pieces of S/m straight to their owners inside the node, who add; the owners of one
/// piece, a rail, add their nodes' sums; sums straight back inside the node. Along a rail
///   two nodes: everything to everybody in one step (S/m bytes out of a rank; 3 steps in all);
///   more: parts to their owners and back (2(N-1)/N S/m bytes; 4 steps in all). For two nodes that would be
///   the same bytes in one step more; for three, one step would be 2 S/m bytes instead of 4/3 S/m.
/// reduce_scatter to E bytes a rank: node sums for one node after the other, then one step along the rail.
/// all_gather of E bytes a rank: each rank to its rail and its node, then inside the node what came.
///
/// Bytes between nodes, out of (and into) each rank, against one_hop's:
///   all_reduce       2(N-1)/N S/m   against   2(N-1)/N S
///   reduce_scatter   (N-1) E        against   (N-1) m E
///   all_gather       (N-1) E        against   (N-1) m E
/// so 1/m of them, and all_reduce opens as many bytes in all, for one or two more steps; reduce_scatter has N
/// more and all_gather N-1.
///
/// Order of a sum: the ranks of each node in rank order, then the nodes in order. Every rank gets the same
/// bits. 16-bit types are summed in fp32 and rounded twice: each node's sum, and the sum of those.
///
/// Between nodes a reduction must open and add: what comes in is another node's sum, and what goes on is a
/// new number. Only an all-gather could forward ciphertext, under the origin's sender key; this schedule does
/// not: what came from another node is opened and sealed again for the own node.
void two_level_all_reduce(const ScheduleRequest& request, Schedule& schedule);
void two_level_reduce_scatter(const ScheduleRequest& request, Schedule& schedule);
void two_level_all_gather(const ScheduleRequest& request, Schedule& schedule);

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

/// How a reduce_scatter whose partial sums need scratch is cut into rounds: of at most kRoundElementsMax
/// elements of the output, unless the 16-bit step number would overflow.
struct RoundPlan {
  std::uint64_t count = 1, elements = 0;
};
inline RoundPlan rounds_of(std::uint64_t elements, std::uint64_t steps_a_round) {
  constexpr std::uint64_t kStepsMax = 0xFFFF;  // [protocol C.3] step is a u16
  RoundPlan out;
  out.count = std::max<std::uint64_t>(1, (elements + kRoundElementsMax - 1) / kRoundElementsMax);
  out.count = std::min(out.count, kStepsMax / steps_a_round);
  out.elements = (elements + out.count - 1) / out.count;
  return out;
}

/// (rank + distance) mod world; distance may be negative, down to -2 * world.
inline Rank around(Rank rank, int distance, std::uint16_t world) {
  return static_cast<Rank>((rank + distance + 2 * world) % world);
}

}  // namespace sealring::generators
