#include "sealring/crypto/kdf.h"

#include <openssl/core_names.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include "sealring/crypto/openssl.h"

namespace sealring {

using internal::DigestContext;
using internal::MacContext;
using internal::raw;

namespace {

template <std::size_t N>
std::array<std::byte, N> digest(const EVP_MD* algorithm, std::initializer_list<ByteView> parts) {
  std::array<std::byte, N> out;
  const DigestContext context(EVP_MD_CTX_new());
  SR_CHECK(context != nullptr && EVP_DigestInit_ex2(context.get(), algorithm, nullptr) == 1, "digest");
  for (const ByteView part : parts) {
    SR_CHECK(part.empty() || EVP_DigestUpdate(context.get(), part.data(), part.size()) == 1);
  }
  unsigned written = 0;
  SR_CHECK(EVP_DigestFinal_ex(context.get(), raw(out.data()), &written) == 1 && written == N, "written",
           written);
  return out;
}

/// HMAC under one key [RFC 2104]; restart() begins the next message under the same key.
class Hmac {
 public:
  Hmac(const char* digest_name, ByteView key) : context_(EVP_MAC_CTX_new(internal::hmac_algorithm())) {
    static constexpr unsigned char kNoKey[1] = {0};  // a null pointer would mean "keep the former key"
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, const_cast<char*>(digest_name), 0),
        OSSL_PARAM_construct_end()};
    SR_CHECK(context_ != nullptr, "no memory for HMAC");
    SR_CHECK(EVP_MAC_init(context_.get(), key.empty() ? kNoKey : raw(key.data()), key.size(), parameters) ==
             1);
  }
  void restart() { SR_CHECK(EVP_MAC_init(context_.get(), nullptr, 0, nullptr) == 1); }
  Hmac& add(ByteView part) {
    SR_CHECK(part.empty() || EVP_MAC_update(context_.get(), raw(part.data()), part.size()) == 1);
    return *this;
  }
  Hmac& add(std::initializer_list<ByteView> parts) {
    for (const ByteView part : parts) add(part);
    return *this;
  }
  void finish(std::span<std::byte> out) {
    std::size_t written = 0;
    SR_CHECK(EVP_MAC_final(context_.get(), raw(out.data()), &written, out.size()) == 1 &&
             written == out.size());
  }

 private:
  MacContext context_;
};

}  // namespace

Hash512 sha512(std::initializer_list<ByteView> parts) {
  return digest<64>(internal::sha512_algorithm(), parts);
}
Hash256 sha256(std::initializer_list<ByteView> parts) {
  return digest<32>(internal::sha256_algorithm(), parts);
}

Hash512 hmac_sha512(ByteView key, std::initializer_list<ByteView> parts) {
  Hash512 out;
  Hmac("SHA512", key).add(parts).finish(out);
  return out;
}

Hash256 hmac_sha256(ByteView key, std::initializer_list<ByteView> parts) {
  Hash256 out;
  Hmac("SHA256", key).add(parts).finish(out);
  return out;
}

Bytes label(std::string_view name) {
  return ByteWriter().put(as_bytes("SEALRING1/")).put(as_bytes(name)).put(std::uint8_t{0}).take();
}

SecretBytes hkdf_extract(ByteView salt, ByteView ikm) {
  SecretBytes prk(64);
  Hmac("SHA512", salt).add(ikm).finish(prk.span());  // [RFC 5869 §2.2] PRK = HMAC-Hash(salt, IKM)
  return prk;
}

SecretBytes hkdf_expand(ByteView prk, std::initializer_list<ByteView> info, std::size_t bytes) {
  SecretBytes out(bytes), block(64);
  SR_CHECK(bytes <= 255 * block.size(), "bytes", bytes);  // [RFC 5869 §2.3] L <= 255*HashLen
  Hmac mac("SHA512", prk);
  for (std::size_t done = 0, i = 1; done < bytes; ++i) {
    if (i > 1) {
      mac.restart();
      mac.add(block.view());
    }
    const std::array counter{static_cast<std::byte>(i)};
    mac.add(info).add(counter).finish(block.span());  // [RFC 5869 §2.3] T(i) = HMAC(PRK, T(i-1) | info | i)
    const std::size_t piece = std::min(block.size(), bytes - done);
    std::memcpy(out.data() + done, block.data(), piece);
    done += piece;
  }
  return out;
}

void random_bytes(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = getrandom(out.data(), out.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    SR_CHECK(got > 0, "no randomness from the operating system, errno", errno);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace sealring
