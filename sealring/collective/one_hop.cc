// One hop: a piece goes straight to its owner, which adds all contributions in rank order; sums go straight
// back.
#include "sealring/collective/generators.h"

namespace sealring::generators {
namespace {

// Peers in the order rank+1, rank+2, ...: at any time every rank sends to, and hears from, a different one.
template <class Visit>
void for_peers(const Schedule& schedule, int direction, Visit visit) {
  for (int distance = 1; distance < schedule.world; ++distance) {
    visit(around(schedule.rank, direction * distance, schedule.world));
  }
}

// `input_of(owner)`: what I contribute to an owner's piece; its offset is the piece's place in the logical
// tensor.
template <class InputOf>
Step reduce_to_owners(const Schedule& schedule, InputOf input_of, Range sum) {
  Step step;
  step.combine = Combine::ordered;
  for_peers(schedule, 1, [&](Rank owner) {
    Move send;
    send.peer = owner;
    send.data = input_of(owner);
    send.raw = true;
    send.element_offset = send.data.offset;
    step.sends.push_back(send);
  });
  for_peers(schedule, -1, [&](Rank peer) {
    Move recv;
    recv.peer = peer;
    recv.data = sum;
    recv.local = input_of(schedule.rank);
    recv.raw = true;
    recv.last = true;
    recv.element_offset = recv.local.offset;
    step.recvs.push_back(recv);
  });
  return step;
}

// `output_of(owner)`: where an owner's piece belongs; `mine`: where my own is read.
template <class OutputOf>
Step multicast_pieces(const ScheduleRequest& request, const Schedule& schedule, OutputOf output_of,
                      Range mine) {
  Step step;
  for_peers(schedule, 1, [&](Rank peer) {
    Move send;
    send.peer = peer;
    send.data = mine;
    send.multicast = request.sender_keys;
    send.element_offset = output_of(schedule.rank).offset;
    step.sends.push_back(send);
  });
  for_peers(schedule, -1, [&](Rank owner) {
    Move recv;
    recv.peer = owner;
    recv.data = output_of(owner);
    recv.multicast = request.sender_keys;
    recv.element_offset = recv.data.offset;
    step.recvs.push_back(recv);
  });
  return step;
}

}  // namespace

void one_hop_all_reduce(const ScheduleRequest& request, Schedule& schedule) {
  const auto piece = [&](Buffer buffer, Rank owner) {
    return piece_of(buffer, request.elements, request.world, owner);
  };
  const Range sum = piece(Buffer::output, request.rank);
  schedule.steps.push_back(reduce_to_owners(
      schedule, [&](Rank owner) { return piece(Buffer::input, owner); }, sum));
  schedule.steps.push_back(multicast_pieces(
      request, schedule, [&](Rank owner) { return piece(Buffer::output, owner); }, sum));
}

void one_hop_reduce_scatter(const ScheduleRequest& request, Schedule& schedule) {
  const auto input_of = [&](Rank owner) {
    return Range{Buffer::input, owner * request.elements, request.elements};
  };
  schedule.steps.push_back(reduce_to_owners(schedule, input_of, Range{Buffer::output, 0, request.elements}));
}

void one_hop_all_gather(const ScheduleRequest& request, Schedule& schedule) {
  const auto output_of = [&](Rank owner) {
    return Range{Buffer::output, owner * request.elements, request.elements};
  };
  const Range mine{Buffer::input, 0, request.elements};
  schedule.before.push_back(Copy{mine, output_of(request.rank), false});
  schedule.steps.push_back(multicast_pieces(request, schedule, output_of, mine));
}

}  // namespace sealring::generators
