// Kernels: AES-GCM open, sum of fp32.
#include "sealring/device/cuda/aes_open.h"

namespace sealring::cuda {

void add_aes_open_f32(std::vector<KernelEntry>& list) { add_aes_open<CombineKind::sum_f32>(list); }

}  // namespace sealring::cuda
