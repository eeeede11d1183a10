// Kernels: a small fused step of two ranks, the sums of training.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_small_sums(std::vector<FusedEntry>& list) {
  add_fused_small<CombineKind::sum_f32>(list);
  add_fused_small<CombineKind::sum_bf16>(list);
  add_fused_small<CombineKind::sum_f16>(list);
}

}  // namespace sealring::cuda
