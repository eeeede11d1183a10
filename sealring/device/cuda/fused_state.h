// A rank's own state of the fused path, in private device memory: verdict, tickets, and what the prologue
// decided for the step that runs. The functions here run on the host too, where tests drive them.
#pragma once

#include <cstdint>

#include "sealring/device/cuda/fused_window.h"
#include "sealring/device/cuda/key_state.h"
#include "sealring/device/cuda/segment_job.h"

namespace sealring::cuda {

inline constexpr std::uint32_t kFusedColumnsMax = 1024;

/// What the prologue decided for one record.
struct FusedGrant {
  OpView view;
  std::uint32_t slot;    ///< of its key
  std::uint32_t status;  ///< a Code; 0: go
  std::uint32_t begun;   ///< the ring has an op that must be ended
};

struct FusedState {
  std::uint32_t verdict;      ///< a Code, sticky: the first error
  std::uint32_t bad_segment;  ///< of a DATA_TAG: place in its record
  std::uint32_t bad_peer;     ///< 1 + peer_index() of the peer that it concerns; 0: none
  std::uint32_t abort;        ///< not 0: no step begins, and whoever waits leaves with ABORTED
  std::uint32_t in_use;       ///< a step has begun and not ended
  std::uint32_t next_column;  ///< columns take their numbers here when they start
  std::uint32_t columns_out;
  // The step that runs:
  std::uint32_t status;  ///< a Code; 0: go
  std::uint64_t deadline_ns;
  std::uint64_t timeout_ns;                               ///< of each step
  FusedGrant push[kFusedPeersMax], pull[kFusedPeersMax];  ///< by peer_index()
  /// By peer_index(): of the next segment that a column pushes to, and pulls from, a peer.
  std::uint64_t out_tickets[kFusedPeersMax][kFusedColumnsMax];
  std::uint64_t in_tickets[kFusedPeersMax][kFusedColumnsMax];
  std::uint64_t small_tickets[kSmallPlaces];  ///< two ranks: small steps that have used a place
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
  std::uint32_t small = 0;  ///< not 0: through lines, see fused_small.h
  WindowShape shape;
  FusedPeers peers;

  SR_HOST_DEVICE std::uint32_t columns() const {
    std::uint32_t out = 1;
    for (std::uint32_t i = 0; i < pushes; ++i) out = out < push[i].columns ? push[i].columns : out;
    for (std::uint32_t i = 0; i < pulls; ++i) out = out < pull[i].columns ? pull[i].columns : out;
    return out;
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
  out.small = job.small;
  out.shape = job.shape;
  out.peers = job.peers;
  return out;
}

/// Returns the old value; what this thread did before is seen by who counts later.
SR_HOST_DEVICE inline std::uint32_t count_one(std::uint32_t& at) {
#if defined(__CUDA_ARCH__)
  __threadfence();
  const std::uint32_t old = atomicAdd(&at, 1u);
  __threadfence();
  return old;
#else
  return at++;
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
  FusedPeers peers;

  static FusedReservation of(const FusedJob& job) {
    FusedReservation out;
    const auto record = [](const FusedLink& link) {
      return Record{link.job.segments, payload_bytes_of(link.job)};
    };
    for (std::uint32_t i = 0; i < job.pushes; ++i) out.push[job.push[i].peer] = record(job.push[i]);
    for (std::uint32_t i = 0; i < job.pulls; ++i) out.pull[job.pull[i].peer] = record(job.pull[i]);
    out.descriptor = job.descriptor;
    out.peers = job.peers;
    return out;
  }
};

/// Threads of the prologue, one a ring: thread i has the key to peer i, thread 8 + i the key from it.
inline constexpr std::uint32_t kFusedRings = 2 * kFusedRanksMax;

/// One thread. False: another step has not ended; it keeps all that it runs by, but goes on under a verdict.
SR_HOST_DEVICE inline bool begin_step(FusedState& state, std::uint64_t now_ns) {
  if (exchange_if(state.in_use, 0, 1) != 0) {
    exchange_if(state.verdict, 0, status_of(Code::seq_reuse_guard));
    return false;
  }
  state.status = verdict_of(state);
  if (state.status == 0 && aborted(state)) state.status = status_of(Code::aborted);
  state.deadline_ns = now_ns + state.timeout_ns;
  return true;
}

/// Of a step that has not begun, one thread a ring: nothing more is sealed or opened under any key.
SR_HOST_DEVICE inline void refuse_ring(const FusedReservation& step, std::uint32_t thread) {
  const std::uint32_t peer = thread % kFusedRanksMax;
  if (peer >= step.peers.count) return;
  KeyState& ring = *(thread < kFusedRanksMax ? step.peers.out : step.peers.in)[peer];
  exchange_if(ring.verdict, 0, status_of(Code::seq_reuse_guard));
}

/// Of a step that has begun: reserves the numbers of a ring's record. A ring's verdict is this rank's too,
/// also without a record.
SR_HOST_DEVICE inline void reserve_ring(FusedState& state, const FusedReservation& step,
                                        std::uint32_t thread) {
  const bool out = thread < kFusedRanksMax;
  const std::uint32_t peer = thread % kFusedRanksMax;
  if (peer >= step.peers.count) return;
  KeyState& ring = out ? *step.peers.out[peer] : *step.peers.in[peer];
  const FusedReservation::Record& record = out ? step.push[peer] : step.pull[peer];
  FusedGrant grant{};
  grant.status = ring.verdict;
  if (state.status == 0 && record.segments != 0) {
    OpRequest request;
    request.numbers = out ? Numbers::seal_next : Numbers::open_next;
    request.descriptor = step.descriptor;
    request.segments = record.segments;
    request.payload_bytes = record.bytes;
    begin_op(ring, request);
    const OpDescriptor& op = ring.descriptors[step.descriptor % kDescriptors];
    grant = FusedGrant{op.view, op.slot, op.status, 1};
  }
  FusedGrant& granted = out ? state.push[peer] : state.pull[peer];
  granted = grant;
}

/// One thread, of a step that has begun. On any refusal the step seals nothing.
SR_HOST_DEVICE inline void settle_step(FusedState& state, const FusedReservation& step) {
  if (state.status != 0) exchange_if(state.verdict, 0, state.status);
  for (std::uint32_t i = 0; i < step.peers.count && state.status == 0; ++i) {
    state.status = state.push[i].status != 0 ? state.push[i].status : state.pull[i].status;
    if (state.status != 0) fail_by(state, state.status, i, 0);
  }
}

// --- what the last column does when all others are out, but for the poisoning

/// One thread a ring, as in reserve_ring(). After a failure nothing more is sealed or opened under any key.
SR_HOST_DEVICE inline void end_ring(FusedState& state, const FusedPeers& peers, std::uint32_t descriptor,
                                    std::uint32_t thread) {
  const bool out = thread < kFusedRanksMax;
  const std::uint32_t peer = thread % kFusedRanksMax;
  if (peer >= peers.count) return;
  KeyState& ring = out ? *peers.out[peer] : *peers.in[peer];
  if (state.verdict != 0) exchange_if(ring.verdict, 0, state.verdict);
  FusedGrant& grant = out ? state.push[peer] : state.pull[peer];
  if (grant.begun == 0) return;
  grant.begun = 0;
  end_op(ring, ring.descriptors[descriptor % kDescriptors]);
}

}  // namespace sealring::cuda
