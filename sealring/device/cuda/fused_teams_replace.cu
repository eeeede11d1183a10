// Kernels: a fused step with one record each way and few columns, without a reduction.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_teams_replace(std::vector<FusedEntry>& list) { add_fused_teams<CombineKind::replace>(list); }

}  // namespace sealring::cuda
