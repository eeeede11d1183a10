// A rank's own state of the fused path, in private device memory: verdict, tickets, and what the prologue
// decided for the step that runs. The functions here run on the host too, where tests drive them.
#pragma once

#include <cstdint>

#include "sealring/device/cuda/fused_window.h"
#include "sealring/device/cuda/key_state.h"
#include "sealring/device/cuda/segment_job.h"

namespace sealring::cuda {

inline constexpr std::uint32_t kFusedColumnsMax = 1024;

/// The first error of a group's ops: what the host reads.
struct GroupVerdict {
  std::uint32_t code = 0;         ///< a Code, sticky; 0: none
  std::uint32_t bad_peer = 0;     ///< 1 + group rank that it concerns; 0: none
  std::uint32_t bad_segment = 0;  ///< of a DATA_TAG: place in its chunk, or in a fused step's record
};

/// Makes `found` the verdict unless there is one.
SR_HOST_DEVICE inline void set_verdict(GroupVerdict& verdict, const GroupVerdict& found) {
  if (exchange_if(verdict.code, 0, found.code) != 0) return;
  verdict.bad_peer = found.bad_peer;
  verdict.bad_segment = found.bad_segment;
}

/// What the prologue decided for one record.
struct FusedGrant {
  OpView view;
  std::uint32_t slot;   ///< of its key
  std::uint32_t begun;  ///< the ring has an op that must be ended
  std::uint32_t frees;  ///< as in OpDescriptor
};

/// What the prologue of a launch and its columns tell one another. A step that is refused beside one that
/// runs has another one, so that their columns never mix. Two launches of one captured step beside each other
/// share theirs and count out together: the last column may be the other one's.
struct Launch {
  std::uint32_t left;         ///< columns that have not counted out
  std::uint32_t next_column;  ///< columns take their numbers here when they start
  std::uint32_t holds;        ///< its step has begun and not ended
};
/// The first ones: eager steps in turn, of which far fewer are under way at a time. Then each captured step
/// its own. The last one: captured steps for which no other is left; enqueue_end() is behind those.
inline constexpr std::uint32_t kEagerLaunches = kDescriptors, kLaunches = 4096, kSharedLaunch = kLaunches - 1;

struct FusedState {
  std::uint32_t verdict;      ///< a Code, sticky: the first error
  std::uint32_t bad_segment;  ///< of a DATA_TAG: place in its record
  std::uint32_t bad_peer;     ///< 1 + peer_index() of the peer that it concerns; 0: none
  std::uint32_t abort;        ///< not 0: no step begins, and whoever waits leaves with ABORTED
  std::uint32_t in_use;       ///< a step has begun and not ended
  // The step that runs:
  std::uint32_t status;  ///< a Code; 0: go
  std::uint64_t deadline_ns;
  std::uint64_t timeout_ns;                               ///< of each step
  std::uint32_t rank;                                     ///< mine in the group
  GroupVerdict* group;                                    ///< where an error is told, too; null: nowhere
  FusedGrant push[kFusedPeersMax], pull[kFusedPeersMax];  ///< by peer_index()
  /// By peer_index(): of the next segment that a column pushes to, and pulls from, a peer.
  std::uint64_t out_tickets[kFusedPeersMax][kFusedColumnsMax];
  std::uint64_t in_tickets[kFusedPeersMax][kFusedColumnsMax];
  std::uint64_t small_tickets[kSmallPlaces];  ///< two ranks: small steps that have used a place
  Launch launches[kLaunches];
};

/// Where the other ranks are, by peer_index().
struct FusedPeers {
  std::uint32_t count = 0;
  std::byte* mine[kFusedPeersMax] = {};    ///< the peer's region in my window
  std::byte* theirs[kFusedPeersMax] = {};  ///< mine in the peer's window, as this process reaches it
  KeyState* out[kFusedPeersMax] = {};      ///< the pair key from me to the peer
  KeyState* in[kFusedPeersMax] = {};
};

/// A record that is pushed (`job.wire`: my region of the peer's window) or pulled (the peer's region of
/// mine).
struct FusedLink {
  SegmentJob job;
  std::uint32_t peer = 0;     ///< peer_index()
  std::uint32_t columns = 0;  ///< that share the record: see fused_cut()
};

/// A step with at most `kLinks` records each way. Its memory may overlap as that of collective/schedule.h's
/// steps may; where a pull overwrites what is pushed (lockstep), both are cut alike and the same column
/// handles both of a segment, the push first.
template <std::uint32_t kLinks>
struct FusedStep {
  FusedLink push[kLinks], pull[kLinks];
  std::uint32_t pushes = 0, pulls = 0;
  std::uint32_t stride = 1;     ///< turns a segment: see progress.h
  std::uint32_t ordered = 0;    ///< not 0: all pulls and local memory are added in rank order into one output
  std::uint32_t own_place = 0;  ///< ordered: how many pulls come before local memory
  std::uint32_t descriptor = 0;
  std::uint32_t launch = 0;                   ///< of FusedState::launches
  std::uint32_t small = 0;                    ///< not 0: through lines, see fused_small.h
  std::uint32_t lag_segments = kLagSegments;  ///< D of progress.h
  std::uint32_t blocks =
      0;  ///< not 0: the kernel has so many blocks at most, each with some columns (fused_gcm.h)
  /// The whole output of the op whose last step this is, which a failure poisons; null: what it pulls.
  std::byte* output = nullptr;
  std::uint64_t output_bytes = 0;
  WindowShape shape;
  FusedPeers peers;

  SR_HOST_DEVICE std::uint32_t columns() const {
    std::uint32_t out = 1;
    for (std::uint32_t i = 0; i < pushes; ++i) out = out < push[i].columns ? push[i].columns : out;
    for (std::uint32_t i = 0; i < pulls; ++i) out = out < pull[i].columns ? pull[i].columns : out;
    return out;
  }
  /// What takes numbers and counts out: columns, or blocks that have several.
  SR_HOST_DEVICE std::uint32_t units() const {
    const std::uint32_t all = columns();
    return blocks != 0 && blocks < all ? blocks : all;
  }
};
using FusedJob = FusedStep<kFusedPeersMax>;

/// The first records of a step that has no more.
template <std::uint32_t kLinks>
FusedStep<kLinks> narrowed(const FusedJob& job) {
  FusedStep<kLinks> out;
  for (std::uint32_t i = 0; i < kLinks; ++i) {
    out.push[i] = job.push[i];
    out.pull[i] = job.pull[i];
  }
  out.pushes = job.pushes;
  out.pulls = job.pulls;
  out.stride = job.stride;
  out.ordered = job.ordered;
  out.own_place = job.own_place;
  out.descriptor = job.descriptor;
  out.launch = job.launch;
  out.small = job.small;
  out.lag_segments = job.lag_segments;
  out.blocks = job.blocks;
  out.output = job.output;
  out.output_bytes = job.output_bytes;
  out.shape = job.shape;
  out.peers = job.peers;
  return out;
}

/// Returns the old value; in no order with anything else.
SR_HOST_DEVICE inline std::uint32_t count_one(std::uint32_t& at) {
#if defined(__CUDA_ARCH__)
  return atomicAdd(&at, 1u);
#else
  return at++;
#endif
}
/// Behind all that this warp's lanes have stored.
SR_HOST_DEVICE inline void release_word(std::uint32_t& at, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
  __threadfence();
#endif
  store_fresh(at, value);
}
/// `units` of a launch are to come.
SR_HOST_DEVICE inline void expect_units(Launch& launch, std::uint32_t units) {
#if defined(__CUDA_ARCH__)
  atomicAdd(&launch.left, units);
#else
  launch.left += units;
#endif
}
/// Counts a column out; true for the last of those that are to come, who then sees what all did before they
/// counted.
SR_HOST_DEVICE inline bool last_out(Launch& launch) {
#if defined(__CUDA_ARCH__)
  __threadfence();
  const bool last = atomicSub(&launch.left, 1u) == 1;
  if (last) __threadfence();
  return last;
#else
  return launch.left-- == 1;
#endif
}

SR_HOST_DEVICE inline std::uint32_t verdict_of(const FusedState& state) {
  return *static_cast<const volatile std::uint32_t*>(&state.verdict);
}
SR_HOST_DEVICE inline bool aborted(const FusedState& state) {
  return *static_cast<const volatile std::uint32_t*>(&state.abort) != 0;
}

/// Makes `code` the verdict unless there is one. `peer`: the peer_index() that it concerns, but for an abort
/// of this rank's own.
SR_HOST_DEVICE inline void fail_by(FusedState& state, std::uint32_t code, std::uint32_t peer,
                                   std::uint32_t segment) {
  if (exchange_if(state.verdict, 0, code) != 0) return;
  state.bad_segment = segment;
  state.bad_peer = code == status_of(Code::aborted) && aborted(state) ? 0 : 1 + peer;
}

// --- the prologue, before the step's kernel: three parts with a barrier between them. [protocol A.3]

/// What the prologue is told of a step: parts of FusedStep, by peer_index(). Without segments: no record.
struct FusedReservation {
  struct Record {
    std::uint32_t segments = 0;
    std::uint64_t bytes = 0;
  };
  Record push[kFusedPeersMax], pull[kFusedPeersMax];
  std::uint32_t descriptor = 0;
  std::uint32_t launch = 0, units = 0;  ///< see FusedStep
  FusedPeers peers;

  static FusedReservation of(const FusedJob& job) {
    FusedReservation out;
    const auto record = [](const FusedLink& link) {
      return Record{link.job.segments, payload_bytes_of(link.job)};
    };
    for (std::uint32_t i = 0; i < job.pushes; ++i) out.push[job.push[i].peer] = record(job.push[i]);
    for (std::uint32_t i = 0; i < job.pulls; ++i) out.pull[job.pull[i].peer] = record(job.pull[i]);
    out.descriptor = job.descriptor;
    out.launch = job.launch;
    out.units = job.units();
    out.peers = job.peers;
    return out;
  }
};

/// Threads of the prologue, one a ring: thread i has the key to peer i, thread 8 + i the key from it.
inline constexpr std::uint32_t kFusedRings = 2 * kFusedRanksMax;

/// The ring of a thread; null: it has none.
SR_HOST_DEVICE inline KeyState* ring_of(const FusedPeers& peers, std::uint32_t thread) {
  const std::uint32_t peer = thread % kFusedRanksMax;
  if (peer >= peers.count) return nullptr;
  return thread < kFusedRanksMax ? peers.out[peer] : peers.in[peer];
}

/// What the threads of a prologue tell each other.
struct StepStart {
  std::uint32_t begun;               ///< not 0: no other step is under way
  std::uint32_t status;              ///< a Code that was there before; 0: none
  std::uint32_t rings[kFusedRings];  ///< a Code of each ring
};

/// One thread. Where another step has not ended, that one keeps all that it runs by, but goes on under a
/// verdict.
SR_HOST_DEVICE inline void begin_step(FusedState& state, const FusedReservation& step, std::uint64_t now_ns,
                                      StepStart& start) {
  Launch& launch = state.launches[step.launch % kLaunches];
  expect_units(launch, step.units);
  // Read beside the exchange: whoever fails behind it is found by every column when it starts.
  std::uint32_t status = verdict_of(state);
  const bool given_up = aborted(state);
  const std::uint32_t group = state.group != nullptr ? fresh(state.group->code) : 0;
  const std::uint64_t timeout_ns = state.timeout_ns;
  start.begun = exchange_if(state.in_use, 0, 1) == 0 ? 1 : 0;
  if (start.begun == 0) {
    exchange_if(state.verdict, 0, status_of(Code::seq_reuse_guard));
    return;
  }
  launch.holds = 1;
  if (status == 0) status = group;
  if (status == 0 && given_up) status = status_of(Code::aborted);
  start.status = status;
  state.deadline_ns = now_ns + timeout_ns;
}

/// A ring as its thread finds it, beside begin_step(): so the two exchanges wait for each other's words no
/// more than the reads do.
struct RingStart {
  StateView now{};
  bool taken = false;  ///< it has a record, and no other op holds it
};
SR_HOST_DEVICE inline const FusedReservation::Record& record_of(const FusedReservation& step,
                                                                std::uint32_t thread) {
  const std::uint32_t peer = thread % kFusedRanksMax;
  return thread < kFusedRanksMax ? step.push[peer] : step.pull[peer];
}
SR_HOST_DEVICE inline RingStart take_ring(const FusedReservation& step, std::uint32_t thread) {
  RingStart out;
  KeyState* const ring = thread < kFusedRings ? ring_of(step.peers, thread) : nullptr;
  if (ring == nullptr) return out;
  out.now = view_of(*ring);
  out.taken = record_of(step, thread).segments != 0 && take_state(*ring);
  return out;
}

/// Of a step that has begun, one thread a ring: reserves the numbers of the ring's record. A ring's verdict
/// is this rank's too, also without a record. Of a step that has not begun: nothing more is sealed or opened
/// under any key.
SR_HOST_DEVICE inline void reserve_ring(FusedState& state, const FusedReservation& step, std::uint32_t thread,
                                        const RingStart& found, StepStart& start) {
  KeyState* const ring = ring_of(step.peers, thread);
  start.rings[thread] = 0;
  if (ring == nullptr) return;
  if (start.begun == 0) {
    exchange_if(ring->verdict, 0, status_of(Code::seq_reuse_guard));
    if (found.taken) store_fresh(ring->in_use, 0);
    return;
  }
  const bool out = thread < kFusedRanksMax;
  const std::uint32_t peer = thread % kFusedRanksMax;
  const FusedReservation::Record& record = record_of(step, thread);
  FusedGrant grant{};
  grant.begun = found.taken ? 1 : 0;
  start.rings[thread] = found.now.verdict;
  if (start.status == 0 && record.segments != 0) {
    OpRequest request;
    request.numbers = out ? Numbers::seal_next : Numbers::open_next;
    request.descriptor = step.descriptor;
    request.segments = record.segments;
    request.payload_bytes = record.bytes;
    const OpDescriptor op = begin_op(*ring, found.now, found.taken, request);
    grant = FusedGrant{op.view, op.slot, op.holds, op.frees};
    start.rings[thread] = op.status;
  }
  (out ? state.push[peer] : state.pull[peer]) = grant;
}

/// One thread, behind all rings. On any refusal the step seals nothing.
SR_HOST_DEVICE inline void settle_step(FusedState& state, const FusedReservation& step,
                                       const StepStart& start) {
  if (start.begun == 0) return;
  std::uint32_t status = start.status;
  if (status != 0) exchange_if(state.verdict, 0, status);
  for (std::uint32_t i = 0; i < step.peers.count && status == 0; ++i) {
    status = start.rings[i] != 0 ? start.rings[i] : start.rings[kFusedRanksMax + i];
    if (status != 0) fail_by(state, status, i, 0);
  }
  state.status = status;
}

// --- what the last column does when all others are out, but for the poisoning

/// After a failure: one thread. The error of this rank is that of its group.
SR_HOST_DEVICE inline void tell_group(const FusedState& state) {
  if (state.group == nullptr) return;
  const std::uint32_t bad = fresh(state.bad_peer);
  set_verdict(*state.group,
              GroupVerdict{verdict_of(state), bad == 0 ? 0 : 1 + rank_of_peer(state.rank, bad - 1),
                           fresh(state.bad_segment)});
}

/// After a failure, one thread a ring: nothing more is sealed or opened under any key.
SR_HOST_DEVICE inline void spread_verdict(const FusedState& state, const FusedPeers& peers,
                                          std::uint32_t thread) {
  if (KeyState* const ring = ring_of(peers, thread); ring != nullptr)
    exchange_if(ring->verdict, 0, verdict_of(state));
}

/// The op of a record ends. Stores alone.
SR_HOST_DEVICE inline void end_grant(FusedState& state, const FusedPeers& peers, std::uint32_t thread,
                                     const FusedGrant& grant) {
  if (grant.begun == 0) return;
  const bool out = thread < kFusedRanksMax;
  const std::uint32_t peer = thread % kFusedRanksMax;
  store_fresh((out ? state.push[peer] : state.pull[peer]).begun, 0);
  OpDescriptor op{};
  op.holds = 1;
  op.frees = grant.frees;
  end_op(*ring_of(peers, thread), op);
}

}  // namespace sealring::cuda
