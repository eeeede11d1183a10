#include "sealring/crypto/aead.h"

#include <algorithm>

#include "sealring/crypto/openssl.h"

namespace sealring {

using internal::CipherContext;
using internal::raw;

namespace {

// OpenSSL counts in int: longer inputs go in pieces, each a multiple of every block size.
constexpr std::size_t kPieceBytes = std::size_t{1} << 30;

int piece_of(std::size_t left) { return static_cast<int>(std::min(left, kPieceBytes)); }

/// `out` null: additional data. A null `out` with no bytes would be read as such, hence the loops skip empty
/// inputs.
bool update(EVP_CIPHER_CTX* context, ByteView in, std::byte* out) {
  while (!in.empty()) {
    const int piece = piece_of(in.size());
    int written = 0;
    if (EVP_CipherUpdate(context, out == nullptr ? nullptr : raw(out), &written, raw(in.data()), piece) !=
        1) {
      return false;
    }
    if (written != piece) return false;  // stream modes write what they read
    if (out != nullptr) out += piece;
    in = in.subspan(static_cast<std::size_t>(piece));
  }
  return true;
}

}  // namespace

Nonce nonce_of(const Nonce& iv, std::uint64_t number) {
  Nonce nonce = iv;
  std::array<std::byte, 8> right;
  store_be(right.data(), number);
  for (std::size_t i = 0; i < right.size(); ++i) nonce[4 + i] ^= right[i];  // [RFC 8446 §5.3]
  return nonce;
}

struct Aead::State {
  CipherContext seal, open;  // one each: a context keeps its direction, so that a call sets only the nonce
};

Aead::Aead(std::unique_ptr<State> state) : state_(std::move(state)) {}
Aead::Aead(Aead&&) noexcept = default;
Aead& Aead::operator=(Aead&&) noexcept = default;
Aead::~Aead() = default;

Result<Aead> Aead::make(Suite suite, ByteView key) {
  const EVP_CIPHER* cipher = internal::cipher_algorithm(suite);
  if (cipher == nullptr) {
    return fail(Code::suite, "aead.make",
                "suite " + std::string(to_string(suite)) + " is no authenticated cipher");
  }
  if (key.size() != suite_key_bytes(suite)) {
    return fail(
        Code::invalid_argument, "aead.make",
        "a key of " + std::to_string(key.size()) + " bytes does not fit " + std::string(to_string(suite)));
  }
  auto state = std::make_unique<State>();
  state->seal.reset(EVP_CIPHER_CTX_new());
  state->open.reset(EVP_CIPHER_CTX_new());
  SR_CHECK(state->seal != nullptr && state->open != nullptr, "no memory for a cipher");
  // All three ciphers take the 96-bit nonce by default [RFC 5116 §5.1, RFC 8439 §2.8].
  SR_CHECK(EVP_CipherInit_ex2(state->seal.get(), cipher, raw(key.data()), nullptr, 1, nullptr) == 1);
  SR_CHECK(EVP_CipherInit_ex2(state->open.get(), cipher, raw(key.data()), nullptr, 0, nullptr) == 1);
  return Aead(std::move(state));
}

Result<Tag> Aead::seal(const Nonce& nonce, ByteView aad, ByteView in, std::span<std::byte> out) const {
  SR_CHECK(out.size() == in.size(), "out", out.size(), "in", in.size());
  EVP_CIPHER_CTX* context = state_->seal.get();
  Tag tag;
  unsigned char none[16];
  int written = 0;
  const bool sealed = EVP_CipherInit_ex2(context, nullptr, nullptr, raw(nonce.data()), 1, nullptr) == 1 &&
                      update(context, aad, nullptr) && update(context, in, out.data()) &&
                      EVP_CipherFinal_ex(context, none, &written) == 1 && written == 0 &&
                      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data()) == 1;
  SR_CHECK(sealed, "sealing failed, bytes", in.size());  // nothing foreign can cause it
  return tag;
}

Result<void> Aead::open(const Nonce& nonce, ByteView aad, ByteView in, const Tag& tag,
                        std::span<std::byte> out) const {
  SR_CHECK(out.size() == in.size(), "out", out.size(), "in", in.size());
  EVP_CIPHER_CTX* context = state_->open.get();
  Tag wanted = tag;  // the interface takes a mutable pointer
  unsigned char none[16];
  int written = 0;
  const bool ready = EVP_CipherInit_ex2(context, nullptr, nullptr, raw(nonce.data()), 0, nullptr) == 1 &&
                     EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, kTagBytes, wanted.data()) == 1 &&
                     update(context, aad, nullptr) && update(context, in, out.data());
  // Final compares the tag in constant time (CRYPTO_memcmp); only its verdict releases the plaintext.
  if (ready && EVP_CipherFinal_ex(context, none, &written) == 1 && written == 0) return {};
  secure_wipe(out);
  return fail(Code::data_tag, "aead.open", "a tag was not accepted");
}

}  // namespace sealring
