// Kernel: a fused step of AES-GCM, any other combine.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_gcm_any(std::vector<FusedEntry>& list) { add_fused_gcm<CombineKind::any>(list); }

}  // namespace sealring::cuda
