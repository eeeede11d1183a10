// Kernels: a fused step with several records, sum of bf16, in rank order.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_many_bf16(std::vector<FusedEntry>& list) { add_fused_many<CombineKind::sum_bf16>(list); }

}  // namespace sealring::cuda
