#include "sealring/device/cuda/kernel_list.h"

namespace sealring::cuda {

std::span<const KernelEntry> kernel_list() {
  static const std::vector<KernelEntry> list = [] {
    std::vector<KernelEntry> out;
    add_chacha_seal(out);
    add_chacha_open_replace(out);
    add_chacha_open_f32(out);
    add_chacha_open_bf16(out);
    add_chacha_open_f16(out);
    add_chacha_open_any(out);
    add_aes_seal(out);
    add_aes_open_replace(out);
    add_aes_open_f32(out);
    add_aes_open_bf16(out);
    add_aes_open_f16(out);
    add_aes_open_any(out);
    add_aes_compact(out);
    return out;
  }();
  return list;
}

}  // namespace sealring::cuda
