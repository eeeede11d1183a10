// X25519 [RFC 7748 §5, §6.1]: key pairs and the shared secret, with the refusals that a handshake needs.
#pragma once

#include <array>

#include "sealring/base/bytes.h"
#include "sealring/base/secret.h"

namespace sealring {

using X25519Public = std::array<std::byte, 32>;

/// A private scalar and its public point. Move-only through SecretBytes; the private part is wiped with the
/// object.
struct X25519KeyPair {
  SecretBytes private_key;  ///< 32 bytes
  X25519Public public_key{};

  /// A fresh pair from the operating system's randomness.
  static X25519KeyPair generate();
  /// The pair of a given scalar, 32 bytes (vectors, tests).
  static X25519KeyPair of(SecretBytes private_key);
};

/// The shared secret of my scalar and a foreign point: 32 bytes.
///
/// Errors: PAIR_AUTH for a point of low order, whose result would be zero whatever my scalar is [RFC 7748
/// §6.1].
Result<SecretBytes> x25519_derive(const SecretBytes& private_key, const X25519Public& peer);

/// True when `point` is the one encoding of its coordinate (below 2^255 - 19, top bit clear) and not of low
/// order. Two acceptable points are the same point only if their bytes are equal.
bool x25519_acceptable(const X25519Public& point);

}  // namespace sealring
