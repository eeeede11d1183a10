// A collective is data: a generator is a pure function from (rank, world, elements) to a Schedule.
//
// The executor runs schedules, the simulator proves them, `plan` prices them, and the operation counts of the
// study (ring: 4(n-1) per all-reduce per rank) fall out of them. Ranks here are ranks of the group.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sealring/base/types.h"

namespace sealring {

/// Which memory a move reads or writes. In-place calls give `input` and `output` the same address
/// (all_reduce, reduce, broadcast) or let the smaller one lie inside the larger at rank * elements
/// (reduce_scatter, all_gather, gather, scatter); a schedule is right in all of these cases. all_to_all needs
/// disjoint buffers. `scratch` is private memory of Schedule::scratch_elements that the executor provides; it
/// holds partial sums.
enum class Buffer : std::uint8_t { input, output, scratch };

/// A run of whole elements.
struct Range {
  Buffer buffer = Buffer::input;
  std::uint64_t offset = 0;    ///< elements
  std::uint64_t elements = 0;  ///< may be 0: the move then carries one empty segment
  friend bool operator==(const Range&, const Range&) = default;
};

/// What happens to what a receive opens.
enum class Combine : std::uint8_t {
  replace,  ///< dst = received
  reduce,   ///< dst = local (+) received
  ordered,  ///< all receives of the step with the same dst, and local, in group rank order, fp32, rounded
            ///< once
};

/// One record from one rank to one peer. In a send `data` is read; in a receive it is written.
///
/// The sends of one multicast stand next to each other in Step::sends and differ in `peer` alone: they are
/// one record, sealed once; a rank has at most one multicast in a step. The k-th send to a peer in a step
/// meets the peer's k-th receive from me.
struct Move {
  Rank peer = 0;  ///< group rank: receiver of a send, sender of a receive
  Range data;
  bool multicast = false;  ///< sealed once under the sender key and sent to several peers (protocol A.3)
  Range local;             ///< receive with reduce/ordered: my own contribution
  bool last = false;       ///< receive: the reduction of this range is complete after it (avg divides here)
  /// send: `data` is an untouched input of a premul_sum, to be scaled before it is sealed; receive: `local`
  /// is.
  bool raw = false;
  std::uint64_t element_offset = 0;  ///< AAD's element offset: position in the collective's logical tensor
  friend bool operator==(const Move&, const Move&) = default;
};

/// Sends and receives that run at the same time. The next step starts when all are done.
///
/// Within a step, in every legal aliasing, nothing that is received overwrites what is sent or what another
/// receive takes as `local`; `local` is the very place of `data` or disjoint from it. So segments may run in
/// any order. In a step in `lockstep` a receive may have the very place of the sends: the executor writes its
/// segment k only after segment k of every send was read (reductions only).
struct Step {
  std::vector<Move> sends, recvs;
  Combine combine = Combine::replace;
  bool lockstep = false;
  friend bool operator==(const Step&, const Step&) = default;
};

/// A copy inside the rank before the first step (all_gather: my own piece). Skipped when both places
/// coincide, unless it scales and the operation is premul_sum.
struct Copy {
  Range from, to;
  bool scale = false;  ///< apply premul's factor
  friend bool operator==(const Copy&, const Copy&) = default;
};

struct Schedule {
  Rank rank = 0;
  std::uint16_t world = 1;
  std::uint64_t elements = 0;  ///< of the collective, as in RecordContext
  Algorithm algorithm = Algorithm::ring;
  std::uint64_t scratch_elements = 0;  ///< size of Buffer::scratch
  std::vector<Copy> before;
  std::vector<Step> steps;
};

struct ScheduleRequest {
  Op op = Op::all_reduce;
  Algorithm algorithm = Algorithm::ring;
  Rank rank = 0;
  std::uint16_t world = 1;
  /// all_reduce, broadcast, reduce: of the tensor. reduce_scatter: of the output. all_gather, gather: of the
  /// input. scatter: of the output. all_to_all: of one piece. barrier: 0.
  std::uint64_t elements = 0;
  Rank root = 0;            ///< broadcast, reduce, gather, scatter
  bool sender_keys = true;  ///< false: multicast moves are sealed per peer
  /// Ranks that lie on each node, in group rank order: world is a multiple of it. 0: not known. Only
  /// two_level looks at it.
  std::uint16_t node_ranks = 0;
};

/// Ring and two-level reduce_scatter keep partial sums in scratch; larger outputs are reduced in rounds of at
/// most this many elements, which bounds scratch to twice it, or for two levels to it times the other nodes
/// (unless the 16-bit step number would overflow: then rounds grow).
inline constexpr std::uint64_t kRoundElementsMax = 1u << 21;

/// The schedule of one rank. Programmer errors: rank >= world, an algorithm that algorithm_supported()
/// denies, node_ranks that do not divide world.
///
/// world 1 gives no steps, only copies. Pieces of all_reduce: ceil(elements/world), the last may be short or
/// empty.
Schedule make_schedule(const ScheduleRequest& request);

/// ring, one_hop and two_level exist for all_reduce, reduce_scatter, all_gather; two_level where there is one
/// node, one rank a node, or nothing known of nodes has the steps of one_hop. one_shot exists for all_reduce
/// (of the other two, one_hop has one step already); `direct` for the rest but send (point-to-point
/// operations have no schedule). barrier: one round of empty segments to everybody under pair keys; a rank
/// seals them on entry, so who has opened one from each of the others knows that all have entered.
bool algorithm_supported(Op op, Algorithm algorithm);
/// What auto means for an op at a world size on CPUs. Two ranks move the same bytes by one_shot as by
/// one_hop, in one dependent step instead of two. `node_ranks`: as in ScheduleRequest.
Algorithm default_algorithm(Op op, std::uint16_t world, std::uint64_t bytes, std::uint16_t node_ranks = 0);

/// The same on devices, where launches cost more than bytes: up to kDeviceOneShotBytesMax all_reduce is one
/// round at every world size.
inline constexpr std::uint64_t kDeviceOneShotBytesMax = 64 * 1024;
Algorithm default_device_algorithm(Op op, std::uint16_t world, std::uint64_t bytes,
                                   std::uint16_t node_ranks = 0);

/// Over several nodes of two or more ranks auto means two_level as soon as the bytes that it keeps off a
/// rank's link between nodes are worth its additional steps: more than this many a step. Predicted, not
/// measured: 50 us a step on CPUs at 10 Gbit/s for each rank, 20 us a step on devices at 400.
inline constexpr std::uint64_t kStepBytes = 64 * 1024;
inline constexpr std::uint64_t kDeviceStepBytes = 1024 * 1024;

/// How many ranks of a group lie on each node, for ScheduleRequest::node_ranks: where the session's ranks lie
/// `node_ranks` on a node in order, and members, in group rank order, are equally many of each node that has
/// any, node after node. Else 0.
std::uint16_t node_ranks_of(std::span<const Rank> members, std::uint16_t node_ranks);

/// Seals and opens that a schedule costs this rank, and the bytes: predictions that tests hold the counters
/// to.
struct ScheduleCost {
  std::uint64_t seals = 0, opens = 0;  ///< crypto operations: one a record, however many segments
  std::uint64_t sealed_bytes = 0, opened_bytes = 0;
  std::uint64_t sealed_segments = 0, opened_segments = 0;
};
ScheduleCost cost_of(const Schedule& schedule, std::uint32_t element_bytes, std::uint32_t segment_bytes);

}  // namespace sealring
