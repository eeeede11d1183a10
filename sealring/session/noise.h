// Noise_KK_25519_AESGCM_SHA512 and Noise_KKpsk0_25519_AESGCM_SHA512 [Noise Protocol Framework, revision 34].
//
//   KK:  -> s   <- s   ...   -> e, es, ss   <- e, ee, se
// psk0 mixes a pre-shared key in before the first token. Which of the two runs is fixed by the kind of
// identity.
#pragma once

#include <memory>
#include <optional>

#include "sealring/crypto/kdf.h"
#include "sealring/crypto/x25519.h"

namespace sealring {

struct NoiseParameters {
  bool initiator = false;
  Bytes prologue;
  const X25519KeyPair* my_static = nullptr;  ///< must outlive the machine's two messages
  X25519Public peer_static{};
  std::optional<SecretBytes> psk;  ///< 32 bytes: KKpsk0; nullopt: KK
};

/// What Split gives, and the third output of the same HKDF call.
struct NoiseResult {
  SecretBytes send_key, receive_key;  ///< 32 bytes each, AES-256-GCM, numbers from 0
  SecretBytes extra;                  ///< 64 bytes: X_ab of protocol A.2
  Hash512 handshake_hash{};
};

/// One handshake of two messages. Not thread-safe. After an error it is spent: its secrets are wiped.
class NoiseKk {
 public:
  static constexpr std::size_t kMessageBytes = 48;  ///< with an empty payload: e (32) and a tag (16)

  explicit NoiseKk(NoiseParameters parameters);
  NoiseKk(NoiseKk&&) noexcept;
  NoiseKk& operator=(NoiseKk&&) noexcept;
  ~NoiseKk();

  /// The first message of the initiator, the second of the responder; each once, in turn (a programmer error
  /// else). Errors: PAIR_AUTH when a share of the peer is a point of low order.
  Result<Bytes> write_message(ByteView payload);
  /// The peer's message; gives its payload. Errors: PAIR_AUTH.
  Result<Bytes> read_message(ByteView message);
  /// True after both messages.
  bool complete() const;
  /// The keys; consumes the machine.
  NoiseResult split() &&;

 private:
  friend struct NoiseVectorAccess;  // defined in tests only: the published vectors fix the ephemeral key
  void fix_ephemeral(X25519KeyPair ephemeral);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sealring
