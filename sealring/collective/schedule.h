// A collective is data: a generator is a pure function from (rank, world, elements) to a Schedule.
//
// The executor runs schedules, the simulator proves them, `plan` prices them, and the operation counts of the study
// (ring: 4(n-1) per all-reduce per rank) fall out of them. Ranks here are ranks of the group.
#pragma once

#include <cstdint>
#include <vector>

#include "sealring/base/types.h"

namespace sealring {

/// Which memory a move reads or writes. In-place calls give `input` and `output` the same address.
enum class Buffer : std::uint8_t { input, output };

/// A run of whole elements.
struct Range {
  Buffer buffer = Buffer::input;
  std::uint64_t offset = 0;    ///< elements
  std::uint64_t elements = 0;  ///< may be 0: the move then carries one empty segment
  friend bool operator==(const Range&, const Range&) = default;
};

/// What happens to what a receive opens.
enum class Combine : std::uint8_t {
  replace,   ///< dst = received
  reduce,    ///< dst = local (+) received
  ordered,   ///< all receives of the step with the same dst, and local, in group rank order, fp32, rounded once
};

/// One record from one rank to one peer. In a send `data` is read; in a receive it is written.
struct Move {
  Rank peer = 0;           ///< group rank: receiver of a send, sender of a receive
  Range data;
  bool multicast = false;  ///< sealed once under the sender key and sent to several peers (protocol A.3)
  Range local;             ///< receive with reduce/ordered: my own contribution
  bool last = false;       ///< receive: the reduction of this range is complete after it (avg divides here)
  /// send: `data` is an untouched input of a premul_sum, to be scaled before it is sealed; receive: `local` is.
  bool raw = false;
  std::uint64_t element_offset = 0;  ///< AAD's element offset: position in the collective's logical tensor
  friend bool operator==(const Move&, const Move&) = default;
};

/// Sends and receives that run at the same time. The next step starts when all are done.
struct Step {
  std::vector<Move> sends, recvs;
  Combine combine = Combine::replace;
  friend bool operator==(const Step&, const Step&) = default;
};

/// A copy inside the rank before the first step (out-of-place ring: input chunk to output) or after the last.
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
  std::vector<Copy> before;
  std::vector<Step> steps;
};

struct ScheduleRequest {
  Op op = Op::all_reduce;
  Algorithm algorithm = Algorithm::ring;
  Rank rank = 0;
  std::uint16_t world = 1;
  /// all_reduce, broadcast, reduce: of the tensor. reduce_scatter: of the output. all_gather, gather: of the input.
  /// scatter: of the output. all_to_all: of one piece. barrier: 0.
  std::uint64_t elements = 0;
  Rank root = 0;             ///< broadcast, reduce, gather, scatter
  bool sender_keys = true;   ///< false: multicast moves are sealed per peer
};

/// The schedule of one rank. Programmer errors: rank >= world, an algorithm that algorithm_supported() denies.
///
/// world 1 gives no steps, only copies. Pieces of all_reduce: ceil(elements/world), the last may be short or empty.
Schedule make_schedule(const ScheduleRequest& request);

/// ring and one_hop exist for all_reduce, reduce_scatter, all_gather; `direct` for the rest (barrier: empty segments,
/// two rounds through rank order so that leaving depends on every rank's entry).
bool algorithm_supported(Op op, Algorithm algorithm);
/// What auto means for an op at a world size on CPUs.
Algorithm default_algorithm(Op op, std::uint16_t world, std::uint64_t bytes);

/// Seals and opens that a schedule costs this rank, and the bytes: predictions that tests hold the counters to.
struct ScheduleCost {
  std::uint64_t seals = 0, opens = 0;  ///< crypto operations: one a record, however many segments
  std::uint64_t sealed_bytes = 0, opened_bytes = 0;
  std::uint64_t sealed_segments = 0, opened_segments = 0;
};
ScheduleCost cost_of(const Schedule& schedule, std::uint32_t element_bytes, std::uint32_t segment_bytes);

}  // namespace sealring
