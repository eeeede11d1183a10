// Kernels: a fused step with one record each way, sum of bf16.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_bf16(std::vector<FusedEntry>& list) { add_fused<CombineKind::sum_bf16>(list); }

}  // namespace sealring::cuda
