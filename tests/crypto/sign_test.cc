// Claim: a P-256 signature verifies under its own key and message only, and malformed foreign bytes never do.
// How: fresh keys; every byte of signature, key and message changed; points off the curve; lengths around the
// real one.
#include "sealring/crypto/sign.h"

#include <gtest/gtest.h>

namespace sealring {
namespace {

TEST(Sign, verifies_only_what_was_signed) {
  const P256Key key = P256Key::generate(), other = P256Key::generate();
  const Bytes message = to_bytes(as_bytes("what is signed"));
  const Bytes signature = key.sign(message);
  EXPECT_TRUE(p256_verify(key.public_key(), message, signature));
  EXPECT_TRUE(p256_verify(key.public_key(), {}, key.sign({})));
  EXPECT_FALSE(p256_verify(other.public_key(), message, signature));
  EXPECT_FALSE(p256_verify(key.public_key(), {}, signature));
  for (std::size_t i = 0; i < message.size(); ++i) {
    Bytes changed = message;
    changed[i] ^= std::byte{1};
    EXPECT_FALSE(p256_verify(key.public_key(), changed, signature)) << i;
  }
  for (std::size_t i = 0; i < signature.size(); ++i) {
    Bytes changed = signature;
    changed[i] ^= std::byte{1};
    EXPECT_FALSE(p256_verify(key.public_key(), message, changed)) << i;
  }
  for (std::size_t i = 0; i < key.public_key().size(); ++i) {
    P256Public changed = key.public_key();
    changed[i] ^= std::byte{1};
    EXPECT_FALSE(p256_verify(changed, message, signature)) << i;  // off the curve, or another form
  }
}

TEST(Sign, lengths_are_exact) {
  const P256Key key = P256Key::generate();
  const Bytes message = to_bytes(as_bytes("m"));
  Bytes signature = key.sign(message);
  EXPECT_LE(signature.size(), 72u);
  for (std::size_t bytes = 0; bytes < signature.size(); ++bytes) {
    EXPECT_FALSE(p256_verify(key.public_key(), message, ByteView(signature).first(bytes))) << bytes;
  }
  signature.push_back(std::byte{0});
  EXPECT_FALSE(p256_verify(key.public_key(), message, signature));
  EXPECT_FALSE(p256_verify(P256Public{}, message, signature));
}

}  // namespace
}  // namespace sealring
