// Kernels: a fused step with several records, sum of fp32, in rank order.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_many_f32(std::vector<FusedEntry>& list) { add_fused_many<CombineKind::sum_f32>(list); }

}  // namespace sealring::cuda
