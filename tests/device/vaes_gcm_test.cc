// Claim: the vector AES path gives the standard's bytes, or is absent; it is never something else.
// How: every length 0..600 and lengths around 4 KiB and 256 KiB against OpenSSL, both key sizes; flipped bits
// change
//      the computed tag.
#include "sealring/device/cpu/vaes_gcm.h"

#include <gtest/gtest.h>

#include "sealring/crypto/kdf.h"

namespace sealring {
namespace {

class VaesGcmTest : public ::testing::TestWithParam<Suite> {};

TEST_P(VaesGcmTest, EqualsOpenSsl) {
  Bytes key(suite_key_bytes(GetParam())), aad(80);
  random_bytes(key);
  random_bytes(aad);
  const auto vector_cipher = make_vaes_gcm(GetParam(), key);
  if (vector_cipher == nullptr) GTEST_SKIP() << "this processor or build has no vector AES-GCM";
  const auto oracle = Aead::make(GetParam(), key);
  ASSERT_TRUE(oracle);
  std::vector<std::size_t> lengths;
  for (std::size_t n = 0; n <= 600; ++n) lengths.push_back(n);
  for (const std::size_t n : {4095u, 4096u, 4097u, 262'143u, 262'144u, 262'145u}) lengths.push_back(n);
  for (const std::size_t n : lengths) {
    Nonce nonce{};
    random_bytes(nonce);
    Bytes plain(n), expected(n), sealed(n), opened(n);
    random_bytes(plain);
    const auto expected_tag = oracle->seal(nonce, aad, plain, expected);
    ASSERT_TRUE(expected_tag);
    ASSERT_EQ(vector_cipher->seal(nonce, aad, plain, sealed.data()), *expected_tag) << n;
    ASSERT_EQ(sealed, expected) << n;
    ASSERT_EQ(vector_cipher->open_unverified(nonce, aad, sealed, opened.data()), *expected_tag) << n;
    ASSERT_EQ(opened, plain) << n;
    if (n == 0) continue;
    sealed[n / 2] ^= std::byte{4};
    ASSERT_NE(vector_cipher->open_unverified(nonce, aad, sealed, opened.data()), *expected_tag) << n;
  }
}

TEST(VaesGcm, IsForAesGcmAlone) {
  const Bytes key(32);
  EXPECT_EQ(make_vaes_gcm(Suite::chacha20_poly1305, key), nullptr);
  EXPECT_EQ(make_vaes_gcm(Suite::plain, key), nullptr);
  EXPECT_EQ(make_vaes_gcm(Suite::aes_128_gcm, key), nullptr) << "a key of the wrong size";
}

INSTANTIATE_TEST_SUITE_P(Suites, VaesGcmTest, ::testing::Values(Suite::aes_256_gcm, Suite::aes_128_gcm));

}  // namespace
}  // namespace sealring
