// Kernels: a fused step with one record each way and few columns, the sums.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_teams_sums(std::vector<FusedEntry>& list) {
  add_fused_teams<CombineKind::sum_f32>(list);
  add_fused_teams<CombineKind::sum_bf16>(list);
  add_fused_teams<CombineKind::sum_f16>(list);
}

}  // namespace sealring::cuda
