// The body of the fused all_reduce of two ranks: a column pushes and pulls, ChaCha20-Poly1305 both ways.
//
// Promises and windows: fused_window.h. A block is `kWorkers` warps that encrypt and decrypt, one that
// finishes (tags), one that signals (flags and credits), one that prepares (one-time keys, powers of r, four
// segments of each direction ahead). In iteration t of a column lie two phases:
//
// 1. workers seal segment t into the peer's slot; the finisher checks the tag of segment t-L-1; the signaller
//    waits for the flag of segment t-L.
//
// 2. workers add segment t-L-1 to the output and open segment t-L into shared memory; the finisher writes the
//    tag of t behind its data and posts its flag; the signaller gives the slot of t-L-1 back and waits for
//    the credit that segment t+1 needs.
//
// So workers wait for no tag. What progress.h asks of the order: a flag is waited for not before the peer's
// push of the same segment can have ended (L >= 1), and the credit of segment s is given before the wait for
// segment s+L+2, so that L+1 is the lag of pull.
//
// A Fabric is what differs between a GPU and a test. wait(word, expected) gives 0, or the Code to leave with;
// post(word, value) writes a word of the peer's window behind all that the block wrote before. Loads of
// segments are the warp's window_chunk and window_byte (block.h).
#pragma once

#include <cstddef>

#include "sealring/device/cuda/chacha_body.h"
#include "sealring/device/cuda/fused_state.h"

namespace sealring::cuda {

/// One direction of a fused body: a batch of 4 is in use, one is before and one behind it.
template <Direction kDirection, int kWorkers, int kBlocks, std::uint32_t kTile, CombineKind kCombine,
          int kDepth>
struct FusedHalf : ChachaConfig<kDirection, kWorkers, kBlocks, kTile, kCombine, kDepth> {
  static constexpr int kBatch = 4;
  static constexpr int kPrepared = 4;
};

template <int kWorkersOf, int kBlocksOf, std::uint32_t kTile, CombineKind kCombine>
struct FusedBody {
  static constexpr int kWorkers = kWorkersOf;
  static constexpr int kBlocks = kBlocksOf;
  using Seal = ChachaBody<FusedHalf<Direction::seal, kWorkers, kBlocks, 0, CombineKind::replace, 2>>;
  using Open = ChachaBody<FusedHalf<Direction::open, kWorkers, kBlocks, kTile, kCombine, 1>>;
  static constexpr int kFinisher = kWorkers;
  static constexpr int kSignaller = kWorkers + 1;
  static constexpr int kPreparer = kWorkers + 2;
  static constexpr int kThreads = (kWorkers + 3) * kLanes;
  static constexpr std::uint32_t kBatch = 4;
  static constexpr std::uint32_t kLag = kTwoRankPipeline.pull_lag - 1;
  static_assert(kLag >= 1 && progresses(Pipeline{0, kLag + 1, WindowShape::kSlots, 0}, true));
  // Batch b is prepared while the iterations of batch b-1 run, in which segments back to kBatch*(b-1)-L-1
  // still need theirs.
  static_assert(kLag + 1 <= kBatch);

  struct Shared {
    typename Seal::Shared seal;
    typename Open::Shared open;
    KeyWords out_key, in_key;
    // Behind here nothing secret lies.
    OpView out, in;
    std::uint64_t first_ticket;
    std::uint32_t status, column, failed, last;
    std::uint32_t out_slot, in_slot;
    std::uint32_t stop[2][2];  ///< a Code, by phase (1, 2) and by who found it (finisher, signaller)
  };

  /// What all warps of a column know.
  template <class FabricOf>
  struct Work {
    Shared& shared;
    FabricOf& fabric;
    const FusedJob& job;
    FusedState& state;
    Column column;
    std::uint32_t count;  ///< segments of the column

    SR_HOST_DEVICE std::uint64_t ticket(std::uint32_t i) const { return shared.first_ticket + i; }
    template <class Half>
    SR_HOST_DEVICE typename Half::Segment segment(const SegmentJob& direction, std::uint32_t i) const {
      auto out = Half::segment_of(direction, column, i);
      out.place.wire = job.shape.slot_offset(column.index, ticket(i));
      return out;
    }
    SR_HOST_DEVICE auto pushed(std::uint32_t i) const { return segment<Seal>(job.push, i); }
    SR_HOST_DEVICE auto pulled(std::uint32_t i) const { return segment<Open>(job.pull, i); }
  };

  // --- the signaller's part; one lane each

  template <class Warp, class W>
  SR_HOST_DEVICE static void wait_for_flag(Warp& warp, W& work, std::uint32_t i) {
    warp.step([&](int lane) {
      if (lane != 0) return;
      const std::uint64_t ticket = work.ticket(i);
      const std::byte* const word =
          work.job.pull.wire + work.job.shape.flag_offset(work.column.index, ticket);
      work.shared.stop[0][1] = work.fabric.wait(word, ticket + 1);
    });
  }
  /// The slot of segment i is free once the segment before it in the slot was taken out.
  template <class Warp, class W>
  SR_HOST_DEVICE static void wait_for_credit(Warp& warp, W& work, std::uint32_t i) {
    const std::uint64_t ticket = work.ticket(i);
    if (ticket < WindowShape::kSlots) return;
    warp.step([&](int lane) {
      if (lane != 0) return;
      const std::byte* const word =
          work.job.pull.wire + work.job.shape.credit_offset(work.column.index, ticket);
      work.shared.stop[1][1] = work.fabric.wait(word, ticket - WindowShape::kSlots + 1);
    });
  }
  template <class Warp, class W>
  SR_HOST_DEVICE static void post(Warp& warp, W& work, std::uint64_t offset, std::uint64_t value) {
    warp.step([&](int lane) {
      if (lane == 0) work.fabric.post(work.job.push.wire + offset, value);
    });
  }

  template <class Warp, class W>
  SR_HOST_DEVICE static void prepare(Warp& warp, W& work, std::uint32_t first) {
    Shared& shared = work.shared;
    warp.step([&](int lane) {
      const std::uint32_t i = first + static_cast<std::uint32_t>(lane) % kBatch;
      if (lane >= 2 * static_cast<int>(kBatch) || i >= work.count) return;
      const bool out = lane < static_cast<int>(kBatch);
      prepare_segment<kWorkers>(out ? shared.out_key : shared.in_key, out ? shared.out : shared.in,
                                work.column.index + i * work.column.count,
                                out ? Seal::prep_of(shared.seal, i) : Open::prep_of(shared.open, i));
    });
  }

  // --- the two phases; `block` is the group of workers, finisher and signaller

  template <class Block, class W>
  SR_HOST_DEVICE static void first_phase(Block& block, W& work, std::uint32_t t) {
    Shared& shared = work.shared;
    block.phase([&](typename Block::Warp& warp) {
      if (warp.index() < kWorkers) {
        if (t < work.count)
          Seal::cipher_segment(warp, shared.seal, work.job.push, shared.out, shared.out_key, work.column,
                               work.pushed(t), false);
      } else if (warp.index() == kFinisher) {
        if (t <= kLag || t - kLag - 1 >= work.count) return;
        Open::finish_segment(warp, shared.open, work.job.pull, work.pulled(t - kLag - 1));
        warp.step([&](int lane) {
          if (lane != 0 || shared.open.bad.refused == 0) return;
          shared.stop[0][0] = status_of(Code::data_tag);
          // At once: the signaller of this phase may be waiting for what never comes.
          if (exchange_if(work.state.verdict, 0, status_of(Code::data_tag)) == 0)
            work.state.bad_segment = shared.open.bad.first_segment;
        });
      } else if (warp.index() == kSignaller) {
        if (t >= kLag && t - kLag < work.count) wait_for_flag(warp, work, t - kLag);
      }
    });
  }

  template <class Warp, class W>
  SR_HOST_DEVICE static void combine_and_open(Warp& warp, W& work, std::uint32_t t) {
    Shared& shared = work.shared;
    const SegmentJob& job = work.job.pull;
    const bool fresh = t >= kLag && t - kLag < work.count;
    if (t > kLag && t - kLag - 1 < work.count) {
      const auto old = work.pulled(t - kLag - 1);
      if (fresh && Open::can_fuse(job, old, work.pulled(t - kLag))) {
        Open::combine_and_cipher(warp, shared.open, job, shared.in, shared.in_key, work.column, old,
                                 work.pulled(t - kLag));
        return;
      }
      Open::combine_segment(warp, shared.open, job, work.column, old);
    }
    if (fresh)
      Open::cipher_segment(warp, shared.open, job, shared.in, shared.in_key, work.column,
                           work.pulled(t - kLag), false);
  }

  template <class Block, class W>
  SR_HOST_DEVICE static void second_phase(Block& block, W& work, std::uint32_t t) {
    Shared& shared = work.shared;
    const WindowShape& shape = work.job.shape;
    const std::uint32_t column = work.column.index;
    block.phase([&](typename Block::Warp& warp) {
      if (warp.index() < kWorkers) {
        combine_and_open(warp, work, t);
      } else if (warp.index() == kFinisher) {
        if (t >= work.count) return;
        Seal::finish_segment(warp, shared.seal, work.job.push, work.pushed(t));
        post(warp, work, shape.flag_offset(column, work.ticket(t)), work.ticket(t) + 1);
      } else if (warp.index() == kSignaller) {
        if (t > kLag && t - kLag - 1 < work.count) {
          const std::uint64_t taken = work.ticket(t - kLag - 1);
          post(warp, work, shape.credit_offset(column, taken), taken + 1);
        }
        if (t + 1 < work.count) wait_for_credit(warp, work, t + 1);
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

  /// Pushes and pulls all segments of a column. 0, or the Code that it stopped with.
  template <class Block, class W>
  SR_HOST_DEVICE static std::uint32_t push_and_pull(Block& block, W& work) {
    Shared& shared = work.shared;
    block.phase([&](typename Block::Warp& warp) {
      if (warp.index() == kPreparer) {
        prepare(warp, work, 0);
      } else if (warp.index() == kSignaller && work.count > 0) {
        wait_for_credit(warp, work, 0);
      }
    });
    if (const std::uint32_t code = settled(block, shared); code != 0) return code;
    const std::uint32_t end = work.count + kLag + 1;
    for (std::uint32_t first = 0; first < end; first += kBatch) {
      const std::uint32_t behind = first + kBatch < end ? first + kBatch : end;
      block.split(
          kSignaller + 1,
          [&](auto& group) {
            for (std::uint32_t t = first; t < behind; ++t) {
              first_phase(group, work, t);
              if (stopped(shared, 0) != 0) return;
              second_phase(group, work, t);
              if (stopped(shared, 1) != 0) return;
            }
          },
          [&](auto& warp) { prepare(warp, work, first + kBatch); });
      if (const std::uint32_t code = settled(block, shared); code != 0) return code;
    }
    return 0;
  }

  // --- around it

  /// Takes a column number, and copies what the prologue decided and the keys of both directions.
  template <class Block>
  SR_HOST_DEVICE static void enter(Block& block, Shared& shared, FusedState& state, const KeyState& out,
                                   const KeyState& in) {
    using Warp = typename Block::Warp;
    block.phase([&](Warp& warp) {
      if (warp.index() != 0) return;
      warp.step([&](int lane) {
        if (lane != 0) return;
        shared.column = count_one(state.next_column);
        const std::uint32_t verdict = verdict_of(state);
        shared.status = state.status != 0 ? state.status : verdict;
        shared.out = state.out;
        shared.in = state.in;
        shared.out_slot = state.out_slot % kSlots;
        shared.in_slot = state.in_slot % kSlots;
        shared.first_ticket = state.tickets[shared.column % kFusedColumnsMax];
        shared.open.bad = BadTag{};
        for (int i = 0; i < 4; ++i) shared.stop[i / 2][i % 2] = 0;
      });
    });
    block.phase([&](Warp& warp) {
      if (warp.index() != 0 || shared.status != 0) return;
      warp.step([&](int lane) {
        if (lane == 0) shared.out_key = out.slots[shared.out_slot].words;
        if (lane == 1) shared.in_key = in.slots[shared.in_slot].words;
      });
    });
  }

  /// Counts the column out; the last one poisons a failed op's output and ends the op.
  template <class Block, class W>
  SR_HOST_DEVICE static void leave(Block& block, W& work, KeyState& out, KeyState& in,
                                   std::uint32_t descriptor, std::uint32_t code, const Chunk& pattern) {
    using Warp = typename Block::Warp;
    Shared& shared = work.shared;
    FusedState& state = work.state;
    const WindowShape& shape = work.job.shape;
    block.phase([&](Warp& warp) {
      if (warp.index() == 0 && code != 0) {
        warp.step([&](int lane) {  // first: the peer's answer to POISON is not the first error
          if (lane == 0) exchange_if(state.verdict, 0, code);
        });
        warp.step([&](int lane) {
          const auto word = static_cast<std::uint32_t>(lane);
          if (word < 2 * WindowShape::kSlots) {
            const std::uint64_t offset = word < WindowShape::kSlots
                                             ? shape.flag_offset(work.column.index, word)
                                             : shape.credit_offset(work.column.index, word);
            work.fabric.post(work.job.push.wire + offset, kPoison);
          }
        });
      }
      // [protocol A.6] What held keys, powers, keystream and plaintext is cleared.
      auto* const words = reinterpret_cast<std::uint32_t*>(&shared);
      warp.step([&](int lane) {
        for (std::size_t i = static_cast<std::size_t>(warp.thread(lane)); i < offsetof(Shared, out) / 4;
             i += kThreads)
          words[i] = 0;
      });
    });
    block.phase([&](Warp& warp) {
      if (warp.index() != 0) return;
      warp.step([&](int lane) {
        if (lane != 0) return;
        if (code == 0) state.tickets[work.column.index] += work.count;
        shared.last = count_one(state.columns_out) == work.column.count - 1 ? 1u : 0u;
        shared.failed = verdict_of(state);
      });
    });
    if (shared.last == 0) return;
    if (shared.failed != 0) poison_output(block, work.job.pull, pattern);
    block.phase([&](Warp& warp) {
      if (warp.index() != 0) return;
      warp.step([&](int lane) {
        if (lane == 0) end_fused(state, out, in, descriptor);
      });
    });
  }

  // [protocol A.5]
  template <class Block>
  SR_HOST_DEVICE static void poison_output(Block& block, const SegmentJob& job, const Chunk& pattern) {
    const std::uint64_t bytes = payload_bytes_of(job), chunks = bytes / 16;
    block.phase([&](typename Block::Warp& warp) {
      warp.step([&](int lane) {
        for (auto i = static_cast<std::uint64_t>(warp.thread(lane)); i < chunks; i += kThreads)
          store_any(job.combine.dst + i * 16, pattern);
        if (warp.thread(lane) == 0)
          store_bytes(job.combine.dst + chunks * 16, pattern, static_cast<std::uint32_t>(bytes % 16));
      });
    });
  }

  /// A block from its start to its end; `columns` blocks make the op.
  template <class Block, class FabricOf>
  SR_HOST_DEVICE static void run(Block& block, Shared& shared, FabricOf& fabric, const FusedJob& job,
                                 std::uint32_t columns, FusedState& state, KeyState& out, KeyState& in,
                                 std::uint32_t descriptor, const Chunk& pattern) {
    enter(block, shared, state, out, in);
    const std::uint32_t index = shared.column, segments = job.push.segments;
    const std::uint32_t count = index < segments ? (segments - index + columns - 1) / columns : 0;
    Work<FabricOf> work{shared, fabric, job, state, Column{index, columns}, count};
    std::uint32_t code = shared.status;
    if (code == 0) code = push_and_pull(block, work);
    leave(block, work, out, in, descriptor, code, pattern);
  }
};

}  // namespace sealring::cuda
