// Claim: the field, its inverse and the matrices of multiplication are GHASH's.
// How: the product by its definition bit for bit, a tag of the GCM specification, and every matrix against
// the product.
#include "sealring/primitives/ghash.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

namespace sealring::ghash {
namespace {

// [SP 800-38D §6.3] Algorithm 1.
Element by_definition(const Element& x, const Element& y) {
  Element z = zero();
  Element v = y;
  for (int i = 0; i < 128; ++i) {
    if (((x.words[i / 32] >> (31 - i % 32)) & 1u) != 0) z = z ^ v;
    v = times_x(v);
  }
  return z;
}

Element random_element(std::mt19937& random) {
  return Element{{static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random()),
                  static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random())}};
}

TEST(Ghash, ProductIsTheDefinitions) {
  std::mt19937 random(1);
  for (int n = 0; n < 2000; ++n) {
    const Element a = random_element(random);
    const Element b = n % 4 == 0 ? Element{{n % 8 == 0 ? ~0u : 0u, ~0u, ~0u, ~0u}} : random_element(random);
    ASSERT_TRUE(multiply(a, b) == by_definition(a, b));
    ASSERT_TRUE(multiply(a, one()) == a);
  }
}

TEST(Ghash, GcmSpecificationTestCase2) {  // H, one block of ciphertext, the lengths; GHASH as McGrew and
                                          // Viega print it
  const Element h{{0x66e94bd4u, 0xef8a2c3bu, 0x884cfa59u, 0xca342b2eu}};
  const Element c{{0x0388daceu, 0x60b6a392u, 0xf328c2b9u, 0x71b2fe78u}};
  const Element lengths{{0, 0, 0, 0x80u}};
  EXPECT_TRUE(multiply(multiply(c, h) ^ lengths, h) ==
              (Element{{0xf38cbb1au, 0xd69223dcu, 0xc3457ae5u, 0xb6b0f885u}}));
}

TEST(Ghash, Inverse) {
  std::mt19937 random(2);
  for (int n = 0; n < 20; ++n) {
    const Element a = random_element(random);
    EXPECT_TRUE(multiply(a, inverse(a)) == one());
  }
  EXPECT_TRUE(inverse(zero()) == zero());
}

TEST(Ghash, MatrixTimesVectorIsTheProduct) {
  std::mt19937 random(3);
  for (int n = 0; n < 50; ++n) {
    const Element factor = random_element(random);
    const Element in = random_element(random);
    Matrix matrix;
    matrix_of(factor, matrix);
    std::uint32_t words[4], out[4] = {}, expected[4];
    block_of(in, words);
    for (int o = 0; o < 128; ++o) {
      int ones = 0;
      for (int w = 0; w < 4; ++w) ones += std::popcount(matrix.rows[o][w] & words[w]);
      out[o / 32] |= static_cast<std::uint32_t>(ones & 1) << (o % 32);
    }
    block_of(multiply(factor, in), expected);
    for (int w = 0; w < 4; ++w) ASSERT_EQ(out[w], expected[w]);
  }
}

}  // namespace
}  // namespace sealring::ghash
