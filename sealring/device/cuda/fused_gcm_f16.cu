// Kernel: a fused step of AES-GCM, sums of fp16.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_gcm_f16(std::vector<FusedEntry>& list) { add_fused_gcm<CombineKind::sum_f16>(list); }

}  // namespace sealring::cuda
