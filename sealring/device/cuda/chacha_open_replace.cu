// Kernels: ChaCha20-Poly1305 open, plaintext into the tensor.
#include "sealring/device/cuda/chacha_open.h"

namespace sealring::cuda {

void add_chacha_open_replace(std::vector<KernelEntry>& list) { add_chacha_open<CombineKind::replace>(list); }

}  // namespace sealring::cuda
