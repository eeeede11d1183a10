// Values whose sum depends on the order of additions and on where they are rounded.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "sealring/base/bytes.h"
#include "sealring/base/types.h"

namespace sealring::testing {

/// Elements of many magnitudes, every fifth a zero of either sign, and one NaN.
inline Bytes rough_values(DType dtype, Rank rank, std::uint64_t elements) {
  std::mt19937_64 random(rank + 1u);
  Bytes out(elements * dtype_bytes(dtype));
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  if (!dtype_is_float(dtype)) return out;
  for (std::uint64_t i = 0; i < elements; ++i) {
    const bool zero = random() % 5 == 0;
    const auto value = static_cast<float>(
        zero ? (random() % 2 == 0 ? 0.0 : -0.0)
             : std::ldexp(static_cast<double>(random() % 4096) - 2048, static_cast<int>(random() % 25) - 12));
    const float put = i == 7 && rank == 1 ? std::numeric_limits<float>::quiet_NaN() : value;
    std::byte* const at = out.data() + i * dtype_bytes(dtype);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &put, 4);
    switch (dtype) {
      case DType::f64: {
        const double wide = put;
        std::memcpy(at, &wide, 8);
        break;
      }
      case DType::f32:
        std::memcpy(at, &bits, 4);
        break;
      default: {  // bf16, or an f16 of the same upper bits: as rough as any
        const auto half = static_cast<std::uint16_t>(bits >> 16);
        std::memcpy(at, &half, 2);
      }
    }
  }
  return out;
}

}  // namespace sealring::testing
