// Kernels: AES-GCM with small tables, both directions and key lengths. Behind the others in the list: taken
// where those need more shared memory than there is.
#include "sealring/device/cuda/aes_compact.h"
#include "sealring/device/cuda/kernel.h"

namespace sealring::cuda {
namespace {

template <class Body>
void add(Suite suite, CombineKind kind, std::vector<KernelEntry>& list) {
  // Two blocks on a multiprocessor of 100 KiB, each with the 1 KiB that the system keeps.
  static_assert(sizeof(KernelShared<Body>) <= (49 << 10));
  KernelEntry entry = entry_of<Body>(suite, kind, 1u << 27, Body::kOpen ? Body::kStep : 0);
  entry.private_depth = Body::kDepth;
  list.push_back(entry);
}

}  // namespace

void add_aes_compact(std::vector<KernelEntry>& list) {
  for (const Suite suite : {Suite::aes_256_gcm, Suite::aes_128_gcm}) {
    add<AesCompactBody<Direction::seal, CombineKind::replace>>(suite, CombineKind::replace, list);
    add<AesCompactBody<Direction::open, CombineKind::replace>>(suite, CombineKind::replace, list);
    for (const CombineKind kind :
         {CombineKind::sum_f32, CombineKind::sum_bf16, CombineKind::sum_f16, CombineKind::any})
      add<AesCompactBody<Direction::open, CombineKind::any>>(suite, kind, list);
  }
}

}  // namespace sealring::cuda
