// Kernel: a fused step of AES-GCM, sums of fp32.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_gcm_f32(std::vector<FusedEntry>& list) { add_fused_gcm<CombineKind::sum_f32>(list); }

}  // namespace sealring::cuda
