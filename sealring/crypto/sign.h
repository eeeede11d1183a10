// ECDSA over P-256 with SHA-256 [FIPS 186-4 §6]: what the simulated platform of the tests signs with.
#pragma once

#include <array>
#include <memory>

#include "sealring/base/bytes.h"
#include "sealring/base/result.h"

namespace sealring {

/// The uncompressed point 0x04 || X || Y [SEC 1 §2.3.3].
using P256Public = std::array<std::byte, 65>;

/// A fresh private key. Move-only; OpenSSL wipes the private part. Not thread-safe.
class P256Key {
 public:
  static P256Key generate();
  P256Key(P256Key&&) noexcept;
  P256Key& operator=(P256Key&&) noexcept;
  ~P256Key();
  const P256Public& public_key() const { return public_key_; }
  /// A signature in DER, at most 72 bytes, over SHA-256(message).
  Bytes sign(ByteView message) const;

 private:
  struct State;
  explicit P256Key(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  P256Public public_key_{};
};

/// True when `signature` (DER, exactly) is one of `key` over `message`. A point that is not on the curve
/// gives false.
bool p256_verify(const P256Public& key, ByteView message, ByteView signature);

}  // namespace sealring
