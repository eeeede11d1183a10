// Which kernels a build has, and which one serves a job: data and a pure function, without a CUDA header.
#pragma once

#include <algorithm>
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
                                   ///< (segment rounded up to this, and private_more) a block
  std::uint32_t private_more = 0;
  std::uint32_t private_depth = 2;
  bool small = false;  ///< for jobs of at most a segment a block
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
/// `segments` of the job, on so many multiprocessors: if not given, as many as there may be.
inline const KernelEntry* pick_kernel(std::span<const KernelEntry> list, Suite suite, Direction direction,
                                      CombineKind combine, std::uint32_t segment_bytes,
                                      std::size_t shared_max, std::uint32_t segments = ~std::uint32_t{0},
                                      unsigned multiprocessors = 1) {
  for (const KernelEntry& entry : list) {
    if (entry.small && segments > entry.blocks * multiprocessors) continue;
    if (entry.suite == kernel_suite(suite) && entry.direction == direction &&
        segment_bytes <= entry.segment_max && entry.shared_bytes <= shared_max &&
        (direction == Direction::seal || entry.combine == combine))
      return &entry;
  }
  return nullptr;
}

/// The shared memory that a block claims. Where small messages follow each other, a block comes while those
/// of the op before leave, and goes where there is most room: several would gather on a multiprocessor that
/// had none, and the slowest is waited for. So each claims enough that no more than its share of `columns`
/// fit.
inline std::size_t claimed_bytes(const KernelEntry& entry, unsigned columns, unsigned multiprocessors,
                                 std::size_t shared_max) {
  if (!entry.small) return entry.shared_bytes;
  constexpr std::size_t kReserved = 1024;  // of each block's, by CUDA
  const unsigned share = (columns + multiprocessors - 1) / multiprocessors;
  return std::max(entry.shared_bytes, (shared_max + kReserved) / (share + 1));
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
