// Kernels: ChaCha20-Poly1305 seal. The first that serves a job is preferred; the last is there to be
// measured.
#include "sealring/device/cuda/chacha_small.h"
#include "sealring/device/cuda/kernel.h"

namespace sealring::cuda {
namespace {

template <int kWorkers, int kBlocks>
void add(std::vector<KernelEntry>& list) {
  using Body = ChachaBody<ChachaConfig<Direction::seal, kWorkers, kBlocks, 0, CombineKind::replace>>;
  list.push_back(entry_of<Body>(Suite::chacha20_poly1305, CombineKind::replace, 1u << 30, 0));
}

}  // namespace

void add_chacha_seal(std::vector<KernelEntry>& list) {
  using Small = ChachaSmall<Direction::seal, CombineKind::replace>;
  list.push_back(entry_of<Small>(Suite::chacha20_poly1305, CombineKind::replace, Small::kSegmentMax, 0));
  add<4, 4>(list);
  add<8, 2>(list);
}

}  // namespace sealring::cuda
