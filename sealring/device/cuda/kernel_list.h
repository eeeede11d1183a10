// Which kernels a build has, and which one serves a job: data and a pure function, without a CUDA header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sealring/base/types.h"
#include "sealring/device/cuda/combine.h"

namespace sealring::cuda {

enum class Direction : int { seal, open };

struct KernelEntry {
  Suite suite = Suite::chacha20_poly1305;
  Direction direction = Direction::seal;
  CombineKind combine = CombineKind::replace;  ///< open
  std::uint32_t segment_max = 0;               ///< largest segment_bytes it serves
  std::uint32_t private_step = 0;  ///< open: plaintext waits in private memory, `private_depth` times
                                   ///< (segment rounded up to this) a block
  std::uint32_t private_depth = 2;
  unsigned threads = 0;
  unsigned blocks = 1;  ///< resident on a multiprocessor
  std::size_t shared_bytes = 0;
  const void* kernel = nullptr;
};

/// The suite whose kernels serve `suite`: chained-gmac is AES-256-GCM in small segments (protocol C.3).
constexpr Suite kernel_suite(Suite suite) {
  return suite == Suite::chained_gmac ? Suite::aes_256_gcm : suite;
}
/// Whether a suite's kernels need a GcmKey.
constexpr bool suite_has_gcm_key(Suite suite) {
  return kernel_suite(suite) == Suite::aes_256_gcm || suite == Suite::aes_128_gcm;
}

/// All of this build, the preferred first.
std::span<const KernelEntry> kernel_list();

/// The first entry that serves the job on a device whose blocks may have `shared_max` bytes; null: none.
inline const KernelEntry* pick_kernel(std::span<const KernelEntry> list, Suite suite, Direction direction,
                                      CombineKind combine, std::uint32_t segment_bytes,
                                      std::size_t shared_max) {
  for (const KernelEntry& entry : list) {
    if (entry.suite == kernel_suite(suite) && entry.direction == direction &&
        segment_bytes <= entry.segment_max && entry.shared_bytes <= shared_max &&
        (direction == Direction::seal || entry.combine == combine))
      return &entry;
  }
  return nullptr;
}

// One function a source file, so that the files compile side by side.
void add_chacha_seal(std::vector<KernelEntry>& list);
void add_chacha_open_replace(std::vector<KernelEntry>& list);
void add_chacha_open_f32(std::vector<KernelEntry>& list);
void add_chacha_open_bf16(std::vector<KernelEntry>& list);
void add_chacha_open_f16(std::vector<KernelEntry>& list);
void add_chacha_open_any(std::vector<KernelEntry>& list);
void add_aes_seal(std::vector<KernelEntry>& list);
void add_aes_open_replace(std::vector<KernelEntry>& list);
void add_aes_open_f32(std::vector<KernelEntry>& list);
void add_aes_open_bf16(std::vector<KernelEntry>& list);
void add_aes_open_f16(std::vector<KernelEntry>& list);
void add_aes_open_any(std::vector<KernelEntry>& list);
void add_aes_compact(std::vector<KernelEntry>& list);

}  // namespace sealring::cuda
