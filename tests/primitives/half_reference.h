// 16-bit floats the slow way, for tests: decoding by ldexp, encoding by searching the table of all values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace sealring::test {

/// A format with one sign bit: value of a code by its definition [IEEE 754-2008 §3.4].
struct HalfFormat {
  int exponent_bits;
  int fraction_bits;

  double decode(std::uint16_t code) const {
    const int fraction = code & ((1 << fraction_bits) - 1);
    const int exponent = (code >> fraction_bits) & ((1 << exponent_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double sign = code >> 15 ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1) {
      return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                           : sign * std::numeric_limits<double>::infinity();
    }
    const double significand =
        exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                      : std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
    return sign * significand;
  }

  std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << fraction_bits);
  }

  /// The nearest code, ties to the even one. NaN gives some NaN.
  std::uint16_t encode(double value) const {
    if (std::isnan(value)) return static_cast<std::uint16_t>(infinity() | (1 << (fraction_bits - 1)));
    const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(value);
    // Codes of non-negative numbers rise with their values; the step after the largest finite one counts as
    // if the exponent range went on, and gives infinity.
    std::uint16_t low = 0;
    std::uint16_t high = infinity();
    while (high - low > 1) {
      const auto middle = static_cast<std::uint16_t>((low + high) / 2);
      (decode(middle) <= magnitude ? low : high) = middle;
    }
    const auto before_low = static_cast<std::uint16_t>(low - 1);
    const double above = high == infinity() ? 2 * decode(low) - decode(before_low) : decode(high);
    const double down = magnitude - decode(low);
    const double up = above - magnitude;
    const std::uint16_t code = down < up ? low : up < down ? high : low % 2 == 0 ? low : high;
    return static_cast<std::uint16_t>(code | sign);
  }
};

inline constexpr HalfFormat kBinary16{5, 10};
inline constexpr HalfFormat kBfloat16{8, 7};

}  // namespace sealring::test
