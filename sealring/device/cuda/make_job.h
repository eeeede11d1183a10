// From the library's jobs to what a kernel is told.
#pragma once

#include <cstring>

#include "sealring/device/bulk_cipher.h"
#include "sealring/device/cuda/segment_job.h"
#include "sealring/device/device_group.h"

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

/// The two group ranks of a record.
struct RecordEnds {
  Rank from = 0, to = 0;
};

/// What both ends authenticate of a record of a group of GPUs, fused or staged [protocol C.3]; epoch, seq and
/// the segment's own fields come later. `move`: a DeviceSend at one end, the DeviceRecv at the other.
template <class Move>
RecordContext record_context_of(const DeviceGroupConfig& group, const DeviceOp& op, RecordEnds ends,
                                const Move& move) {
  RecordContext out;
  out.suite = group.suite;
  std::memcpy(out.th3.data(), group.th3.data(), out.th3.size());
  std::memcpy(out.group_id.data(), group.group_id.data(), out.group_id.size());
  out.sender = group.members[ends.from];
  out.receiver = group.members[ends.to];
  out.op = op.op;
  out.redop = op.redop;
  out.dtype = op.dtype;
  out.algorithm = op.algorithm;
  out.root = op.root;
  out.tag = op.tag;
  out.step = move.step;
  out.elements = op.op == Op::send ? move.elements : op.elements;
  out.element_offset = move.element_offset;
  out.group_size = static_cast<std::uint16_t>(group.members.size());
  return out;
}

}  // namespace sealring::cuda
