// The small kernels of a group of GPUs, enqueued on a stream: gates, and the end of an op.
#pragma once

#include <span>

#include "sealring/base/result.h"
#include "sealring/device/cuda/gate_body.h"

namespace sealring::cuda {

/// Loads them; see prepare_device().
Result<void> load_gates();
/// In stream order; `state` lies on the device. Errors: CUDA.
Result<void> enqueue_gate(GroupState* state, const GateJob& job, void* stream);
/// An op's end: where the group or a key has a verdict by then, it becomes that of the group and of all its
/// keys, and `output` is poisoned. Errors: CUDA.
Result<void> enqueue_end(GroupState* state, DType dtype, std::span<std::byte> output, void* stream);

}  // namespace sealring::cuda
