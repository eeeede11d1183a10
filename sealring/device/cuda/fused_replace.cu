// Kernels: a fused step with one record each way, as it is.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_replace(std::vector<FusedEntry>& list) { add_fused<CombineKind::replace>(list); }

}  // namespace sealring::cuda
