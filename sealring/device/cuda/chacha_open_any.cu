// Kernels: ChaCha20-Poly1305 open, every other combine, switched at run time.
#include "sealring/device/cuda/chacha_open.h"

namespace sealring::cuda {

void add_chacha_open_any(std::vector<KernelEntry>& list) { add_chacha_open<CombineKind::any>(list); }

}  // namespace sealring::cuda
