// Kernel: a fused step of AES-GCM, without a reduction.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_gcm_replace(std::vector<FusedEntry>& list) { add_fused_gcm<CombineKind::replace>(list); }

}  // namespace sealring::cuda
