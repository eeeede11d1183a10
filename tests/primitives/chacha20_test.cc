// Claim: the ChaCha20 block function is RFC 8439's.
// How: the RFC's own vectors.
#include "sealring/primitives/chacha20.h"

#include <gtest/gtest.h>

namespace sealring::chacha20 {
namespace {

TEST(ChaCha20, QuarterRound) {  // [RFC 8439 §2.1.1]
  std::uint32_t a = 0x11111111, b = 0x01020304, c = 0x9b8d6f43, d = 0x01234567;
  quarter_round(a, b, c, d);
  EXPECT_EQ(a, 0xea2a92f4u);
  EXPECT_EQ(b, 0xcb1cf8ceu);
  EXPECT_EQ(c, 0x4581472eu);
  EXPECT_EQ(d, 0x5881c4bbu);
}

TEST(ChaCha20, Block) {  // [RFC 8439 §2.3.2]
  const std::uint32_t key[8] = {0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c,
                                0x13121110, 0x17161514, 0x1b1a1918, 0x1f1e1d1c};
  const std::uint32_t nonce[3] = {0x09000000, 0x4a000000, 0x00000000};
  const std::uint32_t expected[16] = {0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3, 0xc7f4d1c7, 0x0368c033,
                                      0x9aaa2204, 0x4e6cd4c3, 0x466482d2, 0x09aa9f07, 0x05d7c214, 0xa2028bd9,
                                      0xd19c12b5, 0xb94e16de, 0xe883d0cb, 0x4e3c50a2};
  const Block block = keystream(key, nonce, 1);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(block.words[i], expected[i]) << i;
}

}  // namespace
}  // namespace sealring::chacha20
