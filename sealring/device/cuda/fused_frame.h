// What lies around a fused body: a block or team takes its column and keys, and counts itself out on every
// path.
#pragma once

#include <cstddef>

#include "sealring/device/cuda/fused_state.h"
#include "sealring/device/cuda/user_memory.h"

namespace sealring::cuda {

/// The part of a block's shared memory that every fused body has. Behind the keys nothing secret lies.
template <int kLinks>
struct FusedFrame {
  static constexpr int kRings = 2 * kLinks;  ///< of the pushes, then of the pulls
  static constexpr int kKeyWords = static_cast<int>(sizeof(KeyWords) / 4);
  static constexpr std::uint32_t kNoColumn = ~0u;
  /// What a column knows of a record.
  struct Link {
    OpView view;
    std::uint64_t first_ticket;
    std::uint32_t count;  ///< segments of the column
    std::uint32_t slot;
  };
  KeyWords keys[kRings][kSlots];  ///< of all slots: read before it is known which one a record takes
  Link out[kLinks], in[kLinks];
  FusedGrant grants[kRings];
  std::uint32_t status, holds;
  std::uint32_t column;  ///< kNoColumn: of a step that was refused beside another

  SR_HOST_DEVICE const KeyWords& out_key(std::uint32_t l) const { return keys[l][out[l].slot % kSlots]; }
  SR_HOST_DEVICE const KeyWords& in_key(std::uint32_t l) const {
    return keys[kLinks + static_cast<int>(l)][in[l].slot % kSlots];
  }

  /// Whether a record has this ring, of kRings; and its thread of the prologue.
  SR_HOST_DEVICE static bool has_ring(const FusedStep<kLinks>& job, int ring) {
    const auto l = static_cast<std::uint32_t>(ring % kLinks);
    return l < (ring < kLinks ? job.pushes : job.pulls);
  }
  SR_HOST_DEVICE static std::uint32_t thread_of(const FusedStep<kLinks>& job, int ring) {
    return ring < kLinks ? job.push[ring].peer : kFusedRanksMax + job.pull[ring - kLinks].peer;
  }

  /// What the prologue decided for a record. `column` is set.
  template <bool kTickets>
  SR_HOST_DEVICE void enter_link(const FusedState& state, const FusedStep<kLinks>& job, int ring) {
    const bool push = ring < kLinks;
    const auto l = static_cast<std::uint32_t>(ring % kLinks);
    Link& at = push ? out[l] : in[l];
    at = Link{};
    if (!has_ring(job, ring)) return;
    const FusedLink& link = push ? job.push[l] : job.pull[l];
    const FusedGrant& grant = grants[ring];
    at.view = grant.view;
    at.slot = grant.slot;
    if (status != 0) return;
    const std::uint32_t at_column = column % kFusedColumnsMax;
    if constexpr (kTickets)
      at.first_ticket =
          push ? state.out_tickets[link.peer][at_column] : state.in_tickets[link.peer][at_column];
    at.count = share_of(link.job.segments, link.columns, column);
  }

  /// Takes a column number, and copies what the prologue decided and the keys of all records. Then
  /// `further(lane)` of one warp. A phase; nothing in its first step waits for anything else of it.
  template <int kThreads, bool kTickets, class Block, class Further>
  SR_HOST_DEVICE void enter(Block& block, FusedState& state, const FusedStep<kLinks>& job,
                            Further&& further) {
    constexpr int kAll = kRings * static_cast<int>(kSlots) * kKeyWords;
    block.phase([&](typename Block::Warp& warp) {
      warp.step([&](int lane) {
        const int thread = warp.thread(lane);
        const bool counts = thread == kLanes - 1;
        Launch& launch = state.launches[job.launch % kLaunches];
        const std::uint32_t taken = counts ? count_one(launch.next_column) : 0;
        for (int i = thread - kLanes; i >= 0 && i < kAll; i += kThreads - kLanes) {
          const int ring = i / (static_cast<int>(kSlots) * kKeyWords);
          const int word = i % (static_cast<int>(kSlots) * kKeyWords);
          if (!has_ring(job, ring)) continue;
          const KeyState& keys_of = *ring_of(job.peers, thread_of(job, ring));
          const KeyWords& from = keys_of.slots[word / kKeyWords].words;
          reinterpret_cast<std::uint32_t*>(&keys[ring][word / kKeyWords])[word % kKeyWords] =
              fresh(reinterpret_cast<const std::uint32_t*>(&from)[word % kKeyWords]);
        }
        if (thread < kRings && has_ring(job, thread)) {
          const std::uint32_t of = thread_of(job, thread) % kFusedRanksMax;
          grants[thread] = thread < kLinks ? state.push[of] : state.pull[of];
        }
        if (!counts) return;
        const std::uint32_t known = state.status, verdict = verdict_of(state);
        holds = fresh(launch.holds);
        status = known != 0 ? known : verdict;
        column = holds != 0 && taken < job.units() ? taken : kNoColumn;
        // Nobody's column: of a launch beside another one's, whose prologue has made that the verdict.
        if (column == kNoColumn && status == 0) status = status_of(Code::seq_reuse_guard);
      });
      if (warp.index() != 0) return;
      warp.step([&](int lane) {
        if (lane < kRings) enter_link<kTickets>(state, job, lane);
      });
      warp.step(further);
    });
  }

  /// POISON in every word of this column, or of all of this block's, at every peer. `warp` alone.
  template <class Warp, class Fabric>
  SR_HOST_DEVICE void poison_words(Warp& warp, Fabric& fabric, const FusedStep<kLinks>& job) const {
    constexpr std::uint32_t kWords = 2 * WindowShape::kSlots;
    const std::uint32_t columns = job.columns(), units = job.units();
    for (std::uint32_t c = column; c < columns; c += units) {
      warp.step([&](int lane) {
        for (auto i = static_cast<std::uint32_t>(lane); i < kWords * job.peers.count; i += kLanes) {
          const std::uint32_t word = i % kWords;
          const std::uint64_t offset =
              word < WindowShape::kSlots ? job.shape.flag_offset(c, word) : job.shape.credit_offset(c, word);
          fabric.post(job.peers.theirs[i / kWords] + offset, kPoison);
        }
      });
    }
  }

  /// Clears `shared` up to the end of the keys, of which this is a part; counts the column out; the last one
  /// poisons a failed step's output and ends the step, if it has begun. `advance(lane)`: of one warp, unless
  /// `code`; it stores alone.
  template <int kThreads, class Block, class Fabric, class Advance>
  SR_HOST_DEVICE void leave(Block& block, void* shared, Fabric& fabric, const FusedStep<kLinks>& job,
                            FusedState& state, std::uint32_t code, const Chunk& pattern, Advance&& advance) {
    using Warp = typename Block::Warp;
    auto* const words = static_cast<std::uint32_t*>(shared);
    const auto secrets = static_cast<std::size_t>(reinterpret_cast<std::uint32_t*>(out) - words);
    block.phase([&](Warp& warp) {
      if (warp.index() == 0) {
        if (code != 0) {
          warp.step([&](int lane) {  // first: a peer's answer to POISON is not the first error
            if (lane == 0) exchange_if(state.verdict, 0, code);
          });
          poison_words(warp, fabric, job);
        } else {
          warp.step(advance);
        }
      }
      // [protocol A.6] What held keys, powers, keystream and plaintext is cleared.
      warp.step([&](int lane) {
        for (auto i = static_cast<std::size_t>(warp.thread(lane)); i < secrets; i += kThreads) words[i] = 0;
      });
    });
    Launch& launch = state.launches[job.launch % kLaunches];
    if (!block.any([&](int thread) { return thread == 0 && last_out(launch); })) return;
    const bool failed = block.any([&](int thread) { return thread == 0 && verdict_of(state) != 0; });
    if (failed) poison_outputs<kThreads>(block, job, pattern);
    block.phase([&](Warp& warp) {
      if (warp.index() != 0) return;
      warp.step([&](int lane) {
        if (failed && lane < static_cast<int>(kFusedRings))
          spread_verdict(state, job.peers, static_cast<std::uint32_t>(lane));
        if (failed && lane == kLanes - 1) tell_group(state);
      });
      warp.step([&](int lane) {
        if (holds != 0 && lane < kRings && has_ring(job, lane))
          end_grant(state, job.peers, thread_of(job, lane), grants[lane]);
        if (lane == 0) launch.next_column = launch.holds = 0;
      });
      warp.step([&](int lane) {
        if (lane == 0 && holds != 0) release_word(state.in_use, 0);
      });
    });
  }

  // [protocol A.5]
  template <int kThreads, class Block>
  SR_HOST_DEVICE static void poison_outputs(Block& block, const FusedStep<kLinks>& job,
                                            const Chunk& pattern) {
    if (job.output != nullptr) return poison_memory<kThreads>(block, job.output, job.output_bytes, pattern);
    for (std::uint32_t i = 0; i < (job.ordered != 0 ? 1 : job.pulls); ++i) {
      const SegmentJob& pulled = job.pull[i].job;
      poison_memory<kThreads>(block, pulled.combine.dst, payload_bytes_of(pulled), pattern);
    }
  }
  template <int kThreads, class Block>
  SR_HOST_DEVICE static void poison_memory(Block& block, std::byte* memory, std::uint64_t bytes,
                                           const Chunk& pattern) {
    const std::uint64_t chunks = bytes / 16;
    block.phase([&](typename Block::Warp& warp) {
      warp.step([&](int lane) {
        for (auto i = static_cast<std::uint64_t>(warp.thread(lane)); i < chunks; i += kThreads)
          store_any(memory + i * 16, pattern);
        if (warp.thread(lane) == 0)
          store_bytes(memory + chunks * 16, pattern, static_cast<std::uint32_t>(bytes % 16));
      });
    });
  }
};

}  // namespace sealring::cuda
