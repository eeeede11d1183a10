// Kernels: ChaCha20-Poly1305 seal. The first of the list is preferred; the others are there to be measured:
// rotations by products in none, two or all of four quarter rounds, and larger blocks.
#include "sealring/device/cuda/chacha_body.h"
#include "sealring/device/cuda/kernel.h"

namespace sealring::cuda {
namespace {

template <int kWorkers, int kBlocks, int kProducts>
void add(std::vector<KernelEntry>& list) {
  using Body =
      ChachaBody<ChachaConfig<Direction::seal, kWorkers, kBlocks, 0, CombineKind::replace, 2, 2, kProducts>>;
  list.push_back(entry_of<Body>(Suite::chacha20_poly1305, CombineKind::replace, 1u << 30, 0));
}

}  // namespace

void add_chacha_seal(std::vector<KernelEntry>& list) {
  add<4, 4, 2>(list);
  add<4, 4, 0>(list);
  add<4, 4, 4>(list);
  add<8, 2, 2>(list);
}

}  // namespace sealring::cuda
