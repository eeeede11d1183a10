// Claim: Poly1305 evaluated with lazy carries is RFC 8439's, also at the edges of its number range.
// How: the RFC's vectors (§2.5.2 and the carry cases of A.3) by Horner's rule, and sums of powers against
// Horner.
#include "sealring/primitives/poly1305.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace sealring::poly1305 {
namespace {

std::vector<std::uint8_t> bytes_of(std::string_view hex) {
  std::vector<std::uint8_t> out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<std::uint8_t>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return out;
}

// Any length: a short last block has its 1 right behind its bytes [RFC 8439 §2.5.1].
std::vector<std::uint8_t> tag_of(const std::vector<std::uint8_t>& key,
                                 const std::vector<std::uint8_t>& message) {
  std::uint32_t k[8];
  std::memcpy(k, key.data(), 32);
  const Number r = clamped_r(k[0], k[1], k[2], k[3]);
  Number h{};
  for (std::size_t at = 0; at < message.size(); at += 16) {
    std::array<std::uint8_t, 20> block{};
    const std::size_t bytes = std::min<std::size_t>(16, message.size() - at);
    std::memcpy(block.data(), message.data() + at, bytes);
    block[bytes] = 1;
    std::uint32_t w[5];
    std::memcpy(w, block.data(), 20);
    Columns columns{};
    add_number(columns, h);
    add_number(columns, number_of(w[0], w[1], w[2], w[3], w[4]));
    h = multiply(carried(columns), r);
  }
  std::uint32_t tag[4];
  finish(h, k + 4, tag);
  std::vector<std::uint8_t> out(16);
  std::memcpy(out.data(), tag, 16);
  return out;
}

TEST(Poly1305, Rfc8439) {
  const std::string text = "Cryptographic Forum Research Group";
  EXPECT_EQ(tag_of(bytes_of("85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b"),
                   std::vector<std::uint8_t>(text.begin(), text.end())),
            bytes_of("a8061dc1305136c6c22b8baf0c0127a9"));
}

TEST(Poly1305, EdgesOfTheNumberRange) {  // [RFC 8439 A.3 #7 to #11]
  const std::string zeros(32, '0');
  const std::string ones(32, 'f');
  EXPECT_EQ(tag_of(bytes_of("02000000000000000000000000000000" + zeros), bytes_of(ones)),
            bytes_of("03000000000000000000000000000000"));
  EXPECT_EQ(tag_of(bytes_of("02000000000000000000000000000000" + ones),
                   bytes_of("02000000000000000000000000000000")),
            bytes_of("03000000000000000000000000000000"));
  EXPECT_EQ(tag_of(bytes_of("01000000000000000000000000000000" + zeros),
                   bytes_of(ones + "f0ffffffffffffffffffffffffffffff" + "11000000000000000000000000000000")),
            bytes_of("05000000000000000000000000000000"));
  EXPECT_EQ(tag_of(bytes_of("01000000000000000000000000000000" + zeros),
                   bytes_of(ones + "fbfefefefefefefefefefefefefefefe" + "01010101010101010101010101010101")),
            bytes_of("00000000000000000000000000000000"));
  EXPECT_EQ(tag_of(bytes_of("02000000000000000000000000000000" + zeros),
                   bytes_of("fdffffffffffffffffffffffffffffff")),
            bytes_of("faffffffffffffffffffffffffffffff"));
}

TEST(Poly1305, FourProductsAndASumBeforeOneCarry) {
  std::mt19937 random(1);
  for (int n = 0; n < 2000; ++n) {
    // Extremes often: all limbs as large as the interface allows.
    const auto limb = [&](std::uint32_t most) {
      return random() % 3 == 0 ? most : static_cast<std::uint32_t>(random() % (most + 1));
    };
    Number a[4], b[4], c;
    for (int i = 0; i < 4; ++i) {
      for (int l = 0; l < 5; ++l) {
        a[i].limb[l] = limb((1u << 27) - 1);
        b[i].limb[l] = limb((1u << 26) + 1);
      }
    }
    for (std::uint32_t& l : c.limb) l = limb((1u << 27) - 1);
    Columns together{};
    Columns apart{};
    for (int i = 0; i < 4; ++i) {
      add_product(together, a[i], multiplier_of(b[i]));
      add_number(apart, multiply(a[i], b[i]));
    }
    add_number(together, c);
    add_number(apart, c);
    const std::uint32_t s[4] = {};
    std::uint32_t x[4], y[4];
    finish(carried(together), s, x);
    finish(carried(apart), s, y);
    ASSERT_EQ(std::memcmp(x, y, 16), 0) << n;
  }
}

TEST(Poly1305, BothCarriesGiveTheSameNumber) {
  std::mt19937_64 random(2);
  for (int n = 0; n < 2000; ++n) {
    Columns columns;
    for (std::uint64_t& column : columns.column)
      column = random() % 3 == 0 ? ~std::uint64_t{0} >> 1 : random() >> (1 + random() % 63);
    const Number soon = carried_soon(columns);
    for (const std::uint32_t limb : soon.limb) ASSERT_LE(limb, (1u << 26) + 9) << n;
    const std::uint32_t s[4] = {};
    std::uint32_t x[4], y[4];
    finish(carried(columns), s, x);
    finish(soon, s, y);
    ASSERT_EQ(std::memcmp(x, y, 16), 0) << n;
  }
}

TEST(Poly1305, PowersAreRepeatedProducts) {
  const Number r = clamped_r(0x12345678, 0x9abcdef0, 0x0fedcba9, 0x87654321);
  Number by_steps = one();
  for (std::uint32_t e = 0; e < 200; ++e) {
    const std::uint32_t s[4] = {};
    std::uint32_t x[4], y[4];
    finish(power(r, e), s, x);
    finish(by_steps, s, y);
    ASSERT_EQ(std::memcmp(x, y, 16), 0) << e;
    by_steps = multiply(by_steps, r);
  }
}

}  // namespace
}  // namespace sealring::poly1305
