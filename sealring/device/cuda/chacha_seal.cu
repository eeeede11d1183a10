// Kernels: ChaCha20-Poly1305 seal. The first of the list is preferred; the others are there to be measured.
#include "sealring/device/cuda/chacha_body.h"
#include "sealring/device/cuda/kernel.h"

namespace sealring::cuda {
namespace {

template <int kWorkers, int kBlocks, int kUnroll>
void add(std::vector<KernelEntry>& list) {
  using Body = ChachaBody<ChachaConfig<Direction::seal, kWorkers, kBlocks, 0, CombineKind::replace, 2, kUnroll>>;
  list.push_back(entry_of<Body>(Suite::chacha20_poly1305, CombineKind::replace, 1u << 30, 0));
}

}  // namespace

void add_chacha_seal(std::vector<KernelEntry>& list) {
  add<4, 4, 2>(list);
  add<4, 4, 1>(list);
  add<4, 4, 5>(list);
  add<4, 4, 10>(list);
  add<8, 2, 2>(list);
  add<4, 5, 2>(list);
}

}  // namespace sealring::cuda
