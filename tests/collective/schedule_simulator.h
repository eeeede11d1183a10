// Runs the schedules of all ranks of a collective on symbolic memory, for tests.
//
// An element's value is the set of contributions it is the sum of: (rank, index in that rank's input), with
// how often premul's factor was applied to each, and how often avg's division to the whole. Ranks, moves and
// segments advance in an order that a policy chooses, so that whatever a step allows to happen in either
// order does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sealring/collective/schedule.h"

namespace sealring::test {

struct Contribution {
  Rank rank = 0;
  std::uint16_t scaled = 0;
  std::uint32_t index = 0;
  friend auto operator<=>(const Contribution&, const Contribution&) = default;
};

struct Value {
  std::vector<Contribution> parts;  ///< sorted; none: memory that nobody has written
  std::uint16_t divided = 0;
  friend bool operator==(const Value&, const Value&) = default;
};

/// Where a rank's buffers lie in its memory of `elements`; scratch lies behind it. Overlap is aliasing.
struct Placement {
  std::uint64_t input = 0, output = 0, elements = 0;
};

/// Who goes first where a step leaves it open.
enum class Order : std::uint8_t {
  sends_first,  ///< a segment is read as early as possible
  recvs_first,  ///< and as late as possible: whatever has arrived is written before anything more is read
  reversed,     ///< the last rank and the last move first
  random,       ///< seeded
};

struct SimulatorOptions {
  Order order = Order::sends_first;
  std::uint64_t seed = 0;
  std::uint64_t segment_elements = 2;
  std::uint64_t stream_segments =
      1'000'000;  ///< segments in flight a stream; 1: a peer must read before more is sent
};

struct Outcome {
  std::string problem;                         ///< empty: the schedules are sound and ran to their ends
  std::vector<std::vector<Value>> memory;      ///< a rank's memory after the run
  std::vector<std::uint64_t> multicast_reads;  ///< elements read for multicasts, a rank
};

/// schedules[r] is rank r's. `input_elements` elements at placement.input of each rank are filled with (rank,
/// index) first (every rank: those whose input is not used may not influence anything).
Outcome simulate(const std::vector<Schedule>& schedules, const std::vector<Placement>& placements,
                 std::uint64_t input_elements, const SimulatorOptions& options);

/// Static checks of one schedule: ranges inside their buffers, and in every step nothing written that is sent
/// or taken as another's local, with these placements. Empty: sound.
std::string hazards(const Schedule& schedule, const Placement& placement, std::uint64_t input_elements,
                    std::uint64_t output_elements);

/// The k-th send from a to b in a step is b's k-th receive from a in the same step. Empty: matched.
std::string mismatch(const std::vector<Schedule>& schedules);

}  // namespace sealring::test
