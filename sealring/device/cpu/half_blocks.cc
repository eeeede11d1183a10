#include "sealring/device/cpu/half_blocks.h"

#include <cstring>

#include "sealring/primitives/reductions.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace sealring::cpu {
namespace {

void widen_portable(const std::byte* halves, float* out, std::uint64_t elements) {
  for (std::uint64_t i = 0; i < elements; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, halves + 2 * i, 2);
    out[i] = reductions::f32_of_f16(half);
  }
}

void narrow_portable(const float* in, std::byte* halves, std::uint64_t elements) {
  for (std::uint64_t i = 0; i < elements; ++i) {
    const std::uint16_t half = reductions::f16_of_f32(in[i]);
    std::memcpy(halves + 2 * i, &half, 2);
  }
}

constexpr HalfBlocks kPortable{widen_portable, narrow_portable};

#if defined(__x86_64__)
[[gnu::target("avx2,f16c")]] void widen_f16c(const std::byte* halves, float* out, std::uint64_t elements) {
  std::uint64_t i = 0;
  for (; i + 8 <= elements; i += 8) {
    const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + 2 * i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(eight));
  }
  widen_portable(halves + 2 * i, out + i, elements - i);
}

[[gnu::target("avx2,f16c")]] void narrow_f16c(const float* in, std::byte* halves, std::uint64_t elements) {
  std::uint64_t i = 0;
  for (; i + 8 <= elements; i += 8) {
    const __m128i eight = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + 2 * i), eight);
  }
  narrow_portable(in + i, halves + 2 * i, elements - i);
}

constexpr HalfBlocks kF16c{widen_f16c, narrow_f16c};

// __builtin_cpu_supports of clang 14 does not know f16c; that of avx2 also says that the system saves the
// registers.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0 &&
         __builtin_cpu_supports("avx2");
}
#endif

}  // namespace

const HalfBlocks& half_blocks_portable() { return kPortable; }

const HalfBlocks& half_blocks() {
#if defined(__x86_64__)
  static const bool native = has_f16c();
  if (native) return kF16c;
#endif
  return kPortable;
}

}  // namespace sealring::cpu
