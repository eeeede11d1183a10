// Kernels: a fused step with one record each way, sum of fp16.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_f16(std::vector<FusedEntry>& list) { add_fused<CombineKind::sum_f16>(list); }

}  // namespace sealring::cuda
