// The body of a fused step of two ranks' AES-GCM.
//
// Promises and windows: fused_window.h; items and the order of their words: progress.h. A block is four
// quarters (aes_quarter.h), each with a column of its own, so four columns are taken, and count out,
// together. A column does its items one after the other, each in steps of four tiles. Beside the last step of
// an item the finisher looks for the word that the next one needs; if it is not there, a step without tiles
// follows, beside which it is waited for. Beside the first step behind an item it writes the tag of what was
// pushed, or checks the tag of what was pulled; then, or one step later, it posts the flag, or gives the slot
// back. So whoever waits has told of all that it has done, and what is not authentic is told before what is
// late.
//
// What was decrypted waits for its tag in private memory, in a ring of one step more than a segment has, as
// in aes_body.h: its tag was checked, and a barrier passed, when its place is taken. A tag that is refused
// ends the quarter at the barrier behind it.
#pragma once

#include <cstddef>

#include "sealring/device/cuda/aes_quarter.h"
#include "sealring/device/cuda/fused_frame.h"

namespace sealring::cuda {

template <CombineKind kCombine>
struct FusedGcm {
  static constexpr int kLinks = 1;
  static constexpr int kThreads = kQuarters * kQuarterThreads;
  static constexpr int kBlocks = 1;
  static constexpr bool kReadsGcmKey = true;  ///< from where the host may have put it since the launch
  using Job = FusedStep<kLinks>;
  using Seal = AesParts<AesConfig<Direction::seal, CombineKind::replace>>;
  using Open = AesParts<AesConfig<Direction::open, kCombine>>;
  static constexpr int kWorkers = kQuarterWorkers;
  static_assert(kQuarters == kGcmColumns);
  static_assert(progresses(1, WindowShape::kSlots));

  using Quarter = AesQuarter<kLanes, 2>;
  static_assert(kFusedSegmentMax / 16 / 256 + 2 <= Quarter::kGroups);
  /// What a finisher leaves to its quarter behind a phase; two of them, in turns: a phase writes that of the
  /// phase before the last one, which all have read.
  struct Note {
    std::uint32_t code;  ///< a Code to stop with; 0: none
    std::uint32_t late;  ///< not 0: the word of the next item was not there
  };
  struct Shared {
    AesTables tables;  ///< first: its address is part of the code
    BlockKey keys[2];  ///< to the peer, from it
    Quarter quarters[kQuarters];
    FusedFrame<kLinks> frame;
    Note notes[kQuarters][2];
    std::uint64_t tickets[2][kQuarters];   ///< of the columns' first segments, to the peer, from it
    std::uint32_t segments[2][kQuarters];  ///< of the columns' shares
  };
  static_assert(offsetof(Shared, tables) == 0);

  /// A step of a column.
  struct Step {
    std::uint32_t order = 0, within = 0;  ///< which item, and which of its steps
    Item item;
    std::uint32_t steps = 0;  ///< of the item
    SR_HOST_DEVICE bool last() const { return within + 1 == steps; }
  };

  /// What all warps of a quarter know.
  template <class FabricOf>
  struct Work {
    FabricOf& fabric;
    const Job& job;
    FusedState& state;
    Quarter& mine;
    Note (&notes)[2];
    AesCipher out, in;
    std::uint32_t column;
    std::uint64_t out_ticket, in_ticket;  ///< of the column's first segments
    Items items;

    SR_HOST_DEVICE const FusedLink& push() const { return job.push[0]; }
    SR_HOST_DEVICE const FusedLink& pull() const { return job.pull[0]; }
    SR_HOST_DEVICE Column pull_column() const { return Column{column, pull().columns}; }
    SR_HOST_DEVICE typename Seal::Segment pushed(std::uint32_t order, std::uint32_t segment) const {
      auto at = Seal::segment_of(push().job, Column{column, push().columns}, segment);
      at.i = order;
      at.place.wire = job.shape.slot_offset(column, out_ticket + segment);
      return at;
    }
    SR_HOST_DEVICE typename Open::Segment pulled(std::uint32_t order, std::uint32_t segment) const {
      auto at = Open::segment_of(pull().job, pull_column(), segment);
      at.i = order;
      at.place.wire = job.shape.slot_offset(column, in_ticket + segment);
      return at;
    }
    SR_HOST_DEVICE Step first_step_of(std::uint32_t order) const {
      Step first;
      first.order = order;
      if (order >= items.count()) return first;
      first.item = items.at(order);
      first.steps = first.item.push ? pushed(order, first.item.segment).steps()
                                    : pulled(order, first.item.segment).steps();
      return first;
    }
    SR_HOST_DEVICE bool exists(const Step& step) const { return step.order < items.count(); }
    SR_HOST_DEVICE Step behind(const Step& step) const {
      if (step.last()) return first_step_of(step.order + 1);
      Step next = step;
      ++next.within;
      return next;
    }
  };

  // --- the finisher's part

  /// The counter groups of an item.
  template <class Warp, class W>
  SR_HOST_DEVICE static void make_groups(Warp& warp, const W& work, std::uint32_t order) {
    const Item item = work.items.at(order);
    if (item.push)
      Seal::make_groups(warp, work.out, work.mine, work.pushed(order, item.segment));
    else
      Open::make_groups(warp, work.in, work.mine, work.pulled(order, item.segment));
  }

  /// The word without which an item must not begin: the flag of a segment; or the credit of its slot, which
  /// is free once the segment before it in the slot was taken out.
  struct Needed {
    const std::byte* word = nullptr;  ///< null: nothing
    std::uint64_t value = 0;
  };
  template <class W>
  SR_HOST_DEVICE static Needed needed(const W& work, std::uint32_t order) {
    const Item item = work.items.at(order);
    const WindowShape& shape = work.job.shape;
    if (!item.push) {
      const std::uint64_t ticket = work.in_ticket + item.segment;
      return Needed{work.pull().job.wire + shape.flag_offset(work.column, ticket), ticket + 1};
    }
    const std::uint64_t ticket = work.out_ticket + item.segment;
    if (ticket < WindowShape::kSlots) return Needed{};
    return Needed{work.job.peers.mine[work.push().peer] + shape.credit_offset(work.column, ticket),
                  ticket - WindowShape::kSlots + 1};
  }
  /// Looks once, and notes if it is late.
  template <class Warp, class W>
  SR_HOST_DEVICE static void look_for(Warp& warp, const W& work, std::uint32_t order, Note& note) {
    warp.step([&](int lane) {
      if (lane != 0) return;
      const Needed what = needed(work, order);
      note.late = what.word == nullptr || work.fabric.there(what.word, what.value) ? 0 : 1;
    });
  }
  template <class Warp, class W>
  SR_HOST_DEVICE static void wait_for(Warp& warp, const W& work, std::uint32_t order, Note& note) {
    warp.step([&](int lane) {
      if (lane != 0) return;
      const Needed what = needed(work, order);
      if (what.word == nullptr) return;
      const std::uint32_t code = work.fabric.wait(what.word, what.value);
      if (code == 0) return;
      note.code = code;
      fail_by(work.state, code, work.items.at(order).push ? work.push().peer : work.pull().peer, 0);
    });
  }

  /// Tells the peer of an item: its flag, or its credit.
  template <class Warp, class W>
  SR_HOST_DEVICE static void tell_of(Warp& warp, const W& work, std::uint32_t order) {
    const Item item = work.items.at(order);
    const FusedLink& link = item.push ? work.push() : work.pull();
    const std::uint64_t ticket = (item.push ? work.out_ticket : work.in_ticket) + item.segment;
    const WindowShape& shape = work.job.shape;
    warp.step([&](int lane) {
      if (lane != 0) return;
      work.fabric.post(item.push
                           ? link.job.wire + shape.flag_offset(work.column, ticket)
                           : work.job.peers.theirs[link.peer] + shape.credit_offset(work.column, ticket),
                       ticket + 1);
    });
  }

  /// GHASH of a step; behind an item's last one its tag. `tagged`: the item ended, and its tag is right.
  template <class Warp, class W>
  SR_HOST_DEVICE static auto absorb(Warp& warp, const W& work, const Step& step, std::uint32_t parity,
                                    Note& note) {
    const std::uint32_t segment = step.item.segment;
    if (step.item.push) {
      const auto found = Seal::absorb_step(warp, work.mine, work.mine.lengths[0], work.push().job, work.out,
                                           work.pushed(step.order, segment), step.within, parity);
      return typename Open::Absorbed{found.tagged, false};
    }
    const auto at = work.pulled(step.order, segment);
    const auto found = Open::absorb_step(warp, work.mine, work.mine.lengths[1], work.pull().job, work.in, at,
                                         step.within, parity);
    warp.step([&](int lane) {
      if (lane != 0 || !found.refused) return;
      note.code = status_of(Code::data_tag);
      fail_by(work.state, note.code, work.pull().peer, at.k);
    });
    return found;
  }

  template <class Warp, class W>
  SR_HOST_DEVICE static void begin_sums(Warp& warp, const W& work, const Item& item) {
    const FusedLink& link = item.push ? work.push() : work.pull();
    Seal::begin_sums(warp, work.mine, link.job, item.push ? work.out.op : work.in.op,
                     work.column + item.segment * link.columns);
  }

  /// E(K, J0) of the 32 items from `first` on, a lane each.
  template <class Warp, class W>
  SR_HOST_DEVICE static void make_masks(Warp& warp, const W& work, std::uint32_t first) {
    warp.step([&](int lane) {
      const std::uint32_t order = first + static_cast<std::uint32_t>(lane);
      if (order >= work.items.count()) return;
      const Item item = work.items.at(order);
      const FusedLink& link = item.push ? work.push() : work.pull();
      Seal::make_mask(item.push ? work.out : work.in, work.column + item.segment * link.columns, lane,
                      work.mine.masks[lane]);
    });
  }

  /// `waits`: the phase is one without tiles, in front of `now`, whose word was late; `waited`: there was
  /// one.
  template <class Warp, class W>
  SR_HOST_DEVICE static void finish_step(Warp warp, const W work, const Step now, const Step before,
                                         bool waits, bool waited, std::uint32_t parity) {
    Note& note = work.notes[parity];
    warp.step([&](int lane) {
      if (lane == 0) note.late = 0;
    });
    if (before.steps != 0) {
      const auto found = absorb(warp, work, before, parity ^ 1u, note);
      if (found.refused) return;
      // The fence in front of a word may take as long as a tag: where the next item has a step between its
      // first and its last one, beside that.
      const bool later = work.exists(now) && !waits && now.steps > 2;
      if (found.tagged && !later) tell_of(warp, work, before.order);
    }
    if (waits) return wait_for(warp, work, now.order, note);
    if (!work.exists(now)) return;
    if (now.within == 1 && now.steps > 2 && now.order > 0 && !waited) tell_of(warp, work, now.order - 1);
    if (now.within == 0) begin_sums(warp, work, now.item);
    // Behind the tag of the item before, which needs the masks before.
    if (now.within == 0 && now.order % kLanes == 0) make_masks(warp, work, now.order);
    if (!now.last() || now.order + 1 >= work.items.count()) return;
    make_groups(warp, work, now.order + 1);
    look_for(warp, work, now.order + 1, note);
  }

  // --- the workers' part

  /// What was decrypted and waits: a ring of steps, which turns with each step that pulls, and behind them
  /// all until it is empty.
  struct Ring {
    std::uint32_t size = 0;                 ///< one more than a segment has steps; 0: nothing is pulled
    std::uint32_t turned = 0;               ///< steps so far
    std::uint32_t place = 0;                ///< turned % size
    std::uint32_t segment = 0, within = 0;  ///< what lies at the place, if the ring is full
    SR_HOST_DEVICE bool full() const { return turned >= size; }
    SR_HOST_DEVICE void turn() {
      if (full() && ++within == size - 1) {
        within = 0;
        ++segment;
      }
      ++turned;
      place = place + 1 < size ? place + 1 : 0;
    }
  };

  template <class Warp, class W>
  SR_HOST_DEVICE static void work_on(Warp& warp, const W& work, const Step& now, const Ring& ring, bool turns,
                                     std::uint32_t parity) {
    const int worker = warp.index() % (kWorkers + 1);
    Chunk* const stage = work.mine.stored[parity][worker];
    if (!turns) {
      const auto segment = work.pushed(now.order, now.item.segment);
      Seal::work(warp, work.out, work.mine, work.push().job, Seal::tile_of(segment, now.within, worker),
                 typename Seal::Tile{}, stage, nullptr);
      return;
    }
    typename Open::Tile tile{}, old{};
    if (work.exists(now)) tile = Open::tile_of(work.pulled(now.order, now.item.segment), now.within, worker);
    if (ring.full()) old = Open::tile_of(work.pulled(0, ring.segment), ring.within, worker);
    Open::work(warp, work.in, work.mine, work.pull().job, tile, old, stage,
               Open::waiting(work.pull().job, work.pull_column(), ring.place, worker));
  }

  /// All items of a column. One of `work.notes` has a Code behind it if it failed.
  template <class Part, class W>
  SR_HOST_DEVICE static void run_quarter(Part& part, W& work) {
    using Warp = typename Part::Warp;
    if (work.items.count() == 0) return;
    const auto is_finisher = [](Warp& warp) { return warp.index() % (kWorkers + 1) == kWorkers; };
    part.phase([&](Warp& warp) {
      if (!is_finisher(warp)) return;
      make_groups(warp, work, 0);
      wait_for(warp, work, 0, work.notes[1]);
    });
    if (work.notes[1].code != 0) return;
    Ring ring;
    if (work.items.pulls != 0) ring.size = work.pulled(0, 0).steps() + 1;
    Step now = work.first_step_of(0), before;
    std::uint32_t parity = 0;
    bool waits = false, waited = false;
    // Behind the last item the ring turns until it is empty; its tag is checked beside the first of these.
    for (std::uint32_t left = ring.size != 0 ? ring.size : 1u; left != 0; parity ^= 1u) {
      const bool has_tiles = work.exists(now) && !waits;
      const bool turns = has_tiles ? !now.item.push : !waits && ring.size != 0;
      part.phase([&](Warp& warp) {
        if (is_finisher(warp))
          finish_step(warp, work, now, before, waits, waited, parity);
        else if (has_tiles || turns)
          work_on(warp, work, now, ring, turns, parity);
      });
      const Note& note = work.notes[parity];
      if (note.code != 0) return;
      if (turns) ring.turn();
      before = has_tiles ? now : Step{};
      if (waits) {
        waits = false;
        waited = true;
      } else if (has_tiles) {
        if (now.last()) waited = false;
        now = work.behind(now);
        waits = note.late != 0;
      } else {
        --left;
      }
    }
  }

  /// Quarter q of the block that has taken number b: column q * blocks + b, so that few columns are on many
  /// blocks.
  SR_HOST_DEVICE static std::uint32_t column_of(const FusedFrame<kLinks>& frame, const Job& job,
                                                int quarter) {
    return frame.column + static_cast<std::uint32_t>(quarter) * job.units();
  }

  /// Four columns from their start to their end.
  template <class Block, class FabricOf>
  SR_HOST_DEVICE static void run(Block& block, Shared& shared, FabricOf& fabric, const Job& job,
                                 FusedState& state, const Chunk& pattern) {
    using Warp = typename Block::Warp;
    FusedFrame<kLinks>& frame = shared.frame;
    frame.template enter<kThreads, false>(block, state, job, [&](int lane) {
      if (lane >= 2 * kQuarters) return;
      const int way = lane / kQuarters, quarter = lane % kQuarters;
      shared.quarters[quarter].lengths[way].payload_bytes = LengthsProduct::kNone;
      shared.notes[quarter][way] = Note{};
      shared.segments[way][quarter] = 0;
      if (frame.status != 0 || (way == 0 ? job.pushes : job.pulls) == 0) return;
      const FusedLink& link = way == 0 ? job.push[0] : job.pull[0];
      const std::uint32_t column = column_of(frame, job, quarter);
      const std::uint32_t share = share_of(link.job.segments, link.columns, column);
      if (share == 0) return;
      shared.segments[way][quarter] = share;
      shared.tickets[way][quarter] = (way == 0 ? state.out_tickets : state.in_tickets)[link.peer][column];
    });
    std::uint32_t code = frame.status;
    if (code == 0 && !block.shared_begins_at(&shared, kTablesAddress))
      code = status_of(Code::gpu_unsupported);
    if (code == 0) {
      block.phase([&](Warp& warp) {
        fill_tables(warp, shared.tables, *(job.pushes != 0 ? frame.out_key(0) : frame.in_key(0)).gcm);
        if (job.pushes != 0) fill_key(warp, shared.keys[0], *frame.out_key(0).gcm);
        if (job.pulls != 0) fill_key(warp, shared.keys[1], *frame.in_key(0).gcm);
      });
      block.parts(kQuarters, [&](auto& part, int index) {
        Work<FabricOf> work{fabric,
                            job,
                            state,
                            shared.quarters[index],
                            shared.notes[index],
                            {shared.tables, shared.keys[0], frame.out[0].view, frame.out_key(0)},
                            {shared.tables, shared.keys[1], frame.in[0].view, frame.in_key(0)},
                            column_of(frame, job, index),
                            shared.tickets[0][index],
                            shared.tickets[1][index],
                            {shared.segments[0][index], shared.segments[1][index]}};
        run_quarter(part, work);
      });
      for (const auto& notes : shared.notes) {
        if (code == 0) code = notes[0].code != 0 ? notes[0].code : notes[1].code;
      }
    }
    frame.template leave<kThreads>(block, &shared.keys, fabric, job, state, code, pattern, [&](int lane) {
      const int way = lane / kQuarters, quarter = lane % kQuarters;
      if (lane >= 2 * kQuarters || shared.segments[way][quarter] == 0) return;
      const FusedLink& link = way == 0 ? job.push[0] : job.pull[0];
      (way == 0 ? state.out_tickets : state.in_tickets)[link.peer][column_of(frame, job, quarter)] =
          shared.tickets[way][quarter] + shared.segments[way][quarter];
    });
  }
};

}  // namespace sealring::cuda
