// Poly1305 as pure functions for host and device, made for evaluation in parallel [RFC 8439 §2.5].
//
// The tag of blocks b_1..b_N is (b_1 r^N + ... + b_N r mod 2^130-5) + s mod 2^128. A sum of products with
// powers of r may be cut among threads in any way; only the exponents matter. Numbers are five limbs of 26
// bits; products are gathered in 64-bit columns and carried once for several of them.
#pragma once

#include <cstdint>

#include "sealring/base/host_device.h"

namespace sealring::poly1305 {

inline constexpr std::uint32_t kLimbMask = (1u << 26) - 1;

/// A number mod 2^130-5, not fully reduced: limbs below 2^27.
struct Number {
  std::uint32_t limb[5];
};

/// A multiplier with 5*limb[1..4] at hand, for the wrap-around of 2^130 = 5.
struct alignas(16) Multiplier {
  std::uint32_t limb[5];
  std::uint32_t five[5];  ///< five[0] is unused
};

/// Columns of products before carrying. Up to 4 products of Numbers by Multipliers fit: 20 terms below 2^27 *
/// 5*2^26 are below 2^61.
struct Columns {
  std::uint64_t column[5];
};

SR_HOST_DEVICE inline Multiplier multiplier_of(const Number& a) {
  Multiplier m;
#pragma unroll
  for (int i = 0; i < 5; ++i) {
    m.limb[i] = a.limb[i];
    m.five[i] = a.limb[i] * 5u;
  }
  return m;
}

/// 16 bytes as little-endian words, with 2^128 added for a block [RFC 8439 §2.5.1]; `high` = 0 gives the
/// plain number.
SR_HOST_DEVICE inline Number number_of(std::uint32_t w0, std::uint32_t w1, std::uint32_t w2, std::uint32_t w3,
                                       std::uint32_t high = 1u) {
  Number out;
  out.limb[0] = w0 & kLimbMask;
  out.limb[1] = ((w0 >> 26) | (w1 << 6)) & kLimbMask;
  out.limb[2] = ((w1 >> 20) | (w2 << 12)) & kLimbMask;
  out.limb[3] = ((w2 >> 14) | (w3 << 18)) & kLimbMask;
  out.limb[4] = (w3 >> 8) | (high << 24);
  return out;
}

/// r, clamped [RFC 8439 §2.5].
SR_HOST_DEVICE inline Number clamped_r(std::uint32_t w0, std::uint32_t w1, std::uint32_t w2,
                                       std::uint32_t w3) {
  return number_of(w0 & 0x0fffffffu, w1 & 0x0ffffffcu, w2 & 0x0ffffffcu, w3 & 0x0ffffffcu, 0u);
}

SR_HOST_DEVICE inline void add_product(Columns& sum, const Number& a, const Multiplier& b) {
  const auto wide = [](std::uint32_t x, std::uint32_t y) { return static_cast<std::uint64_t>(x) * y; };
  sum.column[0] += wide(a.limb[0], b.limb[0]) + wide(a.limb[1], b.five[4]) + wide(a.limb[2], b.five[3]) +
                   wide(a.limb[3], b.five[2]) + wide(a.limb[4], b.five[1]);
  sum.column[1] += wide(a.limb[0], b.limb[1]) + wide(a.limb[1], b.limb[0]) + wide(a.limb[2], b.five[4]) +
                   wide(a.limb[3], b.five[3]) + wide(a.limb[4], b.five[2]);
  sum.column[2] += wide(a.limb[0], b.limb[2]) + wide(a.limb[1], b.limb[1]) + wide(a.limb[2], b.limb[0]) +
                   wide(a.limb[3], b.five[4]) + wide(a.limb[4], b.five[3]);
  sum.column[3] += wide(a.limb[0], b.limb[3]) + wide(a.limb[1], b.limb[2]) + wide(a.limb[2], b.limb[1]) +
                   wide(a.limb[3], b.limb[0]) + wide(a.limb[4], b.five[4]);
  sum.column[4] += wide(a.limb[0], b.limb[4]) + wide(a.limb[1], b.limb[3]) + wide(a.limb[2], b.limb[2]) +
                   wide(a.limb[3], b.limb[1]) + wide(a.limb[4], b.limb[0]);
}

SR_HOST_DEVICE inline void add_number(Columns& sum, const Number& a) {
#pragma unroll
  for (int i = 0; i < 5; ++i) sum.column[i] += a.limb[i];
}

/// One carry: limbs of the result are below 2^26 but limb[1], below 2^26 + 2^12 or so.
SR_HOST_DEVICE inline Number carried(Columns sum) {
  Number out;
  std::uint64_t carry = 0;
#pragma unroll
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t value = sum.column[i] + carry;
    out.limb[i] = static_cast<std::uint32_t>(value) & kLimbMask;
    carry = value >> 26;
  }
  // 2^130 = 5: what leaves the top comes back at the bottom; it may have 35 bits.
  const std::uint64_t low = out.limb[0] + carry * 5u;
  out.limb[0] = static_cast<std::uint32_t>(low) & kLimbMask;
  const std::uint64_t next = out.limb[1] + (low >> 26);
  out.limb[1] = static_cast<std::uint32_t>(next) & kLimbMask;
  out.limb[2] += static_cast<std::uint32_t>(next >> 26);
  return out;
}

/// The same of any columns, by more operations: no limb waits for a long chain. Limbs of the result are at
/// most 2^26 + 9.
SR_HOST_DEVICE inline Number carried_soon(const Columns& sum) {
  std::uint32_t low[5], middle[5], high[5];
#pragma unroll
  for (int i = 0; i < 5; ++i) {
    low[i] = static_cast<std::uint32_t>(sum.column[i]) & kLimbMask;
    middle[i] = static_cast<std::uint32_t>(sum.column[i] >> 26) & kLimbMask;
    high[i] = static_cast<std::uint32_t>(sum.column[i] >> 52);
  }
  // 2^130 = 5: what leaves the top comes back at the bottom.
  std::uint32_t limb[5];
  limb[0] = low[0] + (middle[4] + high[3]) * 5u;
  limb[1] = low[1] + middle[0] + high[4] * 5u;
#pragma unroll
  for (int i = 2; i < 5; ++i) limb[i] = low[i] + middle[i - 1] + high[i - 2];
  Number out;
  out.limb[0] = (limb[0] & kLimbMask) + (limb[4] >> 26) * 5u;
#pragma unroll
  for (int i = 1; i < 5; ++i) out.limb[i] = (limb[i] & kLimbMask) + (limb[i - 1] >> 26);
  return out;
}

SR_HOST_DEVICE inline Number multiply(const Number& a, const Number& b) {
  Columns sum{};
  add_product(sum, a, multiplier_of(b));
  return carried(sum);
}

SR_HOST_DEVICE inline Number one() { return Number{{1u, 0u, 0u, 0u, 0u}}; }

/// base^exponent by squaring; time depends on the exponent, which is public.
SR_HOST_DEVICE inline Number power(Number base, std::uint32_t exponent) {
  Number out = one();
  while (exponent != 0) {
    if (exponent & 1u) out = multiply(out, base);
    exponent >>= 1;
    if (exponent != 0) base = multiply(base, base);
  }
  return out;
}

/// (h mod 2^130-5) + s mod 2^128 as little-endian words [RFC 8439 §2.5.1]. Constant time.
SR_HOST_DEVICE inline void finish(const Number& h_in, const std::uint32_t s[4], std::uint32_t tag[4]) {
  std::uint32_t h[5];
  for (int i = 0; i < 5; ++i) h[i] = h_in.limb[i];
  for (int pass = 0; pass < 2; ++pass) {  // all limbs below 2^26
    std::uint32_t carry = 0;
    for (int i = 0; i < 5; ++i) {
      h[i] += carry;
      carry = h[i] >> 26;
      h[i] &= kLimbMask;
    }
    h[0] += carry * 5u;
  }
  h[1] += h[0] >> 26;
  h[0] &= kLimbMask;
  std::uint32_t g[5], carry = 5u;  // h + 5 - 2^130: taken where it does not borrow
  for (int i = 0; i < 5; ++i) {
    g[i] = h[i] + carry;
    carry = g[i] >> 26;
    g[i] &= kLimbMask;
  }
  const std::uint32_t take = 0u - carry;  // all ones when h >= 2^130-5
  for (int i = 0; i < 5; ++i) h[i] = (h[i] & ~take) | (g[i] & take);
  const std::uint32_t words[4] = {h[0] | (h[1] << 26), (h[1] >> 6) | (h[2] << 20),
                                  (h[2] >> 12) | (h[3] << 14), (h[3] >> 18) | (h[4] << 8)};
  std::uint64_t sum = 0;
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<std::uint64_t>(words[i]) + s[i];
    tag[i] = static_cast<std::uint32_t>(sum);
    sum >>= 32;
  }
}

}  // namespace sealring::poly1305
