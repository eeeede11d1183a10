// What lies around a fused body: a block takes its column and keys, and counts itself out on every path.
#pragma once

#include <cstddef>

#include "sealring/device/cuda/fused_state.h"
#include "sealring/device/cuda/user_memory.h"

namespace sealring::cuda {

/// The part of a block's shared memory that every fused body has. Behind the keys nothing secret lies.
template <int kLinks>
struct FusedFrame {
  /// What a column knows of a record.
  struct Link {
    OpView view;
    std::uint64_t first_ticket;
    std::uint32_t count;  ///< segments of the column
  };
  KeyWords out_key[kLinks], in_key[kLinks];
  Link out[kLinks], in[kLinks];
  std::uint32_t status, column, failed, last;

  /// What the prologue decided for a record, and its key. `status` and `column` are set.
  SR_HOST_DEVICE void enter_link(const FusedState& state, const FusedStep<kLinks>& job, bool push,
                                 std::uint32_t l) {
    Link& at = push ? out[l] : in[l];
    at.count = 0;
    if (l >= (push ? job.pushes : job.pulls) || status != 0) return;
    const FusedLink& link = push ? job.push[l] : job.pull[l];
    const FusedGrant& grant = push ? state.push[link.peer] : state.pull[link.peer];
    at.view = grant.view;
    const std::uint32_t at_column = column % kFusedColumnsMax;
    at.first_ticket = push ? state.out_tickets[link.peer][at_column] : state.in_tickets[link.peer][at_column];
    at.count = share_of(link.job.segments, link.columns, column);
    const KeyState& ring = push ? *job.peers.out[link.peer] : *job.peers.in[link.peer];
    KeyWords& key = push ? out_key[l] : in_key[l];
    key = ring.slots[grant.slot % kSlots].words;
  }

  /// Takes a column number, and copies what the prologue decided and the keys of all records. Then
  /// `further(lane)` of one warp. A phase.
  template <class Block, class Further>
  SR_HOST_DEVICE void enter(Block& block, FusedState& state, const FusedStep<kLinks>& job,
                            Further&& further) {
    block.phase([&](typename Block::Warp& warp) {
      if (warp.index() != 0) return;
      warp.step([&](int lane) {
        if (lane != 0) return;
        column = count_one(state.next_column);
        const std::uint32_t verdict = verdict_of(state);
        status = state.status != 0 ? state.status : verdict;
      });
      warp.step([&](int lane) {
        const auto l = static_cast<std::uint32_t>(lane) % kFusedRanksMax;
        if (lane < 2 * static_cast<int>(kFusedRanksMax) && l < kLinks)
          enter_link(state, job, lane < static_cast<int>(kFusedRanksMax), l);
      });
      warp.step(further);
    });
  }

  /// POISON in every word of this column, at every peer. `warp` alone.
  template <class Warp, class Fabric>
  SR_HOST_DEVICE void poison_words(Warp& warp, Fabric& fabric, const FusedStep<kLinks>& job) const {
    constexpr std::uint32_t kWords = 2 * WindowShape::kSlots;
    if (column >= job.shape.columns) return;  // a block of a step that was refused beside another's
    warp.step([&](int lane) {
      for (auto i = static_cast<std::uint32_t>(lane); i < kWords * job.peers.count; i += kLanes) {
        const std::uint32_t word = i % kWords;
        const std::uint64_t offset = word < WindowShape::kSlots ? job.shape.flag_offset(column, word)
                                                                : job.shape.credit_offset(column, word);
        fabric.post(job.peers.theirs[i / kWords] + offset, kPoison);
      }
    });
  }

  /// Clears `shared` up to the end of the keys, of which this is a part; counts the column out; the last one
  /// poisons a failed step's output and ends the step. `advance(lane)`: of one warp, unless `code`.
  template <int kThreads, class Block, class Fabric, class Advance>
  SR_HOST_DEVICE void leave(Block& block, void* shared, Fabric& fabric, const FusedStep<kLinks>& job,
                            FusedState& state, std::uint32_t columns, std::uint32_t code,
                            const Chunk& pattern, Advance&& advance) {
    using Warp = typename Block::Warp;
    auto* const words = static_cast<std::uint32_t*>(shared);
    const auto secrets = static_cast<std::size_t>(reinterpret_cast<std::uint32_t*>(out) - words);
    block.phase([&](Warp& warp) {
      if (warp.index() == 0 && code != 0) {
        warp.step([&](int lane) {  // first: a peer's answer to POISON is not the first error
          if (lane == 0) exchange_if(state.verdict, 0, code);
        });
        poison_words(warp, fabric, job);
      }
      // [protocol A.6] What held keys, powers, keystream and plaintext is cleared.
      warp.step([&](int lane) {
        for (auto i = static_cast<std::size_t>(warp.thread(lane)); i < secrets; i += kThreads) words[i] = 0;
      });
    });
    block.phase([&](Warp& warp) {
      if (warp.index() != 0) return;
      warp.step([&](int lane) {
        if (code == 0) advance(lane);
      });
      warp.step([&](int lane) {
        if (lane != 0) return;
        last = count_one(state.columns_out) == columns - 1 ? 1u : 0u;
        failed = verdict_of(state);
      });
    });
    if (last == 0) return;
    for (std::uint32_t i = 0; failed != 0 && i < (job.ordered != 0 ? 1 : job.pulls); ++i)
      poison_output<kThreads>(block, job.pull[i].job, pattern);
    block.phase([&](Warp& warp) {
      if (warp.index() != 0) return;
      warp.step([&](int lane) {
        if (lane == 0) state.next_column = state.columns_out = 0;
        if (lane < static_cast<int>(kFusedRings))
          end_ring(state, job.peers, job.descriptor, static_cast<std::uint32_t>(lane));
      });
      warp.step([&](int lane) {
        if (lane == 0) exchange_if(state.in_use, 1, 0);
      });
    });
  }

  // [protocol A.5]
  template <int kThreads, class Block>
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
};

}  // namespace sealring::cuda
