// The steps of one hop among some ranks of the group: pieces straight to their owners, or sums straight back.
#pragma once

#include "sealring/collective/generators.h"

namespace sealring::generators {

/// Ranks first, first + stride, ...: `count` of them, of which I am number `mine`.
struct Circle {
  Rank first = 0;
  std::uint16_t stride = 1, count = 1;
  Rank mine = 0;

  Rank rank_of(Rank number) const { return static_cast<Rank>(first + number * stride); }
};

/// The others' numbers in the order mine+1, mine+2, ... (direction 1) or mine-1, mine-2, ... (-1): at any
/// time every rank sends to, and hears from, a different one.
template <class Visit>
void for_others(const Circle& circle, int direction, Visit visit) {
  for (int distance = 1; distance < circle.count; ++distance) {
    visit(around(circle.mine, direction * distance, circle.count));
  }
}

/// Which inputs and sums a reduction deals with.
struct Stage {
  bool raw = false;   ///< as Move::raw: contributions are untouched inputs
  bool last = false;  ///< as Move::last
};

/// Each number's piece goes to the rank of that number, which adds all contributions in rank order into
/// `sum`. `input_of(number)`: what I contribute to a piece; `offset_of(number)`: the piece's place in the
/// logical tensor.
template <class InputOf, class OffsetOf>
Step reduce_to_owners(const Circle& circle, InputOf input_of, OffsetOf offset_of, Range sum, Stage stage) {
  Step step;
  step.combine = Combine::ordered;
  for_others(circle, 1, [&](Rank owner) {
    Move send;
    send.peer = circle.rank_of(owner);
    send.data = input_of(owner);
    send.raw = stage.raw;
    send.element_offset = offset_of(owner);
    step.sends.push_back(send);
  });
  for_others(circle, -1, [&](Rank peer) {
    Move recv;
    recv.peer = circle.rank_of(peer);
    recv.data = sum;
    recv.local = input_of(circle.mine);
    recv.raw = stage.raw;
    recv.last = stage.last;
    recv.element_offset = offset_of(circle.mine);
    step.recvs.push_back(recv);
  });
  return step;
}

/// Adds to `step`: my piece goes to all others and theirs come to me. `output_of(number)`: where a number's
/// piece belongs, which is its place in the logical tensor too; `mine`: where my own is read.
template <class OutputOf>
void gather_pieces(const Circle& circle, OutputOf output_of, Range mine, bool multicast, Step& step) {
  for_others(circle, 1, [&](Rank peer) {
    Move send;
    send.peer = circle.rank_of(peer);
    send.data = mine;
    send.multicast = multicast;
    send.element_offset = output_of(circle.mine).offset;
    step.sends.push_back(send);
  });
  for_others(circle, -1, [&](Rank owner) {
    Move recv;
    recv.peer = circle.rank_of(owner);
    recv.data = output_of(owner);
    recv.multicast = multicast;
    recv.element_offset = recv.data.offset;
    step.recvs.push_back(recv);
  });
}

/// Adds to `step`: my whole contribution `data` goes to all others, and each adds up all of them there, in
/// rank order. `data` is read where `sum` is written or apart from it: the step is in lockstep.
inline void add_everywhere(const Circle& circle, Range data, Range sum, std::uint64_t element_offset,
                           bool multicast, Stage stage, Step& step) {
  step.combine = Combine::ordered;
  step.lockstep = true;
  for (int distance = 1; distance < circle.count; ++distance) {
    Move send;
    send.peer = circle.rank_of(around(circle.mine, distance, circle.count));
    send.data = data;
    send.multicast = multicast;
    send.raw = stage.raw;
    send.element_offset = element_offset;
    step.sends.push_back(send);
    Move recv;
    recv.peer = circle.rank_of(around(circle.mine, -distance, circle.count));
    recv.data = sum;
    recv.local = data;
    recv.multicast = multicast;
    recv.raw = stage.raw;
    recv.last = stage.last;
    recv.element_offset = element_offset;
    step.recvs.push_back(recv);
  }
}

}  // namespace sealring::generators
