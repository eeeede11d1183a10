// Two levels: sums inside each node first, so that a byte of the tensor crosses between two nodes once, not
// once for every rank of a node.
//
//   node 0: rank 0   rank 1     inside a node: one hop among its ranks
//             |         |
//   node 1: rank 2   rank 3     between nodes: among the ranks of one place (a rail)
#include "sealring/collective/generators.h"
#include "sealring/collective/hops.h"

namespace sealring::generators {
namespace {

/// Where a rank lies: its node's ranks, and those of the same place on each node.
struct Place {
  Circle node, rail;

  explicit Place(const ScheduleRequest& request) {
    const std::uint16_t size = request.node_ranks;
    const auto number = static_cast<Rank>(request.rank / size),
               inside = static_cast<Rank>(request.rank % size);
    node = {static_cast<Rank>(number * size), 1, size, inside};
    rail = {inside, size, static_cast<std::uint16_t>(request.world / size), number};
  }
  std::uint16_t nodes() const { return rail.count; }
  Rank rank_at(Rank node_number, Rank inside) const {
    return static_cast<Rank>(node_number * node.count + inside);
  }
  /// Whether a record for so many peers is sealed once for all: with one there is nothing to share.
  static bool shared(const ScheduleRequest& request, int peers) { return request.sender_keys && peers > 1; }
};

/// A part of a range, cut as piece_of cuts a tensor.
Range part_of(const Range& whole, std::uint16_t parts, Rank index) {
  Range part = piece_of(whole.buffer, whole.elements, parts, index);
  part.offset += whole.offset;
  return part;
}

}  // namespace

void two_level_all_reduce(const ScheduleRequest& request, Schedule& schedule) {
  const Place place(request);
  const auto piece = [&](Buffer buffer) {
    return [&request, buffer](Rank inside) {
      return piece_of(buffer, request.elements, request.node_ranks, inside);
    };
  };
  const auto input = piece(Buffer::input), output = piece(Buffer::output);
  const auto offset = [&](Rank inside) { return input(inside).offset; };
  const Range mine = output(place.node.mine);
  schedule.steps.push_back(reduce_to_owners(place.node, input, offset, mine, {.raw = true, .last = false}));
  if (place.nodes() == 2) {
    add_everywhere(place.rail, mine, mine, mine.offset, false, {.raw = false, .last = true},
                   schedule.steps.emplace_back());
  } else {
    const auto part = [&](Rank number) { return part_of(mine, place.nodes(), number); };
    const auto part_offset = [&](Rank number) { return part(number).offset; };
    const Range sum = part(place.rail.mine);
    schedule.steps.push_back(
        reduce_to_owners(place.rail, part, part_offset, sum, {.raw = false, .last = true}));
    gather_pieces(place.rail, part, sum, Place::shared(request, place.nodes() - 1),
                  schedule.steps.emplace_back());
  }
  gather_pieces(place.node, output, mine, Place::shared(request, place.node.count - 1),
                schedule.steps.emplace_back());
}

void two_level_reduce_scatter(const ScheduleRequest& request, Schedule& schedule) {
  const Place place(request);
  const std::uint64_t foreign = place.nodes() - 1u;
  const RoundPlan rounds = rounds_of(request.elements, place.nodes() + 1u);
  // My own node's sum has a place in the output; the sums for other nodes have none in the user's memory.
  schedule.scratch_elements = foreign * rounds.elements;
  for (std::uint64_t begin = 0, round = 0; round < rounds.count; ++round, begin += rounds.elements) {
    const std::uint64_t first = std::min(begin, request.elements);
    const std::uint64_t elements = std::min(rounds.elements, request.elements - first);
    const auto input = [&](Rank owner) {
      return Range{Buffer::input, owner * request.elements + first, elements};
    };
    const auto offset = [&](Rank owner) { return input(owner).offset; };
    const Range sum{Buffer::output, first, elements};
    // Where the sum lies that goes to the node `distance` behind mine; my own node is the last of them.
    const auto partial = [&](std::uint64_t distance) {
      return distance > foreign ? sum : Range{Buffer::scratch, (distance - 1) * rounds.elements, elements};
    };
    for (std::uint16_t distance = 1; distance <= place.nodes(); ++distance) {
      const Rank node = around(place.rail.mine, distance, place.nodes());
      const auto owner = [&](Rank inside) { return place.rank_at(node, inside); };
      schedule.steps.push_back(reduce_to_owners(
          place.node, [&](Rank inside) { return input(owner(inside)); },
          [&](Rank inside) { return offset(owner(inside)); }, partial(distance),
          {.raw = true, .last = false}));
    }
    const auto sum_for = [&](Rank node) {
      const Rank distance = around(node, -place.rail.mine, place.nodes());
      return partial(distance == 0 ? place.nodes() : distance);
    };
    const auto offset_for = [&](Rank node) { return offset(place.rank_at(node, place.node.mine)); };
    schedule.steps.push_back(
        reduce_to_owners(place.rail, sum_for, offset_for, sum, {.raw = false, .last = true}));
  }
}

void two_level_all_gather(const ScheduleRequest& request, Schedule& schedule) {
  const Place place(request);
  const auto piece = [&](Rank rank) {
    return Range{Buffer::output, rank * request.elements, request.elements};
  };
  const auto of_rail = [&](Rank node) { return piece(place.rank_at(node, place.node.mine)); };
  const Range mine{Buffer::input, 0, request.elements};
  schedule.before.push_back(Copy{mine, piece(request.rank), false});
  for (std::uint16_t distance = 0; distance < place.nodes(); ++distance) {
    const Rank node = around(place.rail.mine, -static_cast<int>(distance), place.nodes());
    const auto of_node = [&](Rank inside) { return piece(place.rank_at(node, inside)); };
    Step& step = schedule.steps.emplace_back();
    // My own piece is one record for all who want it from me, those of my rail first.
    const int peers = place.node.count - 1 + (distance == 0 ? place.nodes() - 1 : 0);
    const bool multicast = Place::shared(request, peers);
    if (distance == 0) gather_pieces(place.rail, of_rail, mine, multicast, step);
    gather_pieces(place.node, of_node, distance == 0 ? mine : of_node(place.node.mine), multicast, step);
  }
}

}  // namespace sealring::generators
