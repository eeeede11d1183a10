#include "sealring/crypto/x25519.h"

#include "sealring/crypto/kdf.h"
#include "sealring/crypto/openssl.h"

namespace sealring {

using internal::PublicKey;
using internal::PublicKeyContext;
using internal::raw;

namespace {

PublicKey private_object(const SecretBytes& private_key) {
  SR_CHECK(private_key.size() == 32, "bytes", private_key.size());
  PublicKey key(EVP_PKEY_new_raw_private_key_ex(nullptr, "X25519", nullptr, raw(private_key.data()), 32));
  SR_CHECK(key != nullptr, "X25519 key");
  return key;
}

}  // namespace

X25519KeyPair X25519KeyPair::of(SecretBytes private_key) {
  X25519KeyPair pair;
  pair.private_key = std::move(private_key);
  const PublicKey key = private_object(pair.private_key);
  std::size_t bytes = pair.public_key.size();
  SR_CHECK(EVP_PKEY_get_raw_public_key(key.get(), raw(pair.public_key.data()), &bytes) == 1 && bytes == 32);
  return pair;
}

X25519KeyPair X25519KeyPair::generate() {
  SecretBytes scalar(32);
  random_bytes(scalar.span());  // any 32 bytes are a scalar [RFC 7748 §5]
  return of(std::move(scalar));
}

Result<SecretBytes> x25519_derive(const SecretBytes& private_key, const X25519Public& peer) {
  const internal::ErrorMark mark;
  const PublicKey mine = private_object(private_key);
  const PublicKey theirs(EVP_PKEY_new_raw_public_key_ex(nullptr, "X25519", nullptr, raw(peer.data()), 32));
  const PublicKeyContext context(EVP_PKEY_CTX_new_from_pkey(nullptr, mine.get(), nullptr));
  SR_CHECK(theirs != nullptr && context != nullptr, "no memory for X25519");
  SecretBytes shared(32);
  std::size_t bytes = shared.size();
  // The peer's key is checked by its result: derive fails when the shared secret is all zero [RFC 7748 §6.1].
  const bool derived = EVP_PKEY_derive_init(context.get()) == 1 &&
                       EVP_PKEY_derive_set_peer_ex(context.get(), theirs.get(), 0) == 1 &&
                       EVP_PKEY_derive(context.get(), raw(shared.data()), &bytes) == 1 && bytes == 32;
  const std::array<std::byte, 32> zero{};
  if (derived && !constant_time_equal(shared.view(), zero)) return shared;
  return fail(Code::pair_auth, "x25519.derive", "a share is a point of low order");
}

bool x25519_acceptable(const X25519Public& point) {
  // Little-endian, so the last byte is the highest. 2^255 - 19 = ed ff .. ff 7f.
  if ((point[31] & std::byte{0x80}) != std::byte{0}) return false;
  bool high_ones = point[31] == std::byte{0x7f};
  for (std::size_t i = 1; i < 31; ++i) high_ones = high_ones && point[i] == std::byte{0xff};
  if (high_ones && point[0] >= std::byte{0xed}) return false;
  SecretBytes any(32);
  any.data()[0] = std::byte{8};  // which scalar does not matter: clamping makes each a multiple of 8
  return x25519_derive(any, point).has_value();
}

}  // namespace sealring
