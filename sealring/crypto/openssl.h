// OpenSSL objects shared inside crypto/: algorithms fetched once, and owners for the C types. Private to this
// folder.
#pragma once

#include <openssl/err.h>
#include <openssl/evp.h>

#include <memory>

#include "sealring/base/bytes.h"
#include "sealring/base/types.h"

namespace sealring::internal {

template <auto release>
struct Release {
  template <class T>
  void operator()(T* object) const noexcept {
    release(object);
  }
};
template <class T, auto release>
using Owned = std::unique_ptr<T, Release<release>>;

using CipherContext = Owned<EVP_CIPHER_CTX, EVP_CIPHER_CTX_free>;
using DigestContext = Owned<EVP_MD_CTX, EVP_MD_CTX_free>;
using MacContext = Owned<EVP_MAC_CTX, EVP_MAC_CTX_free>;
using PublicKeyContext = Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free>;
using PublicKey = Owned<EVP_PKEY, EVP_PKEY_free>;

/// Fetched on first use and kept for the life of the process: a fetch takes a lock and a search each time.
/// Abort when the library lacks them. Thread-safe.
const EVP_MD* sha256_algorithm();
const EVP_MD* sha512_algorithm();
EVP_MAC* hmac_algorithm();
/// nullptr for a suite that has no cipher (plain, chained-gmac).
const EVP_CIPHER* cipher_algorithm(Suite suite);

/// Takes back what a refused foreign input left in this thread's error queue: the process may hold other
/// users of it.
class ErrorMark {
 public:
  ErrorMark() { ERR_set_mark(); }
  ~ErrorMark() { ERR_pop_to_mark(); }
  ErrorMark(const ErrorMark&) = delete;
  ErrorMark& operator=(const ErrorMark&) = delete;
};

inline const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
inline unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

}  // namespace sealring::internal
