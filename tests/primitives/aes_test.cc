// Claim: AES by column tables is FIPS 197's for 128- and 256-bit keys, also several blocks at once.
// How: the vectors of FIPS 197 appendix C and random keys and blocks against OpenSSL's ECB.
#include "sealring/primitives/aes.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <cstring>
#include <memory>
#include <random>

namespace sealring::aes {
namespace {

using Bytes16 = std::array<std::uint8_t, 16>;

Bytes16 by_tables(const std::uint8_t* key, std::uint32_t key_bytes, const Bytes16& in) {
  std::uint32_t words[8] = {};
  std::memcpy(words, key, key_bytes);
  RoundKeys keys;
  expand(words, key_bytes / 4, keys);
  Block blocks[2] = {};
  std::memcpy(blocks[1].words, in.data(), 16);
  encrypt(blocks, keys.words, keys.rounds, PlainTables{});
  Bytes16 out;
  std::memcpy(out.data(), blocks[1].words, 16);
  return out;
}

Bytes16 by_openssl(const std::uint8_t* key, std::uint32_t key_bytes, const Bytes16& in) {
  const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> context(EVP_CIPHER_CTX_new(),
                                                                                &EVP_CIPHER_CTX_free);
  const EVP_CIPHER* const cipher = key_bytes == 16 ? EVP_aes_128_ecb() : EVP_aes_256_ecb();
  EXPECT_EQ(EVP_EncryptInit_ex(context.get(), cipher, nullptr, key, nullptr), 1);
  Bytes16 out{};
  int bytes = 0;
  EXPECT_EQ(EVP_EncryptUpdate(context.get(), out.data(), &bytes, in.data(), 16), 1);
  EXPECT_EQ(bytes, 16);
  return out;
}

TEST(Aes, Fips197) {  // appendices C.1 and C.3
  std::array<std::uint8_t, 32> key;
  Bytes16 in;
  for (std::size_t i = 0; i < 32; ++i) key[i] = static_cast<std::uint8_t>(i);
  for (std::size_t i = 0; i < 16; ++i) in[i] = static_cast<std::uint8_t>(i * 0x11);
  EXPECT_EQ(by_tables(key.data(), 16, in), (Bytes16{0x69, 0xc4, 0xe0, 0xd8, 0x6a, 0x7b, 0x04, 0x30, 0xd8,
                                                    0xcd, 0xb7, 0x80, 0x70, 0xb4, 0xc5, 0x5a}));
  EXPECT_EQ(by_tables(key.data(), 32, in), (Bytes16{0x8e, 0xa2, 0xb7, 0xca, 0x51, 0x67, 0x45, 0xbf, 0xea,
                                                    0xfc, 0x49, 0x90, 0x4b, 0x49, 0x60, 0x89}));
}

TEST(Aes, RandomAgainstOpenSsl) {
  std::mt19937 random(1);
  for (int n = 0; n < 500; ++n) {
    std::array<std::uint8_t, 32> key;
    Bytes16 in;
    for (auto& b : key) b = static_cast<std::uint8_t>(random());
    for (auto& b : in) b = static_cast<std::uint8_t>(random());
    for (const std::uint32_t bytes : {16u, 32u})
      ASSERT_EQ(by_tables(key.data(), bytes, in), by_openssl(key.data(), bytes, in)) << n;
  }
}

TEST(Aes, CountersOfOneGroupShareTwoRounds) {
  std::mt19937 random(2);
  for (const std::uint32_t bytes : {16u, 32u}) {
    std::uint32_t key[8];
    for (auto& word : key) word = static_cast<std::uint32_t>(random());
    RoundKeys keys;
    expand(key, bytes / 4, keys);
    Block block;
    for (auto& word : block.words) word = static_cast<std::uint32_t>(random());
    const CounterGroup group = counter_group(block, keys.words, PlainTables{});
    for (std::uint32_t last = 0; last < 256; ++last) {
      block.words[3] = (block.words[3] & 0xFFFFFFu) | (last << 24);
      Block whole[1] = {block};
      encrypt(whole, keys.words, keys.rounds, PlainTables{});
      Block shared[1] = {after_two_rounds(group, block.words[3], keys.words, PlainTables{})};
      rounds_from(3, shared, keys.words, keys.rounds, PlainTables{});
      for (int c = 0; c < 4; ++c) ASSERT_EQ(shared[0].words[c], whole[0].words[c]) << last;
    }
  }
}

}  // namespace
}  // namespace sealring::aes
