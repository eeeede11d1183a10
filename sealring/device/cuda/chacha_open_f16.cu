// Kernels: ChaCha20-Poly1305 open, sum of fp16.
#include "sealring/device/cuda/chacha_open.h"

namespace sealring::cuda {

void add_chacha_open_f16(std::vector<KernelEntry>& list) { add_chacha_open<CombineKind::sum_f16>(list); }

}  // namespace sealring::cuda
