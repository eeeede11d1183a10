// One hop: a piece goes straight to its owner, which adds all contributions in rank order; sums go straight
// back.
#include "sealring/collective/generators.h"
#include "sealring/collective/hops.h"

namespace sealring::generators {
namespace {

Circle all_ranks(const ScheduleRequest& request) { return {0, 1, request.world, request.rank}; }

}  // namespace

void one_hop_all_reduce(const ScheduleRequest& request, Schedule& schedule) {
  const auto piece = [&](Buffer buffer) {
    return
        [&request, buffer](Rank owner) { return piece_of(buffer, request.elements, request.world, owner); };
  };
  const Circle all = all_ranks(request);
  const auto input = piece(Buffer::input), output = piece(Buffer::output);
  const auto offset = [&](Rank owner) { return input(owner).offset; };
  const Range sum = output(request.rank);
  schedule.steps.push_back(reduce_to_owners(all, input, offset, sum, {.raw = true, .last = true}));
  gather_pieces(all, output, sum, request.sender_keys, schedule.steps.emplace_back());
}

void one_hop_reduce_scatter(const ScheduleRequest& request, Schedule& schedule) {
  const auto input = [&](Rank owner) {
    return Range{Buffer::input, owner * request.elements, request.elements};
  };
  const auto offset = [&](Rank owner) { return input(owner).offset; };
  const Range sum{Buffer::output, 0, request.elements};
  schedule.steps.push_back(
      reduce_to_owners(all_ranks(request), input, offset, sum, {.raw = true, .last = true}));
}

void one_hop_all_gather(const ScheduleRequest& request, Schedule& schedule) {
  const auto output = [&](Rank owner) {
    return Range{Buffer::output, owner * request.elements, request.elements};
  };
  const Range mine{Buffer::input, 0, request.elements};
  schedule.before.push_back(Copy{mine, output(request.rank), false});
  gather_pieces(all_ranks(request), output, mine, request.sender_keys, schedule.steps.emplace_back());
}

}  // namespace sealring::generators
