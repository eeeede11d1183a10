// The small kernels beside NCCL's: counting its exchanges, and a verdict that the host has found.
#pragma once

#include "sealring/base/result.h"
#include "sealring/device/cuda/group_state.h"
#include "sealring/device/cuda/nccl_rounds.h"

namespace sealring::cuda {

/// Loads them; see prepare_device().
Result<void> load_nccl_marks();
/// Adds one to a count, in stream order. `marks` lies on the device. Errors: CUDA.
Result<void> enqueue_mark(NcclMarks* marks, NcclMark which, void* stream);
/// Makes `code` the verdict of the group and of all its keys, where it has none. Errors: CUDA.
Result<void> enqueue_verdict(GroupState* state, Code code, void* stream);

}  // namespace sealring::cuda
