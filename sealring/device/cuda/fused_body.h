// The body of a fused step: a column pushes and pulls, ChaCha20-Poly1305 both ways.
//
// Promises and windows: fused_window.h; turns and their order: progress.h. A block (or a team of one:
// fused_kernel.h) is `kWorkers` warps that encrypt and decrypt, one that finishes (tags), one that signals
// (flags and credits), one that prepares (one-time keys, powers of r, four turns of each direction ahead). In
// iteration u of a column lie two phases:
//
// 1. workers seal push turn u into the peer's slot; the finisher checks the tag of pull turn u-L-1; the
//    signaller waits for the flag of pull turn u-L.
//
// 2. workers put pull turn u-L-1 into the output, and open pull turn u-L into shared memory; the finisher
//    writes the tag of push turn u behind its data and posts its flag; the signaller gives the slot of pull
//    turn u-L-1 back and waits for the credit that push turn u+1 needs.
//
// So workers wait for no tag.
//
// A Fabric is what differs between a GPU and a test. wait(word, expected) gives 0, or the Code to leave with;
// there(word, expected) looks once; post(word, value) writes a word of a peer's window behind all that the
// block wrote before. Loads of segments are the warp's window_chunk and window_byte (block.h).
#pragma once

#include <cstddef>

#include "sealring/device/cuda/chacha_body.h"
#include "sealring/device/cuda/fused_frame.h"
#include "sealring/device/cuda/fused_ordered.h"

namespace sealring::cuda {

/// One direction of a fused body: a batch of 4 is in use, one is before and one behind it.
template <Direction kDirection, int kWorkers, int kBlocks, std::uint32_t kTile, CombineKind kCombine,
          int kDepth, int kTilesOf = 1>
struct FusedHalf : ChachaConfig<kDirection, kWorkers, kBlocks, kTile, kCombine, kDepth> {
  static constexpr int kBatch = 4;
  static constexpr int kPrepared = 4;
  static constexpr int kTiles = kTilesOf;
};

/// kTile: bytes for plaintext that waits for its tag. kLinks: records each way, at most. With more than one,
/// a reduction is of all pulls and local memory in rank order, so a segment of each waits for all their tags.
template <int kWorkersOf, int kBlocksOf, std::uint32_t kTile, CombineKind kCombine, int kLinksOf>
struct FusedBody {
  static constexpr int kWorkers = kWorkersOf;
  static constexpr int kBlocks = kBlocksOf;
  static constexpr int kLinks = kLinksOf;
  static constexpr bool kOrdered = kLinks > 1 && kCombine != CombineKind::replace;
  using Job = FusedStep<kLinks>;
  using Seal = ChachaBody<FusedHalf<Direction::seal, kWorkers, kBlocks, 0, CombineKind::replace, 2>>;
  using Open =
      ChachaBody<FusedHalf<Direction::open, kWorkers, kBlocks, kTile, kCombine, 1, kOrdered ? kLinks : 1>>;
  static constexpr int kFinisher = kWorkers;
  static constexpr int kSignaller = kWorkers + 1;
  static constexpr int kPreparer = kWorkers + 2;
  static constexpr int kThreads = (kWorkers + 3) * kLanes;
  static constexpr std::uint32_t kBatch = 4;
  // While the next batch is prepared, the turn before this one still needs its own.
  static_assert(2 * kBatch + 1 <= Seal::kBatch * 4 && 2 * kBatch + 1 <= Open::kBatch * 4);
  static constexpr bool tiles_fit() {
    for (std::uint32_t ranks = 2; ranks <= (kOrdered ? kLinks + 1 : 2); ++ranks) {
      if ((ranks - 1) * Open::private_bytes(fused_segment_max(ranks)) > kTile) return false;
    }
    return true;
  }
  static_assert(tiles_fit());

  struct Shared {
    typename Seal::Shared seal;
    typename Open::Shared open;
    FusedFrame<kLinks> frame;
    std::uint32_t end;         ///< iterations
    std::uint32_t stop[2][2];  ///< a Code, by phase (1, 2) and by who found it (finisher, signaller)
  };

  /// What all warps of a column know.
  template <class FabricOf>
  struct Work {
    Shared& shared;
    FabricOf& fabric;
    const Job& job;
    FusedState& state;
    std::uint32_t column;

    SR_HOST_DEVICE std::uint32_t stride() const { return kLinks == 1 ? 1u : job.stride; }
    SR_HOST_DEVICE std::uint32_t lag() const { return job.lag_segments * stride(); }
    SR_HOST_DEVICE Turn at(std::uint32_t turn) const { return turn_of(stride(), turn); }
    SR_HOST_DEVICE bool pushes(std::uint32_t turn) const {
      return at(turn).segment < shared.frame.out[at(turn).link].count;
    }
    /// Whether there is a pull turn `behind` turns before this.
    SR_HOST_DEVICE bool pulls(std::uint32_t turn, std::uint32_t behind) const {
      return turn >= behind && at(turn - behind).segment < shared.frame.in[at(turn - behind).link].count;
    }
    SR_HOST_DEVICE const FusedLink& push_link(std::uint32_t turn) const { return job.push[at(turn).link]; }
    SR_HOST_DEVICE const FusedLink& pull_link(std::uint32_t turn) const { return job.pull[at(turn).link]; }
    SR_HOST_DEVICE std::uint64_t out_ticket(std::uint32_t turn) const {
      return shared.frame.out[at(turn).link].first_ticket + at(turn).segment;
    }
    SR_HOST_DEVICE std::uint64_t in_ticket(std::uint32_t turn) const {
      return shared.frame.in[at(turn).link].first_ticket + at(turn).segment;
    }
    SR_HOST_DEVICE auto pushed(std::uint32_t turn) const {
      const FusedLink& link = push_link(turn);
      auto out = Seal::segment_of(link.job, Column{column, link.columns}, at(turn).segment);
      out.i = turn;
      out.place.wire = job.shape.slot_offset(column, out_ticket(turn));
      return out;
    }
    SR_HOST_DEVICE auto pulled(std::uint32_t turn) const {
      const FusedLink& link = pull_link(turn);
      auto out = Open::segment_of(link.job, Column{column, link.columns}, at(turn).segment);
      out.i = turn;
      out.place.wire = job.shape.slot_offset(column, in_ticket(turn));
      if constexpr (kOrdered) {
        out.tile = at(turn).link;
        out.stored =
            out.tile * static_cast<std::uint32_t>(Open::private_bytes(link.job.layout.segment_bytes) / 16);
      }
      return out;
    }
  };

  // --- the signaller's part; one lane each

  template <class W>
  SR_HOST_DEVICE static void waited(W& work, int phase, std::uint32_t code, std::uint32_t peer) {
    work.shared.stop[phase][1] = code;
    if (code != 0) fail_by(work.state, code, peer, 0);
  }
  template <class Warp, class W>
  SR_HOST_DEVICE static void wait_for_flag(Warp& warp, W& work, std::uint32_t turn) {
    warp.step([&](int lane) {
      if (lane != 0) return;
      const std::uint64_t ticket = work.in_ticket(turn);
      const std::byte* const word =
          work.pull_link(turn).job.wire + work.job.shape.flag_offset(work.column, ticket);
      waited(work, 0, work.fabric.wait(word, ticket + 1), work.pull_link(turn).peer);
    });
  }
  /// The slot of a segment is free once the segment before it in the slot was taken out.
  template <class Warp, class W>
  SR_HOST_DEVICE static void wait_for_credit(Warp& warp, W& work, std::uint32_t turn) {
    const std::uint64_t ticket = work.out_ticket(turn);
    if (ticket < WindowShape::kSlots) return;
    warp.step([&](int lane) {
      if (lane != 0) return;
      const std::byte* const word =
          work.job.peers.mine[work.push_link(turn).peer] + work.job.shape.credit_offset(work.column, ticket);
      waited(work, 1, work.fabric.wait(word, ticket - WindowShape::kSlots + 1), work.push_link(turn).peer);
    });
  }
  template <class Warp, class W>
  SR_HOST_DEVICE static void post(Warp& warp, W& work, std::byte* word, std::uint64_t value) {
    warp.step([&](int lane) {
      if (lane == 0) work.fabric.post(word, value);
    });
  }

  /// Push turns from `first` on, and the pull turns of the same iterations.
  template <class Warp, class W>
  SR_HOST_DEVICE static void prepare(Warp& warp, W& work, std::uint32_t first) {
    Shared& shared = work.shared;
    warp.step([&](int lane) {
      const bool out = lane < static_cast<int>(kBatch);
      const std::uint32_t iteration = first + static_cast<std::uint32_t>(lane) % kBatch;
      const std::uint32_t behind = out ? 0 : work.lag();
      if (lane >= 2 * static_cast<int>(kBatch)) return;
      if (out ? !work.pushes(iteration) : !work.pulls(iteration, behind)) return;
      const std::uint32_t turn = iteration - behind;
      const Turn at = work.at(turn);
      const std::uint32_t columns = out ? work.push_link(turn).columns : work.pull_link(turn).columns;
      prepare_segment<kWorkers>(out ? shared.frame.out_key(at.link) : shared.frame.in_key(at.link),
                                out ? shared.frame.out[at.link].view : shared.frame.in[at.link].view,
                                work.column + at.segment * columns,
                                out ? Seal::prep_of(shared.seal, turn) : Open::prep_of(shared.open, turn));
    });
  }

  // --- the two phases; `block` is the group of workers, finisher and signaller

  template <class Block, class W>
  SR_HOST_DEVICE static void first_phase(Block& block, W& work, std::uint32_t u) {
    Shared& shared = work.shared;
    const std::uint32_t lag = work.lag();
    block.phase([&](typename Block::Warp& warp) {
      if (warp.index() < kWorkers) {
        if (!work.pushes(u)) return;
        const FusedLink& link = work.push_link(u);
        const std::uint32_t l = work.at(u).link;
        Seal::cipher_segment(warp, shared.seal, link.job, shared.frame.out[l].view, shared.frame.out_key(l),
                             Column{work.column, link.columns}, work.pushed(u), false);
      } else if (warp.index() == kFinisher) {
        if (!work.pulls(u, lag + 1)) return;
        const std::uint32_t turn = u - lag - 1;
        Open::finish_segment(warp, shared.open, work.pull_link(turn).job, work.pulled(turn));
        warp.step([&](int lane) {
          if (lane != 0 || shared.open.bad.refused == 0) return;
          shared.stop[0][0] = status_of(Code::data_tag);
          // At once: the signaller of this phase may be waiting for what never comes.
          fail_by(work.state, status_of(Code::data_tag), work.pull_link(turn).peer,
                  shared.open.bad.first_segment);
        });
      } else if (warp.index() == kSignaller) {
        if (work.pulls(u, lag)) wait_for_flag(warp, work, u - lag);
      }
    });
  }

  /// Pull turn `turn` into shared memory.
  template <class Warp, class W>
  SR_HOST_DEVICE static void open_turn(Warp& warp, W& work, std::uint32_t turn) {
    Shared& shared = work.shared;
    const FusedLink& link = work.pull_link(turn);
    const std::uint32_t l = work.at(turn).link;
    Open::cipher_segment(warp, shared.open, link.job, shared.frame.in[l].view, shared.frame.in_key(l),
                         Column{work.column, link.columns}, work.pulled(turn), false);
  }

  /// The workers' second phase.
  template <class Warp, class W>
  SR_HOST_DEVICE static void combine_and_open(Warp& warp, W& work, std::uint32_t u) {
    Shared& shared = work.shared;
    const std::uint32_t lag = work.lag();
    const bool fresh = work.pulls(u, lag);
    const std::uint32_t turn = u - lag;
    if (work.pulls(u, lag + 1)) {
      const auto old = work.pulled(turn - 1);
      const FusedLink& link = work.pull_link(turn - 1);
      if constexpr (kOrdered) {
        if (work.at(turn - 1).link == work.job.pulls - 1)
          combine_ordered<Open, kCombine>(warp, shared.open, work.job.pull[0].job, work.job.pulls,
                                          work.job.own_place, old);
      } else {
        if (fresh && Open::can_fuse(link.job, old, work.pulled(turn))) {
          const FusedLink& next = work.pull_link(turn);
          const std::uint32_t l = work.at(turn).link;
          Open::combine_and_cipher(warp, shared.open, link.job, old, next.job, shared.frame.in[l].view,
                                   shared.frame.in_key(l), Column{work.column, next.columns},
                                   work.pulled(turn));
          return;
        }
        Open::combine_segment(warp, shared.open, link.job, Column{work.column, link.columns}, old);
      }
    }
    if (fresh) open_turn(warp, work, turn);
  }

  template <class Block, class W>
  SR_HOST_DEVICE static void second_phase(Block& block, W& work, std::uint32_t u) {
    Shared& shared = work.shared;
    const WindowShape& shape = work.job.shape;
    const std::uint32_t lag = work.lag();
    block.phase([&](typename Block::Warp& warp) {
      if (warp.index() < kWorkers) {
        combine_and_open(warp, work, u);
      } else if (warp.index() == kFinisher) {
        if (!work.pushes(u)) return;
        const FusedLink& link = work.push_link(u);
        const std::uint64_t ticket = work.out_ticket(u);
        Seal::finish_segment(warp, shared.seal, link.job, work.pushed(u));
        post(warp, work, link.job.wire + shape.flag_offset(work.column, ticket), ticket + 1);
      } else if (warp.index() == kSignaller) {
        if (work.pulls(u, lag + 1)) {
          const std::uint32_t turn = u - lag - 1;
          const std::uint64_t taken = work.in_ticket(turn);
          post(warp, work,
               work.job.peers.theirs[work.pull_link(turn).peer] + shape.credit_offset(work.column, taken),
               taken + 1);
        }
        if (work.pushes(u + 1)) wait_for_credit(warp, work, u + 1);
      }
    });
  }

  /// What a phase was left with. Read between its barrier and the next one's: the word of a phase is written
  /// again two phases later at the earliest.
  SR_HOST_DEVICE static std::uint32_t stopped(const Shared& shared, int phase) {
    const std::uint32_t finisher = shared.stop[phase][0];
    return finisher != 0 ? finisher : shared.stop[phase][1];
  }

  /// The same for the whole block, behind which a phase may write again.
  template <class Block>
  SR_HOST_DEVICE static std::uint32_t settled(Block& block, const Shared& shared) {
    const std::uint32_t first = stopped(shared, 0);
    const std::uint32_t code = first != 0 ? first : stopped(shared, 1);
    block.phase([](typename Block::Warp&) {});
    return code;
  }

  /// All turns of a column. 0, or the Code that it stopped with.
  template <class Block, class W>
  SR_HOST_DEVICE static std::uint32_t push_and_pull(Block& block, W& work) {
    Shared& shared = work.shared;
    block.phase([&](typename Block::Warp& warp) {
      if (warp.index() == kPreparer) {
        prepare(warp, work, 0);
      } else if (warp.index() == kSignaller && work.pushes(0)) {
        wait_for_credit(warp, work, 0);
      }
    });
    if (const std::uint32_t code = settled(block, shared); code != 0) return code;
    const std::uint32_t end = shared.end;
    for (std::uint32_t first = 0; first < end; first += kBatch) {
      const std::uint32_t behind = first + kBatch < end ? first + kBatch : end;
      block.split(
          kSignaller + 1,
          [&](auto& group) {
            for (std::uint32_t u = first; u < behind; ++u) {
              first_phase(group, work, u);
              if (stopped(shared, 0) != 0) return;
              second_phase(group, work, u);
              if (stopped(shared, 1) != 0) return;
            }
          },
          [&](auto& warp) { prepare(warp, work, first + kBatch); });
      if (const std::uint32_t code = settled(block, shared); code != 0) return code;
    }
    return 0;
  }

  /// Iterations of a column.
  SR_HOST_DEVICE static std::uint32_t end_of(const FusedFrame<kLinks>& frame, const Job& job) {
    const std::uint32_t stride = kLinks == 1 ? 1 : job.stride;
    const std::uint32_t behind = job.lag_segments * stride + 1;
    std::uint32_t end = 0;
    for (std::uint32_t l = 0; l < kLinks; ++l) {
      const std::uint32_t pushed = turns_end(stride, l, frame.out[l].count);
      const std::uint32_t pulled = turns_end(stride, l, frame.in[l].count);
      if (pushed > end) end = pushed;
      if (pulled != 0 && pulled + behind > end) end = pulled + behind;
    }
    return end;
  }

  /// A column from its start to its end.
  template <class Block, class FabricOf>
  SR_HOST_DEVICE static void run(Block& block, Shared& shared, FabricOf& fabric, const Job& job,
                                 FusedState& state, const Chunk& pattern) {
    FusedFrame<kLinks>& frame = shared.frame;
    frame.template enter<kThreads, true>(block, state, job, [&](int lane) {
      if (lane != 0) return;
      shared.open.bad = BadTag{};
      for (int i = 0; i < 4; ++i) shared.stop[i / 2][i % 2] = 0;
      shared.end = end_of(frame, job);
    });
    Work<FabricOf> work{shared, fabric, job, state, frame.column};
    std::uint32_t code = frame.status;
    if (code == 0) code = push_and_pull(block, work);
    frame.template leave<kThreads>(block, &shared, fabric, job, state, code, pattern, [&](int lane) {
      const auto l = static_cast<std::uint32_t>(lane);
      const std::uint32_t column = work.column;
      if (l < kLinks && l < job.pushes)
        state.out_tickets[job.push[l].peer][column] = frame.out[l].first_ticket + frame.out[l].count;
      if (l < kLinks && l < job.pulls)
        state.in_tickets[job.pull[l].peer][column] = frame.in[l].first_ticket + frame.in[l].count;
    });
  }
};

/// Steps with one record each way: all of two ranks' steps, and those of a ring.
template <CombineKind kCombine>
using FusedSingle = FusedBody<4, 3, kFusedSegmentMax, kCombine, 1>;

/// Steps with several: reductions keep the segments of all peers side by side.
template <CombineKind kCombine>
using FusedMany = FusedBody<4, kCombine == CombineKind::replace ? 3 : 2,
                            kCombine == CombineKind::replace ? kFusedSegmentMax : 2 * kFusedSegmentMax,
                            kCombine, kFusedPeersMax>;

}  // namespace sealring::cuda
