// Kernels: a fused step with one record each way, sum of fp32.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_f32(std::vector<FusedEntry>& list) { add_fused<CombineKind::sum_f32>(list); }

}  // namespace sealring::cuda
