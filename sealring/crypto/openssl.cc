#include "sealring/crypto/openssl.h"

namespace sealring::internal {
namespace {

const EVP_MD* fetch_digest(const char* name) {
  const EVP_MD* found = EVP_MD_fetch(nullptr, name, nullptr);
  SR_CHECK(found != nullptr, "OpenSSL has no", name);
  return found;
}

const EVP_CIPHER* fetch_cipher(const char* name) {
  const EVP_CIPHER* found = EVP_CIPHER_fetch(nullptr, name, nullptr);
  SR_CHECK(found != nullptr, "OpenSSL has no", name);
  return found;
}

EVP_MAC* fetch_hmac() {
  EVP_MAC* found = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  SR_CHECK(found != nullptr, "OpenSSL has no HMAC");
  return found;
}

}  // namespace

// Never freed: OpenSSL's own exit handler may run before our static destructors would.
const EVP_MD* sha256_algorithm() {
  static const EVP_MD* const algorithm = fetch_digest("SHA256");
  return algorithm;
}

const EVP_MD* sha512_algorithm() {
  static const EVP_MD* const algorithm = fetch_digest("SHA512");
  return algorithm;
}

EVP_MAC* hmac_algorithm() {
  static EVP_MAC* const algorithm = fetch_hmac();
  return algorithm;
}

const EVP_CIPHER* cipher_algorithm(Suite suite) {
  static const EVP_CIPHER* const aes_256 = fetch_cipher("AES-256-GCM");
  static const EVP_CIPHER* const aes_128 = fetch_cipher("AES-128-GCM");
  static const EVP_CIPHER* const chacha = fetch_cipher("ChaCha20-Poly1305");
  switch (suite) {
    case Suite::aes_256_gcm:
      return aes_256;
    case Suite::aes_128_gcm:
      return aes_128;
    case Suite::chacha20_poly1305:
      return chacha;
    case Suite::plain:
    case Suite::chained_gmac:
      return nullptr;
  }
  return nullptr;
}

}  // namespace sealring::internal
