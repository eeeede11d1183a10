// Claim: X25519 is RFC 7748's, and no point of low order or of a second encoding gets through.
// How: the RFC's vectors (one step, 1 and 1000 iterations); every known low-order point and its non-canonical
// forms.
#include "sealring/crypto/x25519.h"

#include <gtest/gtest.h>

#include "vector_file.h"

namespace sealring {
namespace {

X25519Public point(const std::string& hex) { return test::array_of<32>(from_hex(hex).value()); }
SecretBytes scalar(const std::string& hex) { return SecretBytes::copy_of(from_hex(hex).value()); }

TEST(X25519, vectors_of_rfc_7748) {
  // [RFC 7748 §5.2] first vector
  const auto shared =
      x25519_derive(scalar("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"),
                    point("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"));
  ASSERT_TRUE(shared);
  EXPECT_EQ(to_hex(shared->view()), "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552");
}

TEST(X25519, iterations_of_rfc_7748) {
  SecretBytes k = scalar("0900000000000000000000000000000000000000000000000000000000000000");
  X25519Public u = point("0900000000000000000000000000000000000000000000000000000000000000");
  for (int i = 1; i <= 1000; ++i) {  // [RFC 7748 §5.2]
    SecretBytes next = x25519_derive(k, u).value();
    std::copy(k.view().begin(), k.view().end(), u.begin());
    k = std::move(next);
    if (i == 1) {
      EXPECT_EQ(to_hex(k.view()), "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079");
    }
  }
  EXPECT_EQ(to_hex(k.view()), "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51");
}

TEST(X25519, both_sides_agree_and_pairs_differ) {
  const X25519KeyPair a = X25519KeyPair::generate(), b = X25519KeyPair::generate();
  EXPECT_NE(a.public_key, b.public_key);
  EXPECT_TRUE(x25519_acceptable(a.public_key));
  EXPECT_TRUE(constant_time_equal(x25519_derive(a.private_key, b.public_key).value().view(),
                                  x25519_derive(b.private_key, a.public_key).value().view()));
  EXPECT_EQ(X25519KeyPair::of(a.private_key.clone()).public_key, a.public_key);
}

TEST(X25519, low_order_points_are_refused) {
  const SecretBytes mine = X25519KeyPair::generate().private_key;
  for (const std::string hex : {
           "0000000000000000000000000000000000000000000000000000000000000000",  // 0
           "0100000000000000000000000000000000000000000000000000000000000000",  // 1
           "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  // p - 1
           "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",  // order 8
           "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",  // order 8
           "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  // p = 0
           "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  // p + 1 = 1
           "0000000000000000000000000000000000000000000000000000000000000080",  // 0, top bit set
           "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b880",  // order 8, top bit set
       }) {
    SCOPED_TRACE(hex);
    const auto shared = x25519_derive(mine, point(hex));  // [RFC 7748 §6.1]
    ASSERT_FALSE(shared);
    EXPECT_EQ(shared.error().code, Code::pair_auth);
    EXPECT_FALSE(x25519_acceptable(point(hex)));
  }
}

TEST(X25519, second_encodings_are_not_acceptable) {
  X25519Public nine = point("0900000000000000000000000000000000000000000000000000000000000000");
  EXPECT_TRUE(x25519_acceptable(nine));
  nine[31] |= std::byte{0x80};
  EXPECT_FALSE(x25519_acceptable(nine));
  EXPECT_FALSE(
      x25519_acceptable(point("f6ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f")));  // p + 9
  // p - 2 is the one encoding of its value: the bound is sharp.
  EXPECT_TRUE(x25519_acceptable(point("ebffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f")));
}

}  // namespace
}  // namespace sealring
