// Kernels: ChaCha20-Poly1305 open, sum of fp32.
#include "sealring/device/cuda/chacha_open.h"

namespace sealring::cuda {

void add_chacha_open_f32(std::vector<KernelEntry>& list) { add_chacha_open<CombineKind::sum_f32>(list); }

}  // namespace sealring::cuda
