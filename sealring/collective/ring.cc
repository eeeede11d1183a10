// Ring: step s of the reduce-scatter sends chunk rank-1-s onwards, so that the last chunk to arrive is my
// own.
//
//   rank 0 of 4:   step   send (to 1)   receive (from 3)
//                   0      chunk 3        chunk 2 (+ mine)
//                   1      chunk 2        chunk 1 (+ mine)
//                   2      chunk 1        chunk 0 (+ mine): complete, all-gather begins with it
#include "sealring/base/result.h"
#include "sealring/collective/generators.h"

namespace sealring::generators {
namespace {

Move send_to_next(const Schedule& schedule, Range data, std::uint64_t element_offset, bool raw) {
  Move move;
  move.peer = around(schedule.rank, 1, schedule.world);
  move.data = data;
  move.raw = raw;
  move.element_offset = element_offset;
  return move;
}

Move recv_from_previous(const Schedule& schedule, Range data, std::uint64_t element_offset) {
  Move move;
  move.peer = around(schedule.rank, -1, schedule.world);
  move.data = data;
  move.element_offset = element_offset;
  return move;
}

// The steps in which finished chunks travel on. `chunk(i)` gives chunk i's range in output; `mine` where mine
// is read.
template <class ChunkOf>
void append_all_gather(Schedule& schedule, ChunkOf chunk, Range mine) {
  for (int s = 0; s + 1 < schedule.world; ++s) {
    const Range sent = chunk(around(schedule.rank, -s, schedule.world));
    const Range received = chunk(around(schedule.rank, -s - 1, schedule.world));
    Step step;
    step.sends.push_back(send_to_next(schedule, s == 0 ? mine : sent, sent.offset, false));
    step.recvs.push_back(recv_from_previous(schedule, received, received.offset));
    schedule.steps.push_back(std::move(step));
  }
}

}  // namespace

void ring_all_reduce(const ScheduleRequest& request, Schedule& schedule) {
  const auto chunk = [&](Buffer buffer, Rank index) {
    return piece_of(buffer, request.elements, request.world, index);
  };
  for (int s = 0; s + 1 < request.world; ++s) {
    const Rank sent = around(request.rank, -s - 1, request.world);
    const Rank received = around(request.rank, -s - 2, request.world);
    // Only the first step sends an input; later ones send the partial sum that the step before left in
    // output. Each chunk of the input is read either here or as `local`, so writing partial sums over it (in
    // place) loses nothing.
    const Range data = chunk(s == 0 ? Buffer::input : Buffer::output, sent);
    Step step;
    step.combine = Combine::reduce;
    step.sends.push_back(send_to_next(schedule, data, data.offset, s == 0));
    Move recv =
        recv_from_previous(schedule, chunk(Buffer::output, received), chunk(Buffer::output, received).offset);
    recv.local = chunk(Buffer::input, received);
    recv.raw = true;
    recv.last = s + 2 == request.world;
    step.recvs.push_back(recv);
    schedule.steps.push_back(std::move(step));
  }
  append_all_gather(
      schedule, [&](Rank index) { return chunk(Buffer::output, index); },
      chunk(Buffer::output, request.rank));
}

void ring_reduce_scatter(const ScheduleRequest& request, Schedule& schedule) {
  const std::uint64_t hops = request.world - 1u;
  // A partial sum of a foreign chunk has no place in the user's memory: output is one chunk and may lie
  // inside input. While one half of scratch is being sent, the other one is being received.
  const RoundPlan rounds = rounds_of(request.elements, hops);
  schedule.scratch_elements = hops > 1 ? 2 * rounds.elements : 0;
  for (std::uint64_t begin = 0, round = 0; round < rounds.count; ++round, begin += rounds.elements) {
    const std::uint64_t first = std::min(begin, request.elements);
    const std::uint64_t elements = std::min(rounds.elements, request.elements - first);
    for (std::uint64_t s = 0; s < hops; ++s) {
      const auto input = [&](std::uint64_t distance) {
        const Rank chunk = around(request.rank, -static_cast<int>(distance), request.world);
        return Range{Buffer::input, chunk * request.elements + first, elements};
      };
      const auto half = [&](std::uint64_t index) {
        return Range{Buffer::scratch, (index % 2) * rounds.elements, elements};
      };
      const Range sent = input(s + 1);
      const Range local = input(s + 2);
      const bool last = s + 1 == hops;
      Step step;
      step.combine = Combine::reduce;
      step.sends.push_back(send_to_next(schedule, s == 0 ? sent : half(s - 1), sent.offset, s == 0));
      Move recv =
          recv_from_previous(schedule, last ? Range{Buffer::output, first, elements} : half(s), local.offset);
      recv.local = local;
      recv.raw = true;
      recv.last = last;
      step.recvs.push_back(recv);
      schedule.steps.push_back(std::move(step));
    }
  }
}

void ring_all_gather(const ScheduleRequest& request, Schedule& schedule) {
  const auto chunk = [&](Rank index) {
    return Range{Buffer::output, index * request.elements, request.elements};
  };
  const Range mine{Buffer::input, 0, request.elements};
  schedule.before.push_back(Copy{mine, chunk(request.rank), false});
  append_all_gather(schedule, chunk, mine);
}

}  // namespace sealring::generators
