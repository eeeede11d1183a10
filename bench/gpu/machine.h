// The machine that a GPU bench ran on, as CUDA and NVML tell it.
#pragma once

#include "bench/gpu/record.h"

namespace sealring::bench {

/// Of device 0. What cannot be asked stays unknown; call it behind the last row, for the clocks.
Machine machine_now(const std::string& commit);

}  // namespace sealring::bench
