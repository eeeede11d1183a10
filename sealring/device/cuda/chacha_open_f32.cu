// Kernels: ChaCha20-Poly1305 open, sum of fp32. Those behind the common ones are there to be measured: no
// rotations by products.
#include "sealring/device/cuda/chacha_open.h"

namespace sealring::cuda {

void add_chacha_open_f32(std::vector<KernelEntry>& list) {
  add_chacha_open<CombineKind::sum_f32>(list);
  add_chacha_open_kernel<CombineKind::sum_f32, 4, 4, 32768, 1, 0>(list);
  add_chacha_open_kernel<CombineKind::sum_f32, 8, 2, 65536, 1, 0>(list);
}

}  // namespace sealring::cuda
