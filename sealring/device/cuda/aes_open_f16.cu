// Kernels: AES-GCM open, sum of fp16.
#include "sealring/device/cuda/aes_open.h"

namespace sealring::cuda {

void add_aes_open_f16(std::vector<KernelEntry>& list) { add_aes_open<CombineKind::sum_f16>(list); }

}  // namespace sealring::cuda
