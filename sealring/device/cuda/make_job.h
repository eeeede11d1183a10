// From the library's jobs to what a kernel is told.
#pragma once

#include <cstring>

#include "sealring/device/bulk_cipher.h"
#include "sealring/device/cuda/fused_state.h"
#include "sealring/device/cuda/segment_job.h"

namespace sealring::cuda {

/// `context` describes the job's first segment, as in device/bulk_cipher.h. Pointers are the caller's to fill
/// in.
inline SegmentJob segment_job_of(Suite suite, RecordContext context, const RecordLayout& layout,
                                 std::uint32_t segments) {
  SegmentJob out;
  context.suite = suite;
  context.segments = layout.segments();
  const Aad aad = aad_of(context);
  std::memcpy(out.aad.chunks, aad.data(), aad.size());
  out.layout = layout;
  out.first_segment = context.segment;
  out.segments = segments;
  out.elements_per_segment = layout.segment_bytes / dtype_bytes(context.dtype);
  out.element_offset = context.element_offset;
  return out;
}

/// A fused all_reduce between `me` and `peer` (global ranks) of which `context` is that of the op. The sum is
/// in rank order. Memory, windows and avg's divisor are the caller's to fill in.
inline FusedJob fused_job_of(Suite suite, RecordContext context, const RecordLayout& layout, Rank me,
                             Rank peer) {
  FusedJob out;
  context.sender = me;
  context.receiver = peer;
  out.push = segment_job_of(suite, context, layout, layout.segments());
  context.sender = peer;
  context.receiver = me;
  out.pull = segment_job_of(suite, context, layout, layout.segments());
  out.push.combine.dtype = out.pull.combine.dtype = context.dtype;
  out.pull.combine.redop = context.redop;
  out.pull.combine.received_first = peer < me;
  return out;
}

}  // namespace sealring::cuda
