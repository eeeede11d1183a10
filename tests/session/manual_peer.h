// Rank 1 of a world of two, played by hand from docs/handshake.md with the primitives only: it shows that the
// machine speaks the documented protocol, and it can deviate where an honest machine never would.
#pragma once

#include <algorithm>

#include "sealring/crypto/aead.h"
#include "sealring/crypto/kdf.h"
#include "sealring/session/handshake.h"
#include "sealring/session/noise.h"

namespace sealring::test {

struct ManualPeer {
  explicit ManualPeer(const JobKey& job_key, const std::string& config_text)
      : jk(hkdf_extract(label("job"), job_key.bytes().view())), contribution(32) {
    random_bytes(contribution.span());
    const SecretBytes job_id = hkdf_expand(jk.view(), {label("job_id")}, 16);
    ByteWriter out;
    out.put(std::uint16_t{1}).put(std::uint16_t{1}).put(std::uint32_t{2}).put(std::uint32_t{1});
    out.put(std::uint8_t{0})
        .put(std::uint8_t{0})
        .put(std::uint8_t{1})
        .put(std::uint8_t{0})
        .put(job_id.view());
    out.put(sha256({as_bytes("sealring-policy-0")})).put(sha256({as_bytes(config_text)}));
    std::array<std::byte, 32> nonce;
    random_bytes(nonce);
    out.put(nonce).put(share.public_key).put(Bytes(64));
    hello = out.take();
  }

  static std::array<std::byte, 4> be(std::uint32_t value) {
    std::array<std::byte, 4> out;
    store_be(out.data(), value);
    return out;
  }

  Bytes evidence_of(std::uint32_t rank, const Bytes& its_hello) const {
    const SecretBytes key = hkdf_expand(jk.view(), {label("id")}, 64);
    const Hash512 mac = hmac_sha512(key.view(), {th1, be(rank), sha512({its_hello})});
    return ByteWriter().put(std::uint32_t{64}).put(mac).put(Bytes(24)).take();
  }
  void take_hello(const Bytes& hello_0) {
    th1 = sha512({label("roster"), be(2), hello_0, hello});
    std::copy_n(hello_0.begin() + 128, 32, peer_share.begin());
    evidence = evidence_of(1, hello);
    evidence_wanted_of_0 = evidence_of(0, hello_0);
  }
  /// Answers kk1 with kk2.
  Bytes take_first(const Bytes& evidence_0, const Bytes& kk1) {
    th2 = sha512({label("evid"), th1, sha512({evidence_0}), sha512({evidence})});
    NoiseParameters parameters;
    parameters.prologue = ByteWriter().put(label("pair")).put(th2).put(be(0)).put(be(1)).take();
    parameters.my_static = &share;
    parameters.peer_static = peer_share;
    parameters.psk = hkdf_expand(jk.view(), {label("psk"), th1}, 32);
    NoiseKk noise(std::move(parameters));
    SR_CHECK(noise.read_message(kk1).has_value());
    Bytes kk2 = noise.write_message({}).value();
    pair = std::move(noise).split();
    return kk2;
  }
  Bytes secret(ByteView hash) const {
    Bytes out = ByteWriter().put(contribution.view()).put(hash).take();
    const Tag tag =
        Aead::make(Suite::aes_256_gcm, pair.send_key.view()).value().seal({}, {}, out, out).value();
    out.insert(out.end(), tag.begin(), tag.end());
    return out;
  }
  void take_secret(const Bytes& m5) {
    Bytes plain(96);
    Tag tag;
    std::copy_n(m5.begin() + 96, 16, tag.begin());
    SR_CHECK(Aead::make(Suite::aes_256_gcm, pair.receive_key.view())
                 .value()
                 .open({}, {}, ByteView(m5).first(96), tag, plain)
                 .has_value());
    SR_CHECK(ByteView(plain).subspan(32).size() == 64 &&
             std::equal(plain.begin() + 32, plain.end(), pair.handshake_hash.begin()));
    const Bytes both = ByteWriter().put(ByteView(plain).first(32)).put(contribution.view()).take();
    group_secret = hkdf_extract(th2, both);
    th3 = sha512({label("conf"), th2, sha512({both})});
  }
  Hash512 finished(std::uint32_t rank) const {
    return hmac_sha512(hkdf_expand(group_secret.view(), {label("finished"), be(rank)}, 64).view(), {th3});
  }
  Bytes confirm() const {
    const SecretBytes exporter = hkdf_expand(group_secret.view(), {label("exporter")}, 64);
    const SecretBytes key = hkdf_expand(jk.view(), {label("post")}, 64);
    const Hash512 proof = hmac_sha512(key.view(), {label("post"), th3, exporter.view(), be(1)});
    return ByteWriter().put(finished(1)).put(std::uint32_t{64}).put(proof).put(Bytes(24)).take();
  }
  SecretBytes pair_secret() const { return hkdf_extract(th3, pair.extra.view()); }

  SecretBytes jk;
  SecretBytes contribution;
  X25519KeyPair share = X25519KeyPair::generate();
  Bytes hello, evidence, evidence_wanted_of_0;
  X25519Public peer_share{};
  NoiseResult pair;
  Hash512 th1{}, th2{}, th3{};
  SecretBytes group_secret;
};

}  // namespace sealring::test
