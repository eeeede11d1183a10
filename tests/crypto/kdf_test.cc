// Claim: the hashes, HMAC and HKDF-SHA512 are the standard ones and labels have the protocol's form.
// How: FIPS 180-4 and RFC 4231 answers; HKDF on RFC 5869's inputs against results of another implementation.
#include "sealring/crypto/kdf.h"

#include <gtest/gtest.h>

#include <set>

#include "vector_file.h"

namespace sealring {
namespace {

TEST(Kdf, hashes_of_abc) {
  const ByteView abc = as_bytes("abc");
  EXPECT_EQ(to_hex(sha256({abc})), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha512({abc})),
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
            "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f");
  EXPECT_EQ(to_hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha512({as_bytes("a"), {}, as_bytes("bc")}), sha512({abc}));
}

TEST(Kdf, hmac_of_rfc_4231) {
  const Bytes key1(20, std::byte{0x0b});
  EXPECT_EQ(to_hex(hmac_sha256(key1, {as_bytes("Hi "), as_bytes("There")})),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(to_hex(hmac_sha512(key1, {as_bytes("Hi There")})),
            "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde"
            "daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854");
  EXPECT_EQ(to_hex(hmac_sha256(as_bytes("Jefe"), {as_bytes("what do ya want for nothing?")})),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  // An empty key is the key of zeros, not "the key before".
  EXPECT_EQ(hmac_sha512({}, {as_bytes("x")}), hmac_sha512(Bytes(128), {as_bytes("x")}));
}

TEST(Kdf, hkdf_vectors) {
  const auto cases = test::read_vectors("hkdf_sha512.txt");
  ASSERT_EQ(cases.size(), 4u);
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text("case"));
    const SecretBytes prk = hkdf_extract(c.bytes("salt"), c.bytes("ikm"));  // [RFC 5869 §2.2]
    EXPECT_EQ(to_hex(prk.view()), c.text("prk"));
    const std::size_t bytes = std::stoul(c.text("bytes"));
    const SecretBytes okm = hkdf_expand(prk.view(), {c.bytes("info")}, bytes);  // [RFC 5869 §2.3]
    ASSERT_EQ(okm.size(), bytes);
    if (c.values.contains("okm")) {
      EXPECT_EQ(to_hex(okm.view()), c.text("okm"));
    } else {
      EXPECT_EQ(to_hex(sha512({okm.view()})), c.text("okm_sha512"));
    }
  }
}

TEST(Kdf, info_may_come_in_parts_and_lengths_nest) {
  const SecretBytes prk = hkdf_extract({}, as_bytes("input"));
  const SecretBytes whole = hkdf_expand(prk.view(), {as_bytes("abcd")}, 200);
  EXPECT_TRUE(constant_time_equal(whole.view(),
                                  hkdf_expand(prk.view(), {as_bytes("ab"), as_bytes("cd")}, 200).view()));
  for (std::size_t bytes = 0; bytes <= 200; ++bytes) {
    EXPECT_TRUE(constant_time_equal(whole.view().first(bytes),
                                    hkdf_expand(prk.view(), {as_bytes("abcd")}, bytes).view()));
  }
}

TEST(KdfDeath, too_long_an_output_is_a_programmer_error) {
  const Bytes prk(64);
  EXPECT_DEATH((void)hkdf_expand(prk, {}, 255 * 64 + 1), "SR_CHECK");  // [RFC 5869 §2.3]
}

TEST(Kdf, labels) {
  const Bytes made = label("pair");
  EXPECT_EQ(to_hex(made), to_hex(as_bytes("SEALRING1/pair")) + "00");
}

TEST(Kdf, random_bytes_fills_and_does_not_repeat) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    std::array<std::byte, 32> out{};
    random_bytes(out);
    EXPECT_TRUE(seen.insert(to_hex(out)).second);
    EXPECT_NE(to_hex(ByteView(out).last(8)), "0000000000000000");
  }
  Bytes large(100'000);
  random_bytes(large);
  EXPECT_NE(Bytes(large.end() - 32, large.end()), Bytes(32));
}

}  // namespace
}  // namespace sealring
