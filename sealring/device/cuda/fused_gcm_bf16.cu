// Kernel: a fused step of AES-GCM, sums of bf16.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_gcm_bf16(std::vector<FusedEntry>& list) { add_fused_gcm<CombineKind::sum_bf16>(list); }

}  // namespace sealring::cuda
