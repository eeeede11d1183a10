// The AES-GCM open kernel of one combine, for any segment: plaintext waits in private memory, which here
// costs less than the shared memory it would take. Both key lengths: the number of rounds comes with the key.
#pragma once

#include "sealring/device/cuda/aes_body.h"
#include "sealring/device/cuda/kernel.h"

namespace sealring::cuda {

template <CombineKind kCombine>
void add_aes_open(std::vector<KernelEntry>& list) {
  using Body = AesBody<AesConfig<Direction::open, kCombine>>;
  for (const Suite suite : {Suite::aes_256_gcm, Suite::aes_128_gcm}) {
    KernelEntry entry = entry_of<Body>(suite, kCombine, 1u << 27, Body::kStep);
    entry.private_depth = Body::kDepth;
    entry.private_more = Body::kStep;
    list.push_back(entry);
  }
}

}  // namespace sealring::cuda
