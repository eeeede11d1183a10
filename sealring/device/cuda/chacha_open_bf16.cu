// Kernels: ChaCha20-Poly1305 open, sum of bf16.
#include "sealring/device/cuda/chacha_open.h"

namespace sealring::cuda {

void add_chacha_open_bf16(std::vector<KernelEntry>& list) { add_chacha_open<CombineKind::sum_bf16>(list); }

}  // namespace sealring::cuda
