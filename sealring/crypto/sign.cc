#include "sealring/crypto/sign.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/params.h>

#include "sealring/crypto/openssl.h"

namespace sealring {

using internal::DigestContext;
using internal::PublicKey;
using internal::PublicKeyContext;
using internal::raw;

namespace {

constexpr std::size_t kSignatureBytesMax = 72;  // SEQUENCE of two INTEGERs of at most 33 bytes

/// nullptr when the bytes are no point of the curve.
PublicKey public_object(const P256Public& point) {
  char group[] = "P-256";
  P256Public copy = point;  // the parameter takes a mutable pointer
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, group, 0),
      OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, copy.data(), copy.size()),
      OSSL_PARAM_construct_end()};
  const PublicKeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  SR_CHECK(context != nullptr && EVP_PKEY_fromdata_init(context.get()) == 1, "OpenSSL has no EC");
  EVP_PKEY* key = nullptr;
  if (EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, const_cast<OSSL_PARAM*>(parameters)) != 1)
    return {};
  return PublicKey(key);
}

}  // namespace

struct P256Key::State {
  PublicKey key;
};

P256Key::P256Key(std::unique_ptr<State> state) : state_(std::move(state)) {}
P256Key::P256Key(P256Key&&) noexcept = default;
P256Key& P256Key::operator=(P256Key&&) noexcept = default;
P256Key::~P256Key() = default;

P256Key P256Key::generate() {
  auto state = std::make_unique<State>();
  state->key.reset(EVP_EC_gen("P-256"));
  SR_CHECK(state->key != nullptr, "OpenSSL made no P-256 key");
  P256Key out(std::move(state));
  std::size_t bytes = 0;
  SR_CHECK(
      EVP_PKEY_get_octet_string_param(out.state_->key.get(), OSSL_PKEY_PARAM_PUB_KEY,
                                      raw(out.public_key_.data()), out.public_key_.size(), &bytes) == 1 &&
          bytes == out.public_key_.size(),
      "bytes", bytes);
  return out;
}

Bytes P256Key::sign(ByteView message) const {
  const DigestContext context(EVP_MD_CTX_new());
  Bytes signature(kSignatureBytesMax);
  std::size_t bytes = signature.size();
  SR_CHECK(context != nullptr &&
               EVP_DigestSignInit_ex(context.get(), nullptr, "SHA256", nullptr, nullptr, state_->key.get(),
                                     nullptr) == 1 &&
               EVP_DigestSign(context.get(), raw(signature.data()), &bytes, raw(message.data()),
                              message.size()) == 1,
           "signing failed");
  signature.resize(bytes);
  return signature;
}

bool p256_verify(const P256Public& key, ByteView message, ByteView signature) {
  if (signature.empty() || signature.size() > kSignatureBytesMax || key[0] != std::byte{4}) return false;
  const internal::ErrorMark mark;
  const PublicKey object = public_object(key);
  if (object == nullptr) return false;
  const DigestContext context(EVP_MD_CTX_new());
  SR_CHECK(context != nullptr, "no memory for a digest");
  return EVP_DigestVerifyInit_ex(context.get(), nullptr, "SHA256", nullptr, nullptr, object.get(), nullptr) ==
             1 &&
         EVP_DigestVerify(context.get(), raw(signature.data()), signature.size(), raw(message.data()),
                          message.size()) == 1;
}

}  // namespace sealring
