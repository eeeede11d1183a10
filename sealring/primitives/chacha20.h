// ChaCha20 as pure functions for host and device [RFC 8439 §2.3].
#pragma once

#include <cstdint>

#include "sealring/base/host_device.h"
#include "sealring/primitives/opaque.h"

namespace sealring::chacha20 {

inline constexpr std::uint32_t kBlockBytes = 64;

/// One 64-byte block of keystream, little-endian words.
struct Block {
  std::uint32_t words[16];
};

template <int kBits>
SR_HOST_DEVICE inline std::uint32_t rotate_left(std::uint32_t x) {
#if defined(__CUDA_ARCH__)
  // Byte rotations are one PRMT; the others one funnel shift.
  if constexpr (kBits == 16) return __byte_perm(x, x, 0x1032);
  if constexpr (kBits == 8) return __byte_perm(x, x, 0x2103);
  return __funnelshift_l(x, x, kBits);
#else
  return (x << kBits) | (x >> (32 - kBits));
#endif
}

/// [RFC 8439 §2.1] kProduct: the last rotation by products, two operations of their pipe for one of the
/// logic's.
template <bool kProduct = false>
SR_HOST_DEVICE inline void quarter_round(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c,
                                         std::uint32_t& d) {
  a += b;
  d = rotate_left<16>(d ^ a);
  c += d;
  b = rotate_left<12>(b ^ c);
  a += b;
  d = rotate_left<8>(d ^ a);
  c += d;
  b = kProduct ? opaque::rotated_left<7>(b ^ c) : rotate_left<7>(b ^ c);
}

/// Word i of the block of `counter` before the rounds, under 8 words of key and 3 of nonce, all little-endian
/// [RFC 8439 §2.3].
SR_HOST_DEVICE inline std::uint32_t first_word(int i, const std::uint32_t* key, const std::uint32_t* nonce,
                                               std::uint32_t counter) {
  constexpr std::uint32_t kConstants[4] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u};
  return i < 4 ? kConstants[i] : i < 12 ? key[i - 4] : i == 12 ? counter : nonce[i - 13];
}

SR_HOST_DEVICE inline Block begin(const std::uint32_t* key, const std::uint32_t* nonce,
                                  std::uint32_t counter) {
  Block out;
#pragma unroll
  for (int i = 0; i < 16; ++i) out.words[i] = first_word(i, key, nonce, counter);
  return out;
}

/// `kUnroll` of the double rounds stand in the code one after the other: fewer fit the instruction cache
/// better. `kProducts` of four quarter rounds side by side rotate by a product.
template <int kUnroll, int kProducts>
SR_HOST_DEVICE inline void double_rounds(Block& block, int count) {
  std::uint32_t* const x = block.words;
#pragma unroll kUnroll
  for (int round = 0; round < count; ++round) {
    quarter_round<(0 < kProducts)>(x[0], x[4], x[8], x[12]);
    quarter_round<(1 < kProducts)>(x[1], x[5], x[9], x[13]);
    quarter_round<(2 < kProducts)>(x[2], x[6], x[10], x[14]);
    quarter_round<(3 < kProducts)>(x[3], x[7], x[11], x[15]);
    quarter_round<(0 < kProducts)>(x[0], x[5], x[10], x[15]);
    quarter_round<(1 < kProducts)>(x[1], x[6], x[11], x[12]);
    quarter_round<(2 < kProducts)>(x[2], x[7], x[8], x[13]);
    quarter_round<(3 < kProducts)>(x[3], x[4], x[9], x[14]);
  }
}

/// Behind the ten double rounds. kReread: the key is read again, not kept in eight registers meanwhile.
template <bool kReread>
SR_HOST_DEVICE inline void end(Block& block, const std::uint32_t* key, const std::uint32_t* nonce,
                               std::uint32_t counter) {
#if defined(__CUDA_ARCH__)
  if constexpr (kReread) asm volatile("" ::: "memory");
#endif
#pragma unroll
  for (int i = 0; i < 16; ++i) block.words[i] += first_word(i, key, nonce, counter);
}

template <int kUnroll = 2, int kProducts = 0>
SR_HOST_DEVICE inline Block keystream(const std::uint32_t* key, const std::uint32_t* nonce,
                                      std::uint32_t counter) {
  Block out = begin(key, nonce, counter);
  double_rounds<kUnroll, kProducts>(out, 10);
  end<false>(out, key, nonce, counter);
  return out;
}

}  // namespace sealring::chacha20
