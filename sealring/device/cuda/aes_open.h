// The AES-GCM open kernels of one combine. The first that a segment fits into is preferred. One kernel serves
// both key lengths: the number of rounds comes with the key.
#pragma once

#include "sealring/device/cuda/aes_body.h"
#include "sealring/device/cuda/kernel.h"

namespace sealring::cuda {

template <CombineKind kCombine>
void add_aes_open(std::vector<KernelEntry>& list) {
  using InShared = AesBody<AesConfig<Direction::open, 32768, kCombine>>;
  using InPrivate = AesBody<AesConfig<Direction::open, 0, kCombine>>;
  for (const Suite suite : {Suite::aes_256_gcm, Suite::aes_128_gcm}) {
    list.push_back(entry_of<InShared>(suite, kCombine, 32768, 0));
    KernelEntry last = entry_of<InPrivate>(suite, kCombine, 1u << 27, InPrivate::kStep);
    last.private_depth = InPrivate::kDepth;
    list.push_back(last);
  }
}

}  // namespace sealring::cuda
