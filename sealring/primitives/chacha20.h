// ChaCha20 as pure functions for host and device [RFC 8439 §2.3].
#pragma once

#include <cstdint>

#include "sealring/base/host_device.h"

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

/// [RFC 8439 §2.1]
SR_HOST_DEVICE inline void quarter_round(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c,
                                         std::uint32_t& d) {
  a += b;
  d = rotate_left<16>(d ^ a);
  c += d;
  b = rotate_left<12>(b ^ c);
  a += b;
  d = rotate_left<8>(d ^ a);
  c += d;
  b = rotate_left<7>(b ^ c);
}

/// `kUnroll` of the ten double rounds stand in the code one after the other: fewer fit the instruction cache
/// better. The block of `counter` under 8 words of key and 3 of nonce, all little-endian [RFC 8439 §2.3].
template <int kUnroll = 2, bool kReread = false>
SR_HOST_DEVICE inline Block keystream(const std::uint32_t* key, const std::uint32_t* nonce,
                                      std::uint32_t counter) {
  const std::uint32_t first[16] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u, key[0], key[1],
                                   key[2],      key[3],      key[4],      key[5],      key[6], key[7],
                                   counter,     nonce[0],    nonce[1],    nonce[2]};
  Block out;
  std::uint32_t* const x = out.words;
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] = first[i];
#pragma unroll kUnroll
  for (int round = 0; round < 10; ++round) {
    quarter_round(x[0], x[4], x[8], x[12]);
    quarter_round(x[1], x[5], x[9], x[13]);
    quarter_round(x[2], x[6], x[10], x[14]);
    quarter_round(x[3], x[7], x[11], x[15]);
    quarter_round(x[0], x[5], x[10], x[15]);
    quarter_round(x[1], x[6], x[11], x[12]);
    quarter_round(x[2], x[7], x[8], x[13]);
    quarter_round(x[3], x[4], x[9], x[14]);
  }
#if defined(__CUDA_ARCH__)
  // kReread: the key is read again below, not kept in eight registers meanwhile.
  if constexpr (kReread) asm volatile("" ::: "memory");
#endif
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] += i >= 4 && i < 12 ? key[i - 4] : first[i];
  return out;
}

}  // namespace sealring::chacha20
