// Kernels: AES-GCM open, every other combine, switched at run time.
#include "sealring/device/cuda/aes_open.h"

namespace sealring::cuda {

void add_aes_open_any(std::vector<KernelEntry>& list) { add_aes_open<CombineKind::any>(list); }

}  // namespace sealring::cuda
