// Kernels: a fused step with one record each way, every other reduction, switched at run time.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_any(std::vector<FusedEntry>& list) { add_fused<CombineKind::any>(list); }

}  // namespace sealring::cuda
