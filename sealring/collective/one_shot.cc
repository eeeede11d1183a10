// One shot: a rank's whole contribution goes to every other in one step, and each adds up all of them in rank
// order. So every rank computes the same sum from the same numbers, and nothing is sealed twice.
#include "sealring/collective/generators.h"
#include "sealring/collective/hops.h"

namespace sealring::generators {

void one_shot_all_reduce(const ScheduleRequest& request, Schedule& schedule) {
  const Range data{Buffer::input, 0, request.elements}, sum{Buffer::output, 0, request.elements};
  // With one peer there is nothing to share, and its pair key serves.
  const bool multicast = request.sender_keys && request.world > 2;
  add_everywhere({0, 1, request.world, request.rank}, data, sum, 0, multicast, {.raw = true, .last = true},
                 schedule.steps.emplace_back());
}

}  // namespace sealring::generators
