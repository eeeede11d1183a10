// The gate between two steps of work in a stream: posts words to peers, waits for words of theirs, and is
// where an error of one key becomes the error of the whole group. Host and device.
//
// A gate is one block, a thread a peer, and the only kernel here that waits. It looks first: a group that has
// a verdict, or a key that has, posts nothing any more but POISON, and from then on no key of the group seals
// or releases anything. Every wait ends: with its word, with POISON, by the verdict or the abort word, or at
// the deadline. [protocol E.3, E.4]
//
// A Fabric is what differs between a GPU and a test: load(word) with acquire, post(word, value) behind all
// that was written before, now_ns(), and pause() between looks.
#pragma once

#include <cstdint>

#include "sealring/device/cuda/group_state.h"

namespace sealring::cuda {

enum class GateWord : std::uint8_t { none, flag, credit };

/// Which words a gate posts, then which it waits for: by peer the slot, kNoSlot: none.
struct GateJob {
  static constexpr std::uint8_t kNoSlot = 0xFF;
  GateWord post = GateWord::none, wait = GateWord::none;
  std::uint8_t posts[kGroupRanksMax], waits[kGroupRanksMax];

  static GateJob of() {
    GateJob out;
    for (std::uint32_t i = 0; i < kGroupRanksMax; ++i) out.posts[i] = out.waits[i] = kNoSlot;
    return out;
  }
};

struct GateBody {
  struct Shared {
    std::uint32_t failed;
  };
  static constexpr int kThreadsMax = static_cast<int>(kGroupRanksMax);

  /// What a peer's thread finds before it does anything.
  SR_HOST_DEVICE static GroupVerdict look(const GroupState& state, std::uint32_t peer) {
    if (fresh_word(state.abort) != 0 && fresh_word(state.verdict.code) == 0)
      return GroupVerdict{status_of(Code::aborted), 0, 0};
    return look_at(state, peer);
  }

  template <class Fabric>
  SR_HOST_DEVICE static void post(Fabric& fabric, GroupState& state, const GateJob& job, std::uint32_t peer) {
    const std::uint32_t slot = job.posts[peer];
    if (job.post == GateWord::none || slot >= kWireSlots) return;
    const bool flag = job.post == GateWord::flag;
    std::uint64_t& ticket = flag ? state.sent[peer][slot] : state.taken[peer][slot];
    const WireShape& shape = state.shape;
    const std::uint64_t offset =
        flag ? shape.flag_offset(peer, state.rank, slot) : shape.credit_offset(peer, state.rank, slot);
    ticket += 1;
    fabric.post(state.windows[peer] + offset, ticket);
  }

  /// 0, or the Code that the wait ended with.
  template <class Fabric>
  SR_HOST_DEVICE static std::uint32_t wait(Fabric& fabric, const GroupState& state, const GateJob& job,
                                           std::uint32_t peer) {
    const std::uint32_t slot = job.waits[peer];
    if (job.wait == GateWord::none || slot >= kWireSlots) return 0;
    const bool flag = job.wait == GateWord::flag;
    const WireShape& shape = state.shape;
    const std::byte* const word =
        state.windows[state.rank] +
        (flag ? shape.flag_offset(state.rank, peer, slot) : shape.credit_offset(state.rank, peer, slot));
    const std::uint64_t expected = flag ? state.taken[peer][slot] + 1 : state.sent[peer][slot];
    const std::uint64_t deadline_ns = fabric.now_ns() + state.timeout_ns;
    for (std::uint32_t looks = 1;; ++looks) {
      const std::uint64_t value = fabric.load(word);
      if (value == expected) return 0;
      if (value == kPoison) return status_of(Code::aborted);
      if (looks % 256 != 0) continue;
      if (const std::uint32_t code = fresh_word(state.verdict.code); code != 0) return code;
      if (fresh_word(state.abort) != 0) return status_of(Code::aborted);
      if (fabric.now_ns() >= deadline_ns) return status_of(Code::timeout);
      fabric.pause();
    }
  }

  /// The peer's part of the end of a group.
  template <class Fabric>
  SR_HOST_DEVICE static void give_up(Fabric& fabric, GroupState& state, std::uint32_t peer) {
    spread_verdict(state, peer);
    if (peer == state.rank || state.windows[peer] == nullptr) return;
    for (std::uint32_t slot = 0; slot < kWireSlots; ++slot) {
      fabric.post(state.windows[peer] + state.shape.flag_offset(peer, state.rank, slot), kPoison);
      fabric.post(state.windows[peer] + state.shape.credit_offset(peer, state.rank, slot), kPoison);
    }
  }

  /// Calls visit(peer) in each peer's thread.
  template <class Block, class Visit>
  SR_HOST_DEVICE static void for_peers(Block& block, const GroupState& state, Visit&& visit) {
    block.phase([&](typename Block::Warp& warp) {
      warp.step([&](int lane) {
        const auto peer = static_cast<std::uint32_t>(warp.thread(lane));
        if (peer < state.ranks) visit(peer);
      });
    });
  }

  template <class Block, class Fabric>
  SR_HOST_DEVICE static void run(Block& block, Shared& shared, Fabric& fabric, GroupState& state,
                                 const GateJob& job) {
    block.phase([&](typename Block::Warp& warp) {
      warp.step([&](int lane) {
        if (warp.thread(lane) == 0) shared.failed = 0;
      });
    });
    for_peers(block, state, [&](std::uint32_t peer) {
      const GroupVerdict found = look(state, peer);
      if (found.code == 0) return;
      set_verdict(state.verdict, found);
      shared.failed = 1;
    });
    if (shared.failed == 0) {
      for_peers(block, state, [&](std::uint32_t peer) {
        if (peer != state.rank) post(fabric, state, job, peer);
      });
      for_peers(block, state, [&](std::uint32_t peer) {
        if (peer == state.rank) return;
        const std::uint32_t code = wait(fabric, state, job, peer);
        if (code != 0) set_verdict(state.verdict, GroupVerdict{code, 1 + peer, 0});
        // Another stream's gate may have given up while this one posted: its POISON must be the last word.
        if (code != 0 || fresh_word(state.verdict.code) != 0) shared.failed = 1;
      });
    }
    if (shared.failed == 0) return;
    for_peers(block, state, [&](std::uint32_t peer) { give_up(fabric, state, peer); });
  }
};

}  // namespace sealring::cuda
