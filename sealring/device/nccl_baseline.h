// NcclBaseline: plain NCCL on one GPU a rank, for benchmarks to compare with. Nothing that it moves is
// sealed, and nothing but a benchmark uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sealring/base/bytes.h"
#include "sealring/base/result.h"
#include "sealring/base/stream.h"
#include "sealring/base/types.h"

namespace sealring {

/// NCCL as it comes, with registered windows of its own memory, or with 32 thread blocks at least.
enum class NcclVariant : std::uint8_t { defaults, windows, blocks };

inline constexpr std::size_t kNcclIdBytes = 128;

struct NcclConfig {
  unsigned device = 0;
  Rank rank = 0;
  std::uint16_t world = 1;
  NcclVariant variant = NcclVariant::defaults;
  Bytes unique_id;  ///< nccl_unique_id() of rank 0
};

/// Memory for an operation's input and output.
struct NcclBuffers {
  std::byte* in = nullptr;
  std::byte* out = nullptr;
};

/// Used by one thread.
class NcclBaseline {
 public:
  virtual ~NcclBaseline() = default;
  /// The memory to use: registered as a window where the variant says so. Collective over the ranks when it
  /// has to grow. nullptr members: the variant takes any memory. Errors: OUT_OF_MEMORY, UNSUPPORTED, CUDA.
  virtual Result<NcclBuffers> buffers(std::uint64_t in_bytes, std::uint64_t out_bytes) = 0;
  /// all_reduce, reduce_scatter, all_gather or broadcast of `count` elements as NCCL counts them; sum alone.
  /// Errors: UNSUPPORTED, CUDA (NCCL's own, by its text).
  virtual Result<void> enqueue(Op op, DType dtype, const std::byte* in, std::byte* out, std::uint64_t count,
                               Rank root, Stream stream) = 0;
  /// "NCCL 2.28.9".
  virtual std::string describe() const = 0;
};

/// Errors: UNSUPPORTED (no NCCL here, or one without windows), VERSION_MISMATCH, ENVIRONMENT (NVLS is not
/// switched off), CUDA.
Result<Bytes> nccl_unique_id();
Result<std::unique_ptr<NcclBaseline>> make_nccl_baseline(const NcclConfig& config);

}  // namespace sealring
