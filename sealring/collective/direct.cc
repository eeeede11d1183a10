// Direct: one step in which the root deals with everybody, or everybody with everybody.
#include "sealring/collective/generators.h"

namespace sealring::generators {
namespace {

Range whole(const ScheduleRequest& request, Buffer buffer) { return Range{buffer, 0, request.elements}; }

// A rank's piece of the tensor that holds one of each rank.
Range piece(const ScheduleRequest& request, Buffer buffer, Rank index) {
  return Range{buffer, index * request.elements, request.elements};
}

Move move(Rank peer, Range data, std::uint64_t element_offset) {
  Move out;
  out.peer = peer;
  out.data = data;
  out.element_offset = element_offset;
  return out;
}

template <class Visit>
void for_others(const ScheduleRequest& request, Rank except, Visit visit) {
  for (int distance = 1; distance < request.world; ++distance) visit(around(except, distance, request.world));
}

}  // namespace

void direct_broadcast(const ScheduleRequest& request, Schedule& schedule) {
  Step step;
  if (request.rank == request.root) {
    for_others(request, request.root, [&](Rank peer) {
      step.sends.push_back(move(peer, whole(request, Buffer::input), 0));
      step.sends.back().multicast = request.sender_keys;
    });
    schedule.before.push_back(Copy{whole(request, Buffer::input), whole(request, Buffer::output), false});
  } else {
    step.recvs.push_back(move(request.root, whole(request, Buffer::output), 0));
    step.recvs.back().multicast = request.sender_keys;
  }
  schedule.steps.push_back(std::move(step));
}

void direct_reduce(const ScheduleRequest& request, Schedule& schedule) {
  Step step;
  step.combine = Combine::ordered;
  if (request.rank == request.root) {
    for_others(request, request.root, [&](Rank peer) {
      Move recv = move(peer, whole(request, Buffer::output), 0);
      recv.local = whole(request, Buffer::input);
      recv.raw = true;
      recv.last = true;
      step.recvs.push_back(recv);
    });
  } else {
    step.sends.push_back(move(request.root, whole(request, Buffer::input), 0));
    step.sends.back().raw = true;
  }
  schedule.steps.push_back(std::move(step));
}

void direct_gather(const ScheduleRequest& request, Schedule& schedule) {
  Step step;
  const Range mine = whole(request, Buffer::input);
  if (request.rank == request.root) {
    for_others(request, request.root, [&](Rank peer) {
      const Range place = piece(request, Buffer::output, peer);
      step.recvs.push_back(move(peer, place, place.offset));
    });
    schedule.before.push_back(Copy{mine, piece(request, Buffer::output, request.rank), false});
  } else {
    step.sends.push_back(move(request.root, mine, piece(request, Buffer::output, request.rank).offset));
  }
  schedule.steps.push_back(std::move(step));
}

void direct_scatter(const ScheduleRequest& request, Schedule& schedule) {
  Step step;
  const Range mine = whole(request, Buffer::output);
  if (request.rank == request.root) {
    for_others(request, request.root, [&](Rank peer) {
      const Range from = piece(request, Buffer::input, peer);
      step.sends.push_back(move(peer, from, from.offset));
    });
    schedule.before.push_back(Copy{piece(request, Buffer::input, request.rank), mine, false});
  } else {
    step.recvs.push_back(move(request.root, mine, piece(request, Buffer::input, request.rank).offset));
  }
  schedule.steps.push_back(std::move(step));
}

void direct_all_to_all(const ScheduleRequest& request, Schedule& schedule) {
  Step step;
  // The place in the receiver's output, which both ends know: sender * elements.
  for_others(request, request.rank, [&](Rank peer) {
    step.sends.push_back(move(peer, piece(request, Buffer::input, peer), request.rank * request.elements));
    step.recvs.push_back(move(peer, piece(request, Buffer::output, peer), peer * request.elements));
  });
  schedule.before.push_back(
      Copy{piece(request, Buffer::input, request.rank), piece(request, Buffer::output, request.rank), false});
  schedule.steps.push_back(std::move(step));
}

void direct_barrier(const ScheduleRequest& request, Schedule& schedule) {
  // [protocol A.4] One round suffices: each rank seals its empty segments only after it has entered, and I
  // leave only after I have opened one from each of the others, so leaving depends on every rank's entry.
  Step step;
  for_others(request, request.rank, [&](Rank peer) {
    step.sends.push_back(move(peer, Range{Buffer::input, 0, 0}, 0));
    step.recvs.push_back(move(peer, Range{Buffer::output, 0, 0}, 0));
  });
  schedule.steps.push_back(std::move(step));
}

}  // namespace sealring::generators
