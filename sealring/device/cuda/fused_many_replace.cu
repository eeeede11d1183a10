// Kernels: a fused step with several records, as it is.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_many_replace(std::vector<FusedEntry>& list) { add_fused_many<CombineKind::replace>(list); }

}  // namespace sealring::cuda
