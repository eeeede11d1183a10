// Claim: seal and open are AES-GCM and ChaCha20-Poly1305 as published; a changed bit opens nothing and leaves
// zeros. How: vectors of the GCM paper and RFC 8439 in place and apart; every bit of tag, nonce, aad,
// ciphertext flipped.
#include "sealring/crypto/aead.h"

#include <gtest/gtest.h>
#include <openssl/err.h>

#include "sealring/crypto/sign.h"
#include "sealring/crypto/x25519.h"
#include "vector_file.h"

namespace sealring {
namespace {

using test::array_of;
using test::read_vectors;

constexpr std::array kSealingSuites{Suite::aes_256_gcm, Suite::aes_128_gcm, Suite::chacha20_poly1305};

Bytes pattern(std::size_t bytes, unsigned seed) {
  Bytes out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7 + seed);
  return out;
}

TEST(Aead, vectors) {
  const auto cases = read_vectors("aead.txt");
  ASSERT_EQ(cases.size(), 9u);
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text("case"));
    const Suite suite = parse_suite(c.text("suite")).value();
    const auto aead = Aead::make(suite, c.bytes("key"));
    ASSERT_TRUE(aead);
    const auto nonce = array_of<12>(c.bytes("nonce"));
    const Bytes aad = c.bytes("aad"), plain = c.bytes("plain"), cipher = c.bytes("cipher");
    Bytes out(plain.size());
    const auto tag = aead->seal(nonce, aad, plain, out);
    ASSERT_TRUE(tag);
    EXPECT_EQ(to_hex(out), c.text("cipher"));
    EXPECT_EQ(to_hex(*tag), c.text("tag"));
    ASSERT_TRUE(aead->open(nonce, aad, cipher, *tag, out));
    EXPECT_EQ(out, plain);
    Bytes in_place = plain;  // out == in
    EXPECT_EQ(aead->seal(nonce, aad, in_place, in_place).value(), *tag);
    EXPECT_EQ(in_place, cipher);
    ASSERT_TRUE(aead->open(nonce, aad, in_place, *tag, in_place));
    EXPECT_EQ(in_place, plain);
  }
}

TEST(Aead, every_flipped_bit_is_refused_and_leaves_zeros) {
  const Bytes aad = pattern(5, 1), plain = pattern(19, 2);
  for (const Suite suite : kSealingSuites) {
    SCOPED_TRACE(to_string(suite));
    const auto aead = Aead::make(suite, pattern(suite_key_bytes(suite), 3)).value();
    const Nonce nonce = array_of<12>(pattern(12, 4));
    Bytes cipher(plain.size());
    const Tag tag = aead.seal(nonce, aad, plain, cipher).value();
    const auto refused = [&](const Nonce& n, const Bytes& a, const Bytes& c, const Tag& t) {
      Bytes out = pattern(c.size(), 9);
      const auto opened = aead.open(n, a, c, t, out);
      return !opened && opened.error().code == Code::data_tag && out == Bytes(c.size());
    };
    for (unsigned bit = 0; bit < 128; ++bit) {
      Tag changed = tag;
      changed[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      EXPECT_TRUE(refused(nonce, aad, cipher, changed)) << bit;
    }
    for (unsigned bit = 0; bit < 96; ++bit) {
      Nonce changed = nonce;
      changed[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      EXPECT_TRUE(refused(changed, aad, cipher, tag)) << bit;
    }
    for (std::size_t bit = 0; bit < cipher.size() * 8; ++bit) {
      Bytes changed = cipher;
      changed[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      EXPECT_TRUE(refused(nonce, aad, changed, tag)) << bit;
    }
    for (std::size_t bit = 0; bit < aad.size() * 8; ++bit) {
      Bytes changed = aad;
      changed[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      EXPECT_TRUE(refused(nonce, changed, cipher, tag)) << bit;
    }
    EXPECT_TRUE(refused(nonce, {}, cipher, tag));
    EXPECT_TRUE(refused(nonce, aad, Bytes(cipher.begin(), cipher.end() - 1), tag));
    Bytes out(plain.size());  // the object is as good as before
    ASSERT_TRUE(aead.open(nonce, aad, cipher, tag, out));
    EXPECT_EQ(out, plain);
  }
}

TEST(Aead, every_length_round_trips) {
  for (const Suite suite : kSealingSuites) {
    const auto aead = Aead::make(suite, pattern(suite_key_bytes(suite), 3)).value();
    for (std::size_t bytes = 0; bytes <= 300; ++bytes) {
      const Bytes plain = pattern(bytes, 5);
      Bytes cipher(bytes), back(bytes);
      const Nonce nonce = nonce_of({}, bytes);
      const Tag tag = aead.seal(nonce, plain, plain, cipher).value();
      if (bytes >= 16) {
        EXPECT_NE(cipher, plain);
      }
      ASSERT_TRUE(aead.open(nonce, plain, cipher, tag, back)) << bytes;
      EXPECT_EQ(back, plain);
    }
  }
}

TEST(Aead, wrong_keys_and_suites_are_refused) {
  for (const Suite suite : {Suite::plain, Suite::chained_gmac}) {
    const auto made = Aead::make(suite, pattern(32, 0));
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, Code::suite);
  }
  for (const Suite suite : kSealingSuites) {
    for (const std::size_t bytes : {0u, 15u, 17u, 24u, 31u, 33u}) {
      const auto made = Aead::make(suite, pattern(bytes, 0));
      ASSERT_FALSE(made);
      EXPECT_EQ(made.error().code, Code::invalid_argument);
    }
  }
  EXPECT_FALSE(Aead::make(Suite::aes_128_gcm, pattern(32, 0)));
  EXPECT_FALSE(Aead::make(Suite::aes_256_gcm, pattern(16, 0)));
}

TEST(Aead, a_refusal_leaves_the_error_queue_alone) {
  // The process may hold other users of OpenSSL in this thread, who would take our refusals for theirs.
  ERR_clear_error();
  for (const Suite suite : kSealingSuites) {
    const auto aead = Aead::make(suite, pattern(suite_key_bytes(suite), 3)).value();
    Bytes out(4);
    EXPECT_FALSE(aead.open({}, {}, out, Tag{}, out));
    EXPECT_EQ(ERR_peek_error(), 0u);
  }
  EXPECT_FALSE(x25519_derive(SecretBytes(32), X25519Public{}));
  EXPECT_FALSE(p256_verify({std::byte{4}}, {}, pattern(70, 0)));
  EXPECT_FALSE(p256_verify(P256Key::generate().public_key(), {}, pattern(70, 0)));
  EXPECT_EQ(ERR_peek_error(), 0u);
}

TEST(Aead, nonce_is_iv_xor_number) {
  Nonce iv;
  iv.fill(std::byte{0xff});
  EXPECT_EQ(to_hex(nonce_of({}, 0x0102030405060708)), "000000000102030405060708");  // [RFC 8446 §5.3]
  EXPECT_EQ(to_hex(nonce_of(iv, 1)), "fffffffffffffffffffffffe");
  EXPECT_EQ(to_hex(nonce_of(iv, ~std::uint64_t{0})), "ffffffff0000000000000000");
}

TEST(AeadDeath, sizes_that_differ_are_a_programmer_error) {
  const auto aead = Aead::make(Suite::aes_256_gcm, pattern(32, 0)).value();
  Bytes in(4), out(3);
  EXPECT_DEATH((void)aead.seal({}, {}, in, out), "SR_CHECK");
}

}  // namespace
}  // namespace sealring
