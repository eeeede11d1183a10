// One-shot authenticated encryption with OpenSSL: control frames, handshake messages, and the oracle of every
// test.
#pragma once

#include <array>
#include <memory>

#include "sealring/base/bytes.h"
#include "sealring/base/secret.h"
#include "sealring/base/types.h"

namespace sealring {

using Nonce = std::array<std::byte, kNonceBytes>;
using Tag = std::array<std::byte, kTagBytes>;

/// nonce = iv XOR (0^32 || be64(number)) [RFC 8446 §5.3; protocol A.3].
Nonce nonce_of(const Nonce& iv, std::uint64_t number);

/// One key of one suite. seal and open may run in place (out == in); they never read past `in`.
///
/// Not thread-safe: one object a thread. The caller answers for the nonce; outside of tests only code that
/// holds a SealPermit (wire/nonce_sequence.h) or a single-use key may call seal.
class Aead {
 public:
  /// Errors: SUITE for plain and chained-gmac, INVALID_ARGUMENT for a key of the wrong size.
  static Result<Aead> make(Suite suite, ByteView key);
  Aead(Aead&&) noexcept;
  Aead& operator=(Aead&&) noexcept;
  ~Aead();

  /// Writes in.size() bytes of ciphertext to `out` (same size) and gives the tag.
  Result<Tag> seal(const Nonce& nonce, ByteView aad, ByteView in, std::span<std::byte> out) const;
  /// Verifies in constant time, writes in.size() bytes of plaintext. On DATA_TAG `out` is zeroed. `out` must
  /// be private memory: OpenSSL writes before it has verified.
  Result<void> open(const Nonce& nonce, ByteView aad, ByteView in, const Tag& tag,
                    std::span<std::byte> out) const;

 private:
  struct State;
  explicit Aead(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sealring
