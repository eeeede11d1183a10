// Kernels: AES-GCM seal, both key lengths.
#include "sealring/device/cuda/aes_body.h"
#include "sealring/device/cuda/kernel.h"

namespace sealring::cuda {

void add_aes_seal(std::vector<KernelEntry>& list) {
  using Body = AesBody<AesConfig<Direction::seal, CombineKind::replace>>;
  // A segment's last block counter is 32 bits [SP 800-38D §5.2.1.1], and the powers of H reach 2^24 blocks.
  for (const Suite suite : {Suite::aes_256_gcm, Suite::aes_128_gcm})
    list.push_back(entry_of<Body>(suite, CombineKind::replace, 1u << 27, 0));
}

}  // namespace sealring::cuda
