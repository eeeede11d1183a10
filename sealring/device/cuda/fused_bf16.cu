// Kernels: fused all_reduce of two ranks, sum of bf16.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_bf16(std::vector<FusedEntry>& list) { add_fused<CombineKind::sum_bf16>(list); }

}  // namespace sealring::cuda
