// From the library's jobs to what a kernel is told.
#pragma once

#include <cstring>

#include "sealring/device/bulk_cipher.h"
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

}  // namespace sealring::cuda
