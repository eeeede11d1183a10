// What a group's state says of its ops, in words: a pure function, without a CUDA header.
#pragma once

#include <span>
#include <string>

#include "sealring/base/result.h"
#include "sealring/device/cuda/group_state.h"
#include "sealring/device/cuda/verdict.h"

namespace sealring::cuda {

/// Of a verdict that is not 0. `members`: global ranks; `rank`: mine in the group; `refill`: what has become
/// of the refill of the keys concerned.
inline Error group_error(const GroupVerdict& verdict, std::span<const Rank> members, Rank rank,
                         const Result<void>& refill) {
  Error out = verdict_error(DeviceVerdict{verdict.code, verdict.bad_segment}, refill);
  out.rank = members[rank];
  const bool known = verdict.bad_peer >= 1 && verdict.bad_peer <= members.size();
  if (known) out.peer = members[verdict.bad_peer - 1];
  const std::string peer = known ? "rank " + std::to_string(members[verdict.bad_peer - 1]) : "a peer";
  switch (out.code) {
    case Code::data_tag:
      out.stage = "data.open";
      out.what = "a record from " + peer + " is not authentic (segment " +
                 std::to_string(verdict.bad_segment) + " of its chunk)";
      break;
    case Code::timeout:
      out.what = peer + " did not take part in time";
      break;
    case Code::aborted:
      out.what = known ? peer + " gave up" : "the operation was aborted here";
      break;
    default:
      break;
  }
  return out;
}

}  // namespace sealring::cuda
