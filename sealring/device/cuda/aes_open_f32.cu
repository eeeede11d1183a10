// Kernels: AES-GCM open, sum of fp32. The last two are there to be measured: they combine before they
// decrypt.
#include "sealring/device/cuda/aes_open.h"

namespace sealring::cuda {

void add_aes_open_f32(std::vector<KernelEntry>& list) {
  add_aes_open<CombineKind::sum_f32>(list);
  add_aes_open<CombineKind::sum_f32, false>(list);
}

}  // namespace sealring::cuda
