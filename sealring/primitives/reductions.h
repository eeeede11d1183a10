// Element arithmetic of reductions: pure functions for host and device, bit-equal everywhere but in NaN
// payloads.
//
// 16-bit floats are widened to fp32, reduced there and rounded once, to nearest, ties to even. Integer sums
// and products wrap (two's complement). min and max give NaN when either operand is NaN, and of equal
// operands
// (-0 and +0) the later one. bool: sum, max = or; product, min = and. Nothing here multiplies and adds in one
// function, so that no compiler contracts the two into an FMA.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "sealring/base/host_device.h"
#include "sealring/base/types.h"

namespace sealring::reductions {

/// binary16 to binary32, exact; a NaN keeps its payload and becomes quiet. [IEEE 754-2008 §3.6]
SR_HOST_DEVICE constexpr float f32_of_f16(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7FFFu;
  const std::uint32_t sign = (half & 0x8000u) << 16;
  // A subnormal is an integer multiple of 2^-24. Built from an integer, because a subnormal fp32 on the way
  // would be lost where the processor flushes them to zero.
  const std::uint32_t small =
      std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<int>(magnitude)) * 0x1p-24f);
  const std::uint32_t normal = (magnitude << 13) + (112u << 23);
  const std::uint32_t special = (magnitude << 13) | 0x7F800000u | (magnitude > 0x7C00u ? 0x00400000u : 0u);
  const std::uint32_t bits = magnitude < 0x0400u ? small : magnitude < 0x7C00u ? normal : special;
  return std::bit_cast<float>(bits | sign);
}

/// binary32 to binary16, to nearest even; overflow gives infinity, NaN a quiet NaN with the payload's upper
/// bits.
SR_HOST_DEVICE constexpr std::uint16_t f16_of_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  // Rounds at bit 13; a carry runs into the exponent, up to infinity, as it should.
  const std::uint32_t normal = (magnitude - (112u << 23) + 0x0FFFu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14 the last place is 2^-24, which is that of 0.5f: the addition rounds.
  const std::uint32_t small =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  const std::uint32_t nan = 0x7E00u | ((magnitude >> 13) & 0x03FFu);
  const std::uint32_t half = magnitude > 0x7F800000u    ? nan
                             : magnitude >= 0x47800000u ? 0x7C00u  // 65536 and above
                             : magnitude >= 0x38800000u ? normal   // 2^-14 and above
                                                        : small;
  return static_cast<std::uint16_t>(half | sign);
}

SR_HOST_DEVICE constexpr float f32_of_bf16(std::uint16_t brain) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(brain) << 16);
}

/// binary32 to bfloat16, to nearest even; NaN becomes quiet.
SR_HOST_DEVICE constexpr std::uint16_t bf16_of_f32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x0040u;
  return static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}

/// Storage: what lies in memory. Value: what is computed with.
template <DType D>
struct Element {
  using Storage = std::conditional_t<
      D == DType::f32, float,
      std::conditional_t<
          D == DType::f64, double,
          std::conditional_t<
              D == DType::f16 || D == DType::bf16, std::uint16_t,
              std::conditional_t<
                  D == DType::i8, std::int8_t,
                  std::conditional_t<D == DType::i16, std::int16_t,
                                     std::conditional_t<D == DType::i32, std::int32_t,
                                                        std::conditional_t<D == DType::i64, std::int64_t,
                                                                           std::uint8_t>>>>>>>;
  static constexpr bool kHalf = D == DType::f16 || D == DType::bf16;
  using Value = std::conditional_t<kHalf, float, Storage>;
  static constexpr bool kFloat = std::is_floating_point_v<Value>;

  SR_HOST_DEVICE static constexpr Value widen(Storage stored) {
    if constexpr (D == DType::f16)
      return f32_of_f16(stored);
    else if constexpr (D == DType::bf16)
      return f32_of_bf16(stored);
    else if constexpr (D == DType::boolean)
      return stored != 0 ? 1 : 0;
    else
      return stored;
  }
  SR_HOST_DEVICE static constexpr Storage narrow(Value value) {
    if constexpr (D == DType::f16)
      return f16_of_f32(value);
    else if constexpr (D == DType::bf16)
      return bf16_of_f32(value);
    else
      return value;
  }
};

/// a (op) b, the accumulated value first. avg and premul_sum are sums here: see complete() and scaled().
template <DType D, RedOp R>
SR_HOST_DEVICE constexpr typename Element<D>::Value combine(typename Element<D>::Value a,
                                                            typename Element<D>::Value b) {
  using Value = typename Element<D>::Value;
  if constexpr (R == RedOp::min) {
    if constexpr (Element<D>::kFloat)
      return a < b || a != a ? a : b;
    else
      return a < b ? a : b;
  } else if constexpr (R == RedOp::max) {
    if constexpr (Element<D>::kFloat)
      return a > b || a != a ? a : b;
    else
      return a > b ? a : b;
  } else if constexpr (D == DType::boolean) {
    return static_cast<Value>(R == RedOp::product ? a & b : a | b);
  } else if constexpr (Element<D>::kFloat) {
    if constexpr (R == RedOp::product)
      return a * b;
    else
      return a + b;
  } else {
    // Unsigned and at least 32 bits wide: signed overflow, and int promotion of 16-bit factors, would be
    // undefined.
    using Wide = std::conditional_t<sizeof(Value) == 8, std::uint64_t, std::uint32_t>;
    const Wide x = static_cast<Wide>(a);
    const Wide y = static_cast<Wide>(b);
    return static_cast<Value>(R == RedOp::product ? x * y : x + y);
  }
}

/// What avg does to the complete sum: floats are divided (one rounding), integers truncate toward zero.
template <DType D>
SR_HOST_DEVICE constexpr typename Element<D>::Value complete(typename Element<D>::Value sum,
                                                             std::uint32_t divisor) {
  using Value = typename Element<D>::Value;
  if constexpr (Element<D>::kFloat)
    return sum / static_cast<Value>(divisor);
  else
    return static_cast<Value>(static_cast<std::int64_t>(sum) / static_cast<std::int64_t>(divisor));
}

/// What premul_sum does to an untouched input (floats only).
template <DType D>
SR_HOST_DEVICE constexpr typename Element<D>::Value scaled(typename Element<D>::Value value, double factor) {
  static_assert(Element<D>::kFloat);
  return value * static_cast<typename Element<D>::Value>(factor);
}

}  // namespace sealring::reductions
