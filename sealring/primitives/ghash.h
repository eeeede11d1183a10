// GHASH's field as pure functions for host and device, and multiplication by a constant as a matrix over
// GF(2) [NIST SP 800-38D §6.3, §6.4].
//
// An Element is a block read as four big-endian words: the most significant bit of words[0] is the
// coefficient of 1.
#pragma once

#include <cstdint>

#include "sealring/base/host_device.h"

namespace sealring::ghash {

struct Element {
  std::uint32_t words[4];
};

SR_HOST_DEVICE inline Element zero() { return Element{{0, 0, 0, 0}}; }
SR_HOST_DEVICE inline Element one() { return Element{{0x80000000u, 0, 0, 0}}; }

SR_HOST_DEVICE inline Element operator^(const Element& a, const Element& b) {
  return Element{
      {a.words[0] ^ b.words[0], a.words[1] ^ b.words[1], a.words[2] ^ b.words[2], a.words[3] ^ b.words[3]}};
}
SR_HOST_DEVICE inline bool operator==(const Element& a, const Element& b) {
  return ((a.words[0] ^ b.words[0]) | (a.words[1] ^ b.words[1]) | (a.words[2] ^ b.words[2]) |
          (a.words[3] ^ b.words[3])) == 0;
}

SR_HOST_DEVICE inline std::uint32_t swapped(std::uint32_t x) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(x, 0, 0x0123);
#else
  return (x >> 24) | ((x >> 8) & 0xFF00u) | ((x << 8) & 0xFF0000u) | (x << 24);
#endif
}
/// From and to a block's little-endian words.
SR_HOST_DEVICE inline Element element_of(const std::uint32_t* words) {
  return Element{{swapped(words[0]), swapped(words[1]), swapped(words[2]), swapped(words[3])}};
}
SR_HOST_DEVICE inline void block_of(const Element& element, std::uint32_t* words) {
  for (int i = 0; i < 4; ++i) words[i] = swapped(element.words[i]);
}

// Carryless product of two words: every fourth bit at a time, so that ordinary products cannot carry into one
// another (a column sums up at most 8 ones, the gap holds 15).
SR_HOST_DEVICE inline std::uint64_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t x[4], y[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = a & (0x11111111u << i);
    y[i] = b & (0x11111111u << i);
  }
  std::uint64_t out = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::uint64_t sum = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) sum ^= static_cast<std::uint64_t>(x[j]) * y[(i - j) & 3];
    out |= sum & (0x1111111111111111ull << i);
  }
  return out;
}

// 64 x 64 bits by Karatsuba's three products; words of the result from the most significant one.
SR_HOST_DEVICE inline void product_64(std::uint32_t a1, std::uint32_t a0, std::uint32_t b1, std::uint32_t b0,
                                      std::uint32_t* out) {
  const std::uint64_t high = product(a1, b1);
  const std::uint64_t low = product(a0, b0);
  const std::uint64_t middle = product(a1 ^ a0, b1 ^ b0) ^ high ^ low;
  out[0] = static_cast<std::uint32_t>(high >> 32);
  out[1] = static_cast<std::uint32_t>(high) ^ static_cast<std::uint32_t>(middle >> 32);
  out[2] = static_cast<std::uint32_t>(low >> 32) ^ static_cast<std::uint32_t>(middle);
  out[3] = static_cast<std::uint32_t>(low);
}

/// [SP 800-38D §6.3] Constant time: no branch, no table.
SR_HOST_DEVICE inline Element multiply(const Element& a, const Element& b) {
  std::uint32_t high[4], low[4], middle[4];
  product_64(a.words[0], a.words[1], b.words[0], b.words[1], high);
  product_64(a.words[2], a.words[3], b.words[2], b.words[3], low);
  product_64(a.words[0] ^ a.words[2], a.words[1] ^ a.words[3], b.words[0] ^ b.words[2],
             b.words[1] ^ b.words[3], middle);
  std::uint32_t p[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    p[i] = high[i];
    p[4 + i] = low[i];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) p[2 + i] ^= middle[i] ^ high[i] ^ low[i];
    // The product of mirrored numbers is mirrored about one bit less.
#pragma unroll
  for (int i = 0; i < 7; ++i) p[i] = (p[i] << 1) | (p[i + 1] >> 31);
  p[7] <<= 1;
  // x^128 = 1 + x + x^2 + x^7: first what the lower half's own reduction sends back into it, then the lower
  // half.
  p[4] ^= (p[7] << 31) ^ (p[7] << 30) ^ (p[7] << 25);
  Element out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t above = i == 0 ? 0u : p[3 + i];
    const std::uint32_t here = p[4 + i];
    out.words[i] = p[i] ^ here ^ ((here >> 1) | (above << 31)) ^ ((here >> 2) | (above << 30)) ^
                   ((here >> 7) | (above << 25));
  }
  return out;
}

/// a x.
SR_HOST_DEVICE inline Element times_x(const Element& a) {
  const std::uint32_t carry = 0u - (a.words[3] & 1u);
  return Element{{(a.words[0] >> 1) ^ (carry & 0xE1000000u), (a.words[1] >> 1) | (a.words[0] << 31),
                  (a.words[2] >> 1) | (a.words[1] << 31), (a.words[3] >> 1) | (a.words[2] << 31)}};
}

/// 1/a by Fermat: a^(2^128 - 2); 0 for 0.
inline Element inverse(const Element& a) {
  Element square = a;
  Element out = one();
  for (int i = 1; i < 128; ++i) {
    square = multiply(square, square);
    out = multiply(out, square);
  }
  return out;
}

/// out = M in over GF(2), where in and out are blocks of little-endian words and bit i is bit i%32 of word
/// i/32: what tensor cores multiply by. rows[o] holds the input bits that output bit o sums up.
struct Matrix {
  std::uint32_t rows[128][4];
};

/// Multiplication by `factor` as a matrix.
inline void matrix_of(const Element& factor, Matrix& out) {
  out = Matrix{};
  Element column = factor;  // factor * x^i
  for (int i = 0; i < 128; ++i) {
    // The coefficient of x^i is bit 7 - i%8 of byte i/8.
    const int input = i / 8 * 8 + 7 - i % 8;
    std::uint32_t words[4];
    block_of(column, words);
    for (int o = 0; o < 128; ++o)
      out.rows[o][input / 32] |= ((words[o / 32] >> (o % 32)) & 1u) << (input % 32);
    column = times_x(column);
  }
}

}  // namespace sealring::ghash
