// Kernels: a small fused step of two ranks, as it is, and every other reduction, switched at run time.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_small_others(std::vector<FusedEntry>& list) {
  add_fused_small<CombineKind::replace>(list);
  add_fused_small<CombineKind::any>(list);
}

}  // namespace sealring::cuda
