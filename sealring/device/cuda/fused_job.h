// From a step of a schedule to what its fused kernel is told: a pure function, without a CUDA header.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "sealring/base/result.h"
#include "sealring/device/cuda/combine.h"
#include "sealring/device/cuda/fused_state.h"
#include "sealring/device/cuda/make_job.h"
#include "sealring/device/device_group.h"

namespace sealring::cuda {

/// What a group's ranks must have alike.
struct FusedTuning {
  std::uint32_t columns_max = 1;
  /// Up to this, records of two ranks go by lines (fused_small.h); at most kSmallBytesMax; 0: none does.
  std::uint64_t small_bytes_max = 0;
  /// Of records that go by slots; 0: as fused_cut() says.
  std::uint32_t segment_bytes = 0;
  /// Of steps whose kernel has no teams (group_shape.h); 0: columns_max.
  std::uint32_t columns_alone = 0;
  std::uint32_t blocks = 0;  ///< of AES-GCM's kernels, which have several columns each
};

/// How a record of an op is cut: by what both its ends know (one that only sends does not combine).
inline FusedCut cut_of(std::uint32_t ranks, const DeviceOp& op, const FusedTuning& tuning, bool small,
                       std::uint64_t bytes) {
  const std::uint32_t divisor = op.redop == RedOp::avg ? ranks : 1;
  const bool alone = small || combine_kind(op.redop, op.dtype, divisor) == CombineKind::any;
  const std::uint32_t columns_max =
      alone && tuning.columns_alone != 0 ? tuning.columns_alone : tuning.columns_max;
  const std::uint32_t given = small ? kSmallSegment : tuning.segment_bytes;
  return given != 0 ? cut_into(bytes, given, columns_max) : fused_cut(bytes, ranks, columns_max);
}

namespace fused_internal {

template <class Move>
FusedLink link_of(const DeviceGroupConfig& group, const DeviceOp& op, const FusedTuning& tuning, bool small,
                  const Move& move, RecordEnds ends) {
  const auto ranks = static_cast<std::uint32_t>(group.members.size());
  const std::uint64_t bytes = move.elements * dtype_bytes(op.dtype);
  const FusedCut cut = cut_of(ranks, op, tuning, small, bytes);
  const RecordLayout layout = RecordLayout::of(bytes, cut.segment_bytes);
  FusedLink out;
  out.job = segment_job_of(group.suite, record_context_of(group, op, ends, move), layout, layout.segments());
  out.job.combine.dtype = op.dtype;
  out.peer = peer_index(group.rank, move.peer);
  out.columns = cut.columns;
  return out;
}

/// What no step of a schedule does, or the fused kernels cannot.
inline const char* why_not(const DeviceGroupConfig& group, std::span<const DeviceSend> sends,
                           std::span<const DeviceRecv> recvs, DeviceStepRules rules) {
  const std::size_t ranks = group.members.size();
  std::uint32_t to = 0, from = 0;
  for (const DeviceSend& send : sends) {
    if (send.peer >= ranks || send.peer == group.rank) return "a record goes to no other rank of the group";
    if ((to >> send.peer & 1u) != 0) return "two records of a step go to one peer";
    if (send.scale != 1.0) return "a record is to be scaled: copy() does that before";
    to |= 1u << send.peer;
    if (rules.lockstep && !recvs.empty() && send.elements != recvs[0].elements)
      return "records in lockstep are of different lengths";
  }
  for (const DeviceRecv& recv : recvs) {
    if (recv.peer >= ranks || recv.peer == group.rank)
      return "a record comes from no other rank of the group";
    if ((from >> recv.peer & 1u) != 0) return "two records of a step come from one peer";
    if (recv.local_scale != 1.0) return "local memory is to be scaled: copy() does that before";
    from |= 1u << recv.peer;
    const DeviceRecv& first = recvs[0];
    const bool alike = recv.dst == first.dst && recv.local == first.local &&
                       recv.elements == first.elements && recv.divisor == first.divisor;
    const bool reduced = recv.local != nullptr || first.local != nullptr;
    if (recvs.size() > 1 && reduced && !(rules.ordered && alike))
      return "several records are reduced, but not into one output in rank order";
    if (rules.lockstep && recv.elements != first.elements)
      return "records in lockstep are of different lengths";
  }
  return nullptr;
}

}  // namespace fused_internal

/// Whether a step goes by lines. Both ends decide this alike: the one's record out is the other's record in.
inline bool is_small(const DeviceGroupConfig& group, DType dtype, std::span<const DeviceSend> sends,
                     std::span<const DeviceRecv> recvs, std::uint64_t small_bytes_max) {
  return small_bytes_max > 0 && group.members.size() == 2 && sends.size() == 1 && recvs.size() == 1 &&
         sends[0].elements == recvs[0].elements && sends[0].elements * dtype_bytes(dtype) <= small_bytes_max;
}

/// The job of a step of `op`: at most one record to and from each peer. `descriptor` is the caller's to fill
/// in. Errors: UNSUPPORTED (a step that no schedule has; scales).
inline Result<FusedJob> fused_job_of(const DeviceGroupConfig& group, const DeviceOp& op,
                                     std::span<const DeviceSend> sends, std::span<const DeviceRecv> recvs,
                                     DeviceStepRules rules, const FusedPeers& peers,
                                     const FusedTuning& tuning) {
  namespace in = fused_internal;
  const auto ranks = static_cast<Rank>(group.members.size());
  if (const char* const why = in::why_not(group, sends, recvs, rules); why != nullptr)
    return fail(Code::unsupported, "device.cuda.fused", why);
  FusedJob out;
  const std::uint32_t columns_max = tuning.columns_max;
  const bool small = is_small(group, op.dtype, sends, recvs, tuning.small_bytes_max);
  out.small = small ? 1 : 0;
  out.shape = fused_region(ranks, columns_max);
  out.peers = peers;
  // Pushes to rank + 1, rank + 2, ...: at any time every rank hears from a different one. Pulls in rank
  // order.
  for (Rank distance = 1; distance < ranks; ++distance) {
    const auto peer = static_cast<Rank>((group.rank + distance) % ranks);
    const auto send = std::ranges::find(sends, peer, &DeviceSend::peer);
    if (send == sends.end()) continue;
    FusedLink& link = out.push[out.pushes++];
    link = in::link_of(group, op, tuning, small, *send, {group.rank, peer});
    link.job.plaintext = send->data;
    link.job.wire = peers.theirs[link.peer];
  }
  for (Rank peer = 0; peer < ranks; ++peer) {
    const auto recv = std::ranges::find(recvs, peer, &DeviceRecv::peer);
    if (recv == recvs.end()) continue;
    FusedLink& link = out.pull[out.pulls++];
    link = in::link_of(group, op, tuning, small, *recv, {peer, group.rank});
    link.job.wire = peers.mine[link.peer];
    CombineOp& combine = link.job.combine;
    combine.redop = recv->local == nullptr ? RedOp::none : op.redop;
    combine.local = recv->local == nullptr ? recv->dst : recv->local;
    combine.dst = recv->dst;
    combine.divisor = recv->divisor;
    combine.received_first = rules.ordered && peer < group.rank;
    if (combine.received_first) ++out.own_place;
  }
  out.stride = std::max({1u, out.pushes, out.pulls});
  out.lag_segments = lag_of(out.stride);
  out.blocks = tuning.blocks;
  out.ordered = out.pulls > 1 && out.pull[0].job.combine.redop != RedOp::none ? 1 : 0;
  return out;
}

/// Which kernel serves a job.
struct FusedChoice {
  CombineKind combine = CombineKind::replace;
  bool gcm = false;    ///< FusedGcm (fused_gcm.h)
  bool many = false;   ///< the one of steps with several records: FusedMany (fused_body.h), else FusedSingle
  bool small = false;  ///< FusedSmall (fused_small.h)
};
inline FusedChoice fused_choice(const FusedJob& job) {
  FusedChoice out;
  out.gcm = job.blocks != 0;
  out.many = job.stride > 1;
  out.small = job.small != 0;
  if (job.pulls == 0) return out;
  const CombineOp& combine = job.pull[0].job.combine;
  out.combine = combine_kind(combine.redop, combine.dtype, combine.divisor);
  if (out.gcm || out.small || (out.combine != CombineKind::any && !out.many)) return out;
  // The sums of the others divide, too.
  out.combine = combine_kind(combine.redop, combine.dtype, 1);
  out.many = true;
  return out;
}

}  // namespace sealring::cuda
