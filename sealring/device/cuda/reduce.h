// Kernels around the cipher, enqueued on a stream: sums of several contributions, copies with a factor, and
// the two ends of a chunk of suite plain.
#pragma once

#include "sealring/base/result.h"
#include "sealring/device/cuda/group_state.h"
#include "sealring/device/cuda/reduce_body.h"
#include "sealring/device/cuda/segment_job.h"

namespace sealring::cuda {

/// Loads them; see prepare_device().
Result<void> load_reductions();
/// Writes nothing where the group or a key of it has a verdict by then. Errors: UNSUPPORTED (no such
/// reduction), CUDA.
Result<void> enqueue_reduce(const GroupState* state, DType dtype, RedOp redop, const ReduceArguments& job,
                            unsigned blocks_max, void* stream);
/// Errors: UNSUPPORTED (a type that is no float), CUDA.
Result<void> enqueue_scale(DType dtype, const ScaleArguments& job, unsigned blocks_max, void* stream);
/// Study only; nothing is moved where the group has a verdict by then. Errors: CUDA.
Result<void> enqueue_plain_seal(const GroupState* state, const SegmentJob& job, unsigned blocks_max,
                                void* stream);
Result<void> enqueue_plain_open(const GroupState* state, const SegmentJob& job, unsigned blocks_max,
                                void* stream);

}  // namespace sealring::cuda
