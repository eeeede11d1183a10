// Reductions on a CPU: blocks of elements, in loops that the compiler turns into vector code for three
// levels.
//
// Pointers may have any alignment: elements are accessed through an unaligned type. The level is chosen at
// run time by plain function pointers (no ifunc: sanitizers cannot run in its resolvers).
#include <algorithm>
#include <cstring>

#include "sealring/device/bulk_cipher.h"
#include "sealring/device/cpu/half_blocks.h"
#include "sealring/device/cpu/vector_level.h"
#include "sealring/primitives/reductions.h"

namespace sealring {
namespace {

using cpu::VectorLevel;
using reductions::Element;

// Elements a block: its accumulators stay in the first-level cache. gcc vectorises loops of constant length
// at -O2.
constexpr std::uint64_t kBlock = 512;

// One block of a job. Offsets are in bytes and the same in all sources and dst.
struct Block {
  std::span<const std::byte* const> sources;
  std::byte* dst = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t elements = 0;
  std::uint32_t divisor = 1;
  double scale = 1.0;
  const cpu::HalfBlocks* halves = nullptr;
};
using BlockFunction = void (*)(const Block&);

// An element at any address.
template <class T>
struct Unaligned {
  using type [[gnu::aligned(1), gnu::may_alias]] = T;
};

template <DType D>
using Stored = typename Unaligned<typename Element<D>::Storage>::type;

template <DType D>
[[gnu::always_inline]] inline const Stored<D>* source_of(const Block& block, std::size_t index) {
  return reinterpret_cast<const Stored<D>*>(block.sources[index] + block.offset);
}

// Calls body(i) for the elements of a block. A body touches element i only: this is what the pragmas promise.
template <class Body>
[[gnu::always_inline]] inline void each(std::uint64_t elements, Body body) {
  if (elements == kBlock) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (std::uint64_t i = 0; i < kBlock; ++i) body(i);
  } else {
    for (std::uint64_t i = 0; i < elements; ++i) body(i);
  }
}

template <DType D>
[[gnu::always_inline]] inline void load(const Block& block, std::size_t index,
                                        typename Element<D>::Value* out) {
  if constexpr (D == DType::f16) {
    block.halves->widen(block.sources[index] + block.offset, out, block.elements);
  } else {
    const auto* in = source_of<D>(block, index);
    each(block.elements, [=](std::uint64_t i) { out[i] = Element<D>::widen(in[i]); });
  }
}

template <DType D>
[[gnu::always_inline]] inline void store(const Block& block, const typename Element<D>::Value* in) {
  if constexpr (D == DType::f16) {
    block.halves->narrow(in, block.dst + block.offset, block.elements);
  } else {
    auto* out = reinterpret_cast<Stored<D>*>(block.dst + block.offset);
    each(block.elements, [=](std::uint64_t i) { out[i] = Element<D>::narrow(in[i]); });
  }
}

// A function of its own, never inlined: the product is rounded before anything is added to it, on every
// compiler.
template <DType D>
[[gnu::noinline]] void scale_values(typename Element<D>::Value* values, std::uint64_t elements,
                                    double factor) {
  each(elements, [=](std::uint64_t i) { values[i] = reductions::scaled<D>(values[i], factor); });
}

// Two sources and nothing else to do: no accumulator in memory. The common case of every ring hop.
template <DType D, RedOp R>
[[gnu::always_inline]] inline void reduce_pair(const Block& block) {
  const auto* a = source_of<D>(block, 0);
  const auto* b = source_of<D>(block, 1);
  auto* out = reinterpret_cast<Stored<D>*>(block.dst + block.offset);
  each(block.elements, [=](std::uint64_t i) {
    out[i] = Element<D>::narrow(reductions::combine<D, R>(Element<D>::widen(a[i]), Element<D>::widen(b[i])));
  });
}

template <DType D, RedOp R>
[[gnu::always_inline]] inline void reduce_block(const Block& block) {
  using Value = typename Element<D>::Value;
  if constexpr (D != DType::f16) {
    if (block.sources.size() == 2 && block.divisor == 1 && block.scale == 1.0)
      return reduce_pair<D, R>(block);
  }
  Value sum[kBlock];
  Value next[kBlock];
  Value* const acc = sum;
  Value* const term = next;
  for (std::size_t k = 0; k < block.sources.size(); ++k) {
    load<D>(block, k, k == 0 ? acc : term);
    if constexpr (Element<D>::kFloat) {
      if (block.scale != 1.0) scale_values<D>(k == 0 ? acc : term, block.elements, block.scale);
    }
    if (k == 0) continue;
    each(block.elements, [=](std::uint64_t i) { acc[i] = reductions::combine<D, R>(acc[i], term[i]); });
  }
  if constexpr (D != DType::boolean && R == RedOp::sum) {
    const std::uint32_t divisor = block.divisor;
    if (divisor != 1) {
      each(block.elements, [=](std::uint64_t i) { acc[i] = reductions::complete<D>(acc[i], divisor); });
    }
  }
  store<D>(block, acc);
}

template <DType D, RedOp R>
void reduce_plain(const Block& block) {
  reduce_block<D, R>(block);
}
#if defined(__x86_64__)
template <DType D, RedOp R>
[[gnu::target("avx2")]] void reduce_avx2(const Block& block) {
  reduce_block<D, R>(block);
}
template <DType D, RedOp R>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void reduce_avx512(const Block& block) {
  reduce_block<D, R>(block);
}
#endif

template <DType D, RedOp R>
BlockFunction at_level([[maybe_unused]] VectorLevel level) {
#if defined(__x86_64__)
  if (level == VectorLevel::avx512) return reduce_avx512<D, R>;
  if (level == VectorLevel::avx2) return reduce_avx2<D, R>;
#endif
  return reduce_plain<D, R>;
}

template <DType D>
BlockFunction for_redop(VectorLevel level, RedOp redop) {
  switch (redop) {
    case RedOp::min:
      return at_level<D, RedOp::min>(level);
    case RedOp::max:
      return at_level<D, RedOp::max>(level);
    case RedOp::product:
      return at_level<D, RedOp::product>(level);
    case RedOp::none:
      return nullptr;
    default:
      return at_level<D, RedOp::sum>(level);
  }
}

BlockFunction block_function(VectorLevel level, DType dtype, RedOp redop) {
  switch (dtype) {
    case DType::f32:
      return for_redop<DType::f32>(level, redop);
    case DType::f64:
      return for_redop<DType::f64>(level, redop);
    case DType::f16:
      return for_redop<DType::f16>(level, redop);
    case DType::bf16:
      return for_redop<DType::bf16>(level, redop);
    case DType::i8:
      return for_redop<DType::i8>(level, redop);
    case DType::i16:
      return for_redop<DType::i16>(level, redop);
    case DType::i32:
      return for_redop<DType::i32>(level, redop);
    case DType::i64:
      return for_redop<DType::i64>(level, redop);
    case DType::u8:
      return for_redop<DType::u8>(level, redop);
    case DType::boolean:
      return for_redop<DType::boolean>(level, redop);
  }
  return nullptr;
}

template <class T>
void fill_pattern(std::span<std::byte> memory, T pattern) noexcept {
  std::size_t at = 0;
  for (; at + sizeof(T) <= memory.size(); at += sizeof(T))
    std::memcpy(memory.data() + at, &pattern, sizeof(T));
  std::memcpy(memory.data() + at, &pattern, memory.size() - at);
}

}  // namespace

bool reduction_supported(DType dtype, RedOp redop) {
  switch (redop) {
    case RedOp::none:
      return false;
    case RedOp::avg:
      return dtype != DType::boolean;
    case RedOp::premul_sum:
      return dtype_is_float(dtype);
    default:
      return true;
  }
}

Result<void> reduce_cpu(const ReduceJob& job) { return cpu::reduce_at(cpu::vector_level_max(), job); }

Result<void> cpu::reduce_at(VectorLevel level, const ReduceJob& job) {
  const BlockFunction function =
      reduction_supported(job.dtype, job.redop) ? block_function(level, job.dtype, job.redop) : nullptr;
  if (function == nullptr) {
    return fail(
        Code::unsupported, "device.reduce",
        "there is no " + std::string(to_string(job.redop)) + " of " + std::string(to_string(job.dtype)));
  }
  SR_CHECK(!job.sources.empty());
  SR_CHECK(job.divisor == 1 || job.redop == RedOp::avg || job.redop == RedOp::sum, "divisor", job.divisor);
  SR_CHECK(job.divisor >= 1 && job.divisor <= kRanksMax, "divisor", job.divisor);
  SR_CHECK(job.scale == 1.0 || job.redop == RedOp::premul_sum, "scale", job.scale);
  const std::uint32_t element_bytes = dtype_bytes(job.dtype);
  Block block{job.sources, job.dst, 0, 0, job.divisor, job.scale, &cpu::half_blocks(level)};
  for (std::uint64_t first = 0; first < job.elements; first += kBlock) {
    block.offset = first * element_bytes;
    block.elements = std::min(kBlock, job.elements - first);
    function(block);
  }
  return {};
}

void poison(DType dtype, std::span<std::byte> memory) noexcept {
  if (memory.empty()) return;  // whose pointer may be null
  switch (dtype) {  // [protocol A.5] NaN for floats, all ones otherwise
    case DType::f32:
      return fill_pattern(memory, std::uint32_t{0x7FC00000});
    case DType::f64:
      return fill_pattern(memory, std::uint64_t{0x7FF8000000000000});
    case DType::f16:
      return fill_pattern(memory, std::uint16_t{0x7E00});
    case DType::bf16:
      return fill_pattern(memory, std::uint16_t{0x7FC0});
    case DType::boolean:
      return fill_pattern(memory, std::uint8_t{1});
    default:
      return fill_pattern(memory, std::uint8_t{0xFF});
  }
}

}  // namespace sealring
