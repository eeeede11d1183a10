// Factors that a GPU's compiler does not know.
//
// A product by a known power of two becomes shifts, which all go to the same pipe as logic does.
// Multiplication has a pipe of its own, which the ciphers leave half idle: a product by an opaque power stays
// there.
#pragma once

#include <cstdint>

#include "sealring/base/host_device.h"

namespace sealring::opaque {

#if defined(__CUDACC__)
// Constant memory may be written by the host, so the compiler cannot rely on what it holds.
[[maybe_unused]] static __constant__ std::uint32_t powers[] = {1u, 1u << 6, 1u << 7, 1u << 12, 1u << 18};
#endif

/// 2^kBits.
template <int kBits>
SR_HOST_DEVICE inline std::uint32_t power_of_two() {
  static_assert(kBits == 0 || kBits == 6 || kBits == 7 || kBits == 12 || kBits == 18);
#if defined(__CUDA_ARCH__)
  return powers[kBits == 0 ? 0 : kBits == 6 ? 1 : kBits == 7 ? 2 : kBits == 12 ? 3 : 4];
#else
  return 1u << kBits;
#endif
}

/// sum + x 2^kBits. (The compiler's own 64-bit product by a factor from outside of a loop is longer.)
template <int kBits>
SR_HOST_DEVICE inline std::uint64_t shifted_onto(std::uint64_t sum, std::uint32_t x) {
#if defined(__CUDA_ARCH__)
  asm("mad.wide.u32 %0, %1, %2, %0;" : "+l"(sum) : "r"(x), "r"(power_of_two<kBits>()));
  return sum;
#else
  return sum + (static_cast<std::uint64_t>(x) << kBits);
#endif
}

/// x turned left by kBits: a product, and a sum that is a product too.
template <int kBits>
SR_HOST_DEVICE inline std::uint32_t rotated_left(std::uint32_t x) {
#if defined(__CUDA_ARCH__)
  std::uint32_t low, high;
  asm("{ .reg .b64 wide; mul.wide.u32 wide, %2, %3; mov.b64 {%0, %1}, wide; }"
      : "=r"(low), "=r"(high)
      : "r"(x), "r"(power_of_two<kBits>()));
  return low * power_of_two<0>() + high;
#else
  return (x << kBits) | (x >> (32 - kBits));
#endif
}

}  // namespace sealring::opaque
