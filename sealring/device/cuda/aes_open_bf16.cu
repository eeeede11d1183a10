// Kernels: AES-GCM open, sum of bf16.
#include "sealring/device/cuda/aes_open.h"

namespace sealring::cuda {

void add_aes_open_bf16(std::vector<KernelEntry>& list) { add_aes_open<CombineKind::sum_bf16>(list); }

}  // namespace sealring::cuda
