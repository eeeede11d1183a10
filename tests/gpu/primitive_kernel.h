// The primitives on the device, alone.
#pragma once

#include <cuda_runtime.h>

#include "tests/device/primitive_cases.h"

namespace sealring::test {

/// Runs each of `count` cases in device memory; waits.
cudaError_t run_primitives_on_gpu(PrimitiveCase* cases, unsigned count);

}  // namespace sealring::test
