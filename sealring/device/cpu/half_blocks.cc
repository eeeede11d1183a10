#include "sealring/device/cpu/half_blocks.h"

#include <cstring>

#include "sealring/primitives/reductions.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sealring::cpu {
namespace {

// Inlined into every level, so that the rest of a run is compiled for that level too: a call to code of
// another level with the upper halves of the registers in use costs more than the run.
[[gnu::always_inline]] inline void widen_from(std::uint64_t i, const std::byte* halves, float* out,
                                              std::uint64_t elements) {
  for (; i < elements; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, halves + 2 * i, 2);
    out[i] = reductions::f32_of_f16(half);
  }
}

[[gnu::always_inline]] inline void narrow_from(std::uint64_t i, const float* in, std::byte* halves,
                                               std::uint64_t elements) {
  for (; i < elements; ++i) {
    const std::uint16_t half = reductions::f16_of_f32(in[i]);
    std::memcpy(halves + 2 * i, &half, 2);
  }
}

void widen_portable(const std::byte* halves, float* out, std::uint64_t elements) {
  widen_from(0, halves, out, elements);
}
void narrow_portable(const float* in, std::byte* halves, std::uint64_t elements) {
  narrow_from(0, in, halves, elements);
}

constexpr HalfBlocks kPortable{widen_portable, narrow_portable};

#if defined(__x86_64__)
[[gnu::target("avx2,f16c")]] void widen_f16c(const std::byte* halves, float* out, std::uint64_t elements) {
  std::uint64_t i = 0;
  for (; i + 8 <= elements; i += 8) {
    const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + 2 * i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(eight));
  }
  widen_from(i, halves, out, elements);
}

[[gnu::target("avx2,f16c")]] void narrow_f16c(const float* in, std::byte* halves, std::uint64_t elements) {
  std::uint64_t i = 0;
  for (; i + 8 <= elements; i += 8) {
    const __m128i eight = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + 2 * i), eight);
  }
  narrow_from(i, in, halves, elements);
}

constexpr HalfBlocks kF16c{widen_f16c, narrow_f16c};

constexpr __mmask16 kAll = 0xFFFF;  // the unmasked forms make gcc 12 warn of its own header

// As wide as the loops that read the result: a wide load that meets two narrower stores still in flight has
// to wait.
[[gnu::target("avx512f")]] void widen_avx512(const std::byte* halves, float* out, std::uint64_t elements) {
  std::uint64_t i = 0;
  for (; i + 16 <= elements; i += 16) {
    const __m256i sixteen = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves + 2 * i));
    _mm512_storeu_ps(out + i, _mm512_maskz_cvtph_ps(kAll, sixteen));
  }
  widen_from(i, halves, out, elements);
}

[[gnu::target("avx512f")]] void narrow_avx512(const float* in, std::byte* halves, std::uint64_t elements) {
  std::uint64_t i = 0;
  for (; i + 16 <= elements; i += 16) {
    const __m256i sixteen = _mm512_maskz_cvtps_ph(kAll, _mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(halves + 2 * i), sixteen);
  }
  narrow_from(i, in, halves, elements);
}

constexpr HalfBlocks kAvx512{widen_avx512, narrow_avx512};
#endif

}  // namespace

const HalfBlocks& half_blocks([[maybe_unused]] VectorLevel level) {
#if defined(__x86_64__)
  if (level == VectorLevel::avx512) return kAvx512;
  if (level == VectorLevel::avx2) return kF16c;
#endif
  return kPortable;
}

}  // namespace sealring::cpu
