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

// The tag of a number with s = 0: its value, fully reduced.
std::array<std::uint32_t, 4> value_of(const Number& number) {
  const std::uint32_t s[4] = {};
  std::array<std::uint32_t, 4> out;
  finish(number, s, out.data());
  return out;
}

TEST(Poly1305, WordsAndUncarriedColumnsEqualLimbsAndCarries) {
  std::mt19937 random(2);
  const auto any = [&](std::uint32_t most) {
    return random() % 3 == 0 ? most : static_cast<std::uint32_t>(random() % (std::uint64_t{most} + 1));
  };
  for (int n = 0; n < 2000; ++n) {
    Number r[4];  // as large as a carry leaves them
    for (Number& number : r) {
      for (std::uint32_t& limb : number.limb) limb = any((1u << 26) + 9);
    }
    WordMultiplier words[3];
    for (int c = 0; c < 3; ++c) {
      words[c].number[0] = r[c];
      for (int i = 1; i < 4; ++i) words[c].number[i] = word_higher(words[c].number[i - 1]);
    }
    const ColumnMultiplier stride{multiplier_of(r[3]), multiplier_of(word_higher(r[3]))};
    Columns sum;
    for (std::uint64_t& column : sum.column)
      column = (std::uint64_t{any(0xFFFFFFFFu)} << 32) | any(0xFFFFFFFFu);
    Columns fast{};
    Columns slow{};
    add_columns(fast, sum, stride);
    add_product(slow, carried(sum), multiplier_of(r[3]));
    for (int c = 0; c < 4; ++c) {
      std::uint32_t w[4];
      for (std::uint32_t& word : w) word = any(0xFFFFFFFFu);
      if (c < 3)
        add_words(fast, w, words[c]);
      else
        add_words(fast, w);
      add_product(slow, number_of(w[0], w[1], w[2], w[3], 0), multiplier_of(c < 3 ? r[c] : one()));
    }
    ASSERT_EQ(value_of(carried(fast)), value_of(carried(slow))) << n;
  }
}

TEST(Poly1305, ACarryTakesAnyColumns) {
  Columns full;
  for (std::uint64_t& column : full.column) column = ~0ull;
  const Number out = carried(full);
  for (const std::uint32_t limb : out.limb) EXPECT_LE(limb, (1u << 26) + 9);
  Number by_steps{};  // (2^64 - 1) (1 + 2^26 + .. + 2^104), by Horner's rule
  for (int i = 0; i < 5; ++i) {
    Columns next{};
    add_product(next, by_steps, multiplier_of(Number{{0, 1, 0, 0, 0}}));
    add_number(next, Number{{kLimbMask, kLimbMask, (1u << 12) - 1, 0, 0}});
    by_steps = carried(next);
  }
  EXPECT_EQ(value_of(out), value_of(by_steps));
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
