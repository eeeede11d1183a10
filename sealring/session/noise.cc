#include "sealring/session/noise.h"

#include "sealring/crypto/aead.h"

namespace sealring {
namespace {

constexpr std::size_t kHash = 64;
constexpr std::size_t kShare = 32;

struct Outputs {
  SecretBytes first, second, third;
};

/// HKDF(chaining_key, input, 3) [Noise §4.3]: that of RFC 5869 with an empty info. Two outputs are its first
/// two.
Outputs noise_hkdf(const SecretBytes& chaining_key, ByteView input) {
  const SecretBytes prk = hkdf_extract(chaining_key.view(), input);
  const SecretBytes all = hkdf_expand(prk.view(), {}, 3 * kHash);
  return {SecretBytes::copy_of(all.view().subspan(0, kHash)),
          SecretBytes::copy_of(all.view().subspan(kHash, kHash)),
          SecretBytes::copy_of(all.view().subspan(2 * kHash, kHash))};
}

/// SymmetricState with its CipherState [Noise §5.1, §5.2].
class Symmetric {
 public:
  explicit Symmetric(std::string_view protocol_name) {
    // [Noise §5.2] a name of at most HASHLEN bytes is padded with zeros instead of hashed.
    SR_CHECK(protocol_name.size() <= kHash);
    std::memcpy(hash_.data(), protocol_name.data(), protocol_name.size());
    chaining_key_ = SecretBytes::copy_of(hash_);
  }

  void mix_hash(ByteView data) { hash_ = sha512({hash_, data}); }
  void mix_key(ByteView input) {
    Outputs out = noise_hkdf(chaining_key_, input);
    chaining_key_ = std::move(out.first);
    set_key(out.second);
  }
  void mix_key_and_hash(ByteView input) {
    Outputs out = noise_hkdf(chaining_key_, input);
    chaining_key_ = std::move(out.first);
    mix_hash(out.second.view());
    set_key(out.third);
  }

  /// KK has a key before its first payload, so there is no case without one.
  Bytes encrypt_and_hash(ByteView plain) {
    Bytes out(plain.size() + kTagBytes);
    const auto cipher = make_cipher();
    const auto tag = cipher.seal(nonce_of({}, number_++), hash_, plain, std::span(out).first(plain.size()));
    SR_CHECK(tag.has_value());
    std::memcpy(out.data() + plain.size(), tag->data(), kTagBytes);
    mix_hash(out);
    return out;
  }
  Result<Bytes> decrypt_and_hash(ByteView sealed) {
    const std::size_t plain_bytes = sealed.size() - kTagBytes;
    Bytes out(plain_bytes);
    Tag tag;
    std::memcpy(tag.data(), sealed.data() + plain_bytes, kTagBytes);
    if (!make_cipher().open(nonce_of({}, number_++), hash_, sealed.first(plain_bytes), tag, out)) {
      return fail(Code::pair_auth, "handshake.pair", "a pair message was not accepted");
    }
    mix_hash(sealed);
    return out;
  }

  Outputs split_outputs() const { return noise_hkdf(chaining_key_, {}); }
  const Hash512& hash() const { return hash_; }

 private:
  void set_key(const SecretBytes& key) {
    key_ = SecretBytes::copy_of(key.view().first(32));  // [Noise §5.2] truncated to the cipher's 32 bytes
    number_ = 0;
  }
  Aead make_cipher() const {
    SR_CHECK(!key_.empty());
    auto cipher = Aead::make(Suite::aes_256_gcm, key_.view());
    SR_CHECK(cipher.has_value());
    return *std::move(cipher);
  }

  SecretBytes chaining_key_, key_;
  Hash512 hash_{};
  std::uint64_t number_ = 0;  // [Noise §12.4] nonce = 32 zero bits || big-endian number
};

}  // namespace

struct NoiseKk::State {
  State(NoiseParameters given, std::string_view name) : parameters(std::move(given)), symmetric(name) {}
  NoiseParameters parameters;
  Symmetric symmetric;
  X25519KeyPair ephemeral;
  X25519Public peer_ephemeral{};
  int messages = 0;

  /// DH and MixKey. The pair of keys is named from this side: mine, theirs.
  Result<void> mix_shared(const X25519KeyPair& mine, const X25519Public& theirs) {
    auto shared = x25519_derive(mine.private_key, theirs);
    if (!shared) return tl::unexpected(std::move(shared).error());
    symmetric.mix_key(shared->view());
    return {};
  }
  void mix_ephemeral(const X25519Public& share) {
    symmetric.mix_hash(share);
    if (parameters.psk)
      symmetric.mix_key(share);  // [Noise §9.2] in PSK handshakes e is also mixed into the key
  }
  /// -> e, es, ss behind e; called by both sides.
  Result<void> first_tokens() {
    const X25519KeyPair& my_static = *parameters.my_static;
    if (parameters.initiator) {
      SR_TRY(mix_shared(ephemeral, parameters.peer_static));
    } else {
      SR_TRY(mix_shared(my_static, peer_ephemeral));
    }
    return mix_shared(my_static, parameters.peer_static);
  }
  /// <- e, ee, se behind e; called by both sides.
  Result<void> second_tokens() {
    SR_TRY(mix_shared(ephemeral, peer_ephemeral));
    if (parameters.initiator) return mix_shared(*parameters.my_static, peer_ephemeral);
    return mix_shared(ephemeral, parameters.peer_static);
  }
};

NoiseKk::NoiseKk(NoiseParameters parameters) {
  const std::string_view name =
      parameters.psk ? "Noise_KKpsk0_25519_AESGCM_SHA512" : "Noise_KK_25519_AESGCM_SHA512";
  SR_CHECK(parameters.my_static != nullptr && (!parameters.psk || parameters.psk->size() == 32));
  state_ = std::make_unique<State>(std::move(parameters), name);
  State& s = *state_;
  const X25519Public& mine = s.parameters.my_static->public_key;
  s.symmetric.mix_hash(s.parameters.prologue);
  s.symmetric.mix_hash(s.parameters.initiator ? mine
                                              : s.parameters.peer_static);  // [Noise §5.3] initiator's first
  s.symmetric.mix_hash(s.parameters.initiator ? s.parameters.peer_static : mine);
  if (s.parameters.psk) s.symmetric.mix_key_and_hash(s.parameters.psk->view());  // token psk, at place 0
  s.ephemeral = X25519KeyPair::generate();
}

NoiseKk::NoiseKk(NoiseKk&&) noexcept = default;
NoiseKk& NoiseKk::operator=(NoiseKk&&) noexcept = default;
NoiseKk::~NoiseKk() = default;

void NoiseKk::fix_ephemeral(X25519KeyPair ephemeral) { state_->ephemeral = std::move(ephemeral); }

Result<Bytes> NoiseKk::write_message(ByteView payload) {
  SR_CHECK(state_ != nullptr, "a spent handshake was asked to write");
  State& s = *state_;
  SR_CHECK(s.messages == (s.parameters.initiator ? 0 : 1), "messages", s.messages);
  s.mix_ephemeral(s.ephemeral.public_key);
  if (auto mixed = s.messages == 0 ? s.first_tokens() : s.second_tokens(); !mixed) {
    state_.reset();
    return tl::unexpected(std::move(mixed).error());
  }
  ++s.messages;
  return ByteWriter().put(s.ephemeral.public_key).put(ByteView(s.symmetric.encrypt_and_hash(payload))).take();
}

Result<Bytes> NoiseKk::read_message(ByteView message) {
  SR_CHECK(state_ != nullptr, "a spent handshake was asked to read");
  State& s = *state_;
  SR_CHECK(s.messages == (s.parameters.initiator ? 1 : 0), "messages", s.messages);
  const auto read = [&]() -> Result<Bytes> {
    if (message.size() < kShare + kTagBytes) {
      return fail(Code::pair_auth, "handshake.pair", "a pair message is too short");
    }
    std::memcpy(s.peer_ephemeral.data(), message.data(), kShare);
    s.mix_ephemeral(s.peer_ephemeral);
    SR_TRY(s.messages == 0 ? s.first_tokens() : s.second_tokens());
    return s.symmetric.decrypt_and_hash(message.subspan(kShare));
  };
  auto payload = read();
  if (payload) {
    ++s.messages;
  } else {
    state_.reset();
  }
  return payload;
}

bool NoiseKk::complete() const { return state_ != nullptr && state_->messages == 2; }

NoiseResult NoiseKk::split() && {
  SR_CHECK(complete(), "a handshake was split before its end");
  const std::unique_ptr<State> state = std::move(state_);
  const Outputs outputs = state->symmetric.split_outputs();
  SecretBytes from_initiator = SecretBytes::copy_of(outputs.first.view().first(32));
  SecretBytes from_responder = SecretBytes::copy_of(outputs.second.view().first(32));
  NoiseResult result;
  result.handshake_hash = state->symmetric.hash();
  result.extra = outputs.third.clone();  // [protocol A.2] X_ab = third output of the same HKDF call as Split
  result.send_key = std::move(state->parameters.initiator ? from_initiator : from_responder);
  result.receive_key = std::move(state->parameters.initiator ? from_responder : from_initiator);
  return result;
}

}  // namespace sealring
