// Kernels: AES-GCM open, no combine.
#include "sealring/device/cuda/aes_open.h"

namespace sealring::cuda {

void add_aes_open_replace(std::vector<KernelEntry>& list) { add_aes_open<CombineKind::replace>(list); }

}  // namespace sealring::cuda
