// Combines 16 bytes of accepted plaintext with 16 bytes of the local tensor: the arithmetic of
// primitives/reductions.h.
//
// The three sums of training have a kernel each; everything else shares one that switches at run time.
#pragma once

#include <bit>
#include <cstdint>

#include "sealring/device/cuda/block.h"
#include "sealring/device/cuda/segment_job.h"
#include "sealring/primitives/reductions.h"

namespace sealring::cuda {

enum class CombineKind : int { replace, sum_f32, sum_bf16, sum_f16, any };

/// Which kernel serves an op.
constexpr CombineKind combine_kind(RedOp redop, DType dtype, std::uint32_t divisor) {
  if (redop == RedOp::none) return CombineKind::replace;
  const bool sum = (redop == RedOp::sum || redop == RedOp::avg || redop == RedOp::premul_sum) && divisor == 1;
  if (sum && dtype == DType::f32) return CombineKind::sum_f32;
  if (sum && dtype == DType::bf16) return CombineKind::sum_bf16;
  if (sum && dtype == DType::f16) return CombineKind::sum_f16;
  return CombineKind::any;
}

namespace combine_internal {

/// The e-th element of a chunk, and back.
template <class Storage>
SR_HOST_DEVICE inline Storage element_of(const Chunk& chunk, int e) {
  if constexpr (sizeof(Storage) == 8) {
    return std::bit_cast<Storage>(chunk.words[2 * e] |
                                  (static_cast<std::uint64_t>(chunk.words[2 * e + 1]) << 32));
  } else if constexpr (sizeof(Storage) == 4) {
    return std::bit_cast<Storage>(chunk.words[e]);
  } else {
    constexpr int kPerWord = 4 / sizeof(Storage);
    return static_cast<Storage>(chunk.words[e / kPerWord] >> (8 * sizeof(Storage) * (e % kPerWord)));
  }
}
template <class Storage>
SR_HOST_DEVICE inline void put_element(Chunk& chunk, int e, Storage value) {
  if constexpr (sizeof(Storage) == 8) {
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
    chunk.words[2 * e] = static_cast<std::uint32_t>(bits);
    chunk.words[2 * e + 1] = static_cast<std::uint32_t>(bits >> 32);
  } else if constexpr (sizeof(Storage) == 4) {
    chunk.words[e] = std::bit_cast<std::uint32_t>(value);
  } else {
    constexpr int kPerWord = 4 / sizeof(Storage);
    const std::uint32_t bits = static_cast<std::uint32_t>(static_cast<std::make_unsigned_t<Storage>>(value));
    chunk.words[e / kPerWord] |= bits << (8 * sizeof(Storage) * (e % kPerWord));
  }
}

template <DType D, RedOp R>
SR_HOST_DEVICE inline Chunk reduce(const Chunk& a, const Chunk& b, std::uint32_t divisor) {
  using Element = reductions::Element<D>;
  using Storage = typename Element::Storage;
  Chunk out{};
#pragma unroll
  for (int e = 0; e < static_cast<int>(16 / sizeof(Storage)); ++e) {
    auto value = reductions::combine<D, R>(Element::widen(element_of<Storage>(a, e)),
                                           Element::widen(element_of<Storage>(b, e)));
    if (divisor != 1) value = reductions::complete<D>(value, divisor);
    put_element<Storage>(out, e, Element::narrow(value));
  }
  return out;
}

template <DType D>
SR_HOST_DEVICE inline Chunk reduce_by(const CombineOp& op, const Chunk& a, const Chunk& b) {
  switch (op.redop) {
    case RedOp::none:
      return b;
    case RedOp::min:
      return reduce<D, RedOp::min>(a, b, op.divisor);
    case RedOp::max:
      return reduce<D, RedOp::max>(a, b, op.divisor);
    case RedOp::product:
      return reduce<D, RedOp::product>(a, b, op.divisor);
    case RedOp::sum:
    case RedOp::avg:
    case RedOp::premul_sum:
      break;
  }
  return reduce<D, RedOp::sum>(a, b, op.divisor);
}

// Out of line: forty reductions, called from several places of a kernel.
#if defined(__CUDACC__)
__noinline__
#endif
    SR_HOST_DEVICE inline Chunk
    reduce_any(const CombineOp& op, const Chunk& local, const Chunk& received) {
  const bool swapped = op.received_first && op.redop != RedOp::none;
  const Chunk a = swapped ? received : local;
  const Chunk b = swapped ? local : received;
  switch (op.dtype) {
    case DType::f32:
      return reduce_by<DType::f32>(op, a, b);
    case DType::f64:
      return reduce_by<DType::f64>(op, a, b);
    case DType::f16:
      return reduce_by<DType::f16>(op, a, b);
    case DType::bf16:
      return reduce_by<DType::bf16>(op, a, b);
    case DType::i8:
      return reduce_by<DType::i8>(op, a, b);
    case DType::i16:
      return reduce_by<DType::i16>(op, a, b);
    case DType::i32:
      return reduce_by<DType::i32>(op, a, b);
    case DType::i64:
      return reduce_by<DType::i64>(op, a, b);
    case DType::u8:
      return reduce_by<DType::u8>(op, a, b);
    case DType::boolean:
      break;
  }
  return reduce_by<DType::boolean>(op, a, b);
}

#if defined(__CUDA_ARCH__)
// The chip converts two at a time; equal to primitives/reductions.h but in NaN payloads.
__device__ inline std::uint32_t sum_bf16x2(std::uint32_t a, std::uint32_t b) {
  const float low = __uint_as_float(a << 16) + __uint_as_float(b << 16);
  const float high = __uint_as_float(a & 0xFFFF0000u) + __uint_as_float(b & 0xFFFF0000u);
  std::uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
__device__ inline float f32_of_half(std::uint32_t half) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(static_cast<unsigned short>(half)));
  return out;
}
__device__ inline std::uint32_t sum_f16x2(std::uint32_t a, std::uint32_t b) {
  const float low = f32_of_half(a & 0xFFFFu) + f32_of_half(b & 0xFFFFu);
  const float high = f32_of_half(a >> 16) + f32_of_half(b >> 16);
  std::uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
#endif

}  // namespace combine_internal

template <CombineKind K>
SR_HOST_DEVICE inline Chunk combined(const CombineOp& op, const Chunk& local, const Chunk& received) {
  namespace in = combine_internal;
  if constexpr (K == CombineKind::replace) {
    return received;
  } else if constexpr (K == CombineKind::sum_f32) {
    return in::reduce<DType::f32, RedOp::sum>(local, received, 1);
  } else if constexpr (K == CombineKind::any) {
    return in::reduce_any(op, local, received);
  } else {
#if defined(__CUDA_ARCH__)
    Chunk out;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out.words[i] = K == CombineKind::sum_bf16 ? in::sum_bf16x2(local.words[i], received.words[i])
                                                : in::sum_f16x2(local.words[i], received.words[i]);
    }
    return out;
#else
    if constexpr (K == CombineKind::sum_bf16) return in::reduce<DType::bf16, RedOp::sum>(local, received, 1);
    return in::reduce<DType::f16, RedOp::sum>(local, received, 1);
#endif
  }
}

}  // namespace sealring::cuda
