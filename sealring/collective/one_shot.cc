// One shot: a rank's whole contribution goes to every other in one step, and each adds up all of them in rank
// order. So every rank computes the same sum from the same numbers, and nothing is sealed twice.
#include "sealring/collective/generators.h"

namespace sealring::generators {

void one_shot_all_reduce(const ScheduleRequest& request, Schedule& schedule) {
  Step step;
  step.combine = Combine::ordered;
  step.lockstep = true;  // in place, the sum takes the place of what is sent
  // With one peer there is nothing to share, and its pair key serves.
  const bool multicast = request.sender_keys && request.world > 2;
  for (int distance = 1; distance < request.world; ++distance) {
    Move send;
    send.peer = around(request.rank, distance, request.world);
    send.data = Range{Buffer::input, 0, request.elements};
    send.multicast = multicast;
    send.raw = true;
    step.sends.push_back(send);
    Move recv;
    recv.peer = around(request.rank, -distance, request.world);
    recv.data = Range{Buffer::output, 0, request.elements};
    recv.local = Range{Buffer::input, 0, request.elements};
    recv.multicast = multicast;
    recv.raw = true;
    recv.last = true;
    step.recvs.push_back(recv);
  }
  schedule.steps.push_back(std::move(step));
}

}  // namespace sealring::generators
