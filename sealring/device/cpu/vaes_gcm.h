// AES-GCM with the vector AES of recent x86-64 processors, by Intel's ipsec-mb: about four times
// OpenSSL 3.0's rate.
//
// OpenSSL before 3.1 has no such code path and Debian 12 ships 3.0, so on these processors the cipher alone
// would bound sealed collectives. Elsewhere (other processors, builds without the library) make_vaes_gcm()
// gives nullptr and OpenSSL does the work. Output is the standard's either way; tests hold both to the same
// vectors.
#pragma once

#include <memory>

#include "sealring/crypto/aead.h"

namespace sealring {

/// One key. Stateless between calls: any number of threads may use it at once.
class VaesGcm {
 public:
  virtual ~VaesGcm() = default;
  /// Writes in.size() bytes of ciphertext; in place is allowed.
  virtual Tag seal(const Nonce& nonce, ByteView aad, ByteView in, std::byte* out) const = 0;
  /// Writes UNVERIFIED plaintext to `out`, which must be private memory, and gives the tag that was computed:
  /// the caller compares it in constant time and wipes `out` when it differs.
  virtual Tag open_unverified(const Nonce& nonce, ByteView aad, ByteView in, std::byte* out) const = 0;
};

/// nullptr where the suite is not AES-GCM, the processor lacks VAES and AVX-512, or the library was not built
/// in. `key` has suite_key_bytes(suite) bytes.
std::unique_ptr<VaesGcm> make_vaes_gcm(Suite suite, ByteView key);

}  // namespace sealring
