// Claim: our Noise KK and KKpsk0 with 25519, AESGCM and SHA512 are the published protocols, bit for bit.
// How: the published vectors with their fixed ephemerals: handshake messages, hash and transport ciphertexts;
// the third output of Split against an independent implementation that reproduces the same vectors.
#include "sealring/session/noise.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "sealring/crypto/aead.h"

namespace sealring {

struct NoiseVectorAccess {
  static void fix_ephemeral(NoiseKk& machine, X25519KeyPair pair) { machine.fix_ephemeral(std::move(pair)); }
};

namespace {

struct NoiseVector {
  std::map<std::string, std::string> values;
  std::vector<std::string> payloads, ciphertexts;
  std::string psk;
  Bytes bytes(const std::string& name) const { return from_hex(values.at(name)).value(); }
};

/// The file is one key a line; that is all of JSON that is needed here.
std::map<std::string, NoiseVector> read_noise_vectors() {
  std::ifstream in(std::string(SEALRING_SOURCE_DIR) + "/data/vectors/noise_kk_25519.json");
  SR_CHECK(in.good());
  std::map<std::string, NoiseVector> out;
  NoiseVector* current = nullptr;
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> words;
    for (std::size_t open = line.find('"'); open != std::string::npos; open = line.find('"', open)) {
      const std::size_t close = line.find('"', open + 1);
      words.push_back(line.substr(open + 1, close - open - 1));
      open = close + 1;
    }
    if (words.size() == 2 && words[0] == "protocol_name") current = &out[words[1]];
    if (current == nullptr) continue;
    if (words.size() == 1 && words[0].size() == 64) current->psk = words[0];
    if (words.size() != 2) continue;
    if (words[0] == "payload") {
      current->payloads.push_back(words[1]);
    } else if (words[0] == "ciphertext") {
      current->ciphertexts.push_back(words[1]);
    } else {
      current->values[words[0]] = words[1];
    }
  }
  return out;
}

X25519KeyPair pair_of(const Bytes& scalar) { return X25519KeyPair::of(SecretBytes::copy_of(scalar)); }

X25519Public public_of(const Bytes& bytes) {
  X25519Public out;
  SR_CHECK(bytes.size() == out.size());
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return out;
}

struct Ends {
  X25519KeyPair initiator_static, responder_static;
  std::optional<NoiseKk> initiator, responder;
};

void make_ends(Ends& ends, const NoiseVector& vector) {
  ends.initiator_static = pair_of(vector.bytes("init_static"));
  ends.responder_static = pair_of(vector.bytes("resp_static"));
  for (const bool initiator : {true, false}) {
    NoiseParameters parameters;
    parameters.initiator = initiator;
    parameters.prologue = vector.bytes(initiator ? "init_prologue" : "resp_prologue");
    parameters.my_static = initiator ? &ends.initiator_static : &ends.responder_static;
    parameters.peer_static = public_of(vector.bytes(initiator ? "init_remote_static" : "resp_remote_static"));
    if (!vector.psk.empty()) parameters.psk = SecretBytes::copy_of(from_hex(vector.psk).value());
    auto& machine = initiator ? ends.initiator : ends.responder;
    machine.emplace(std::move(parameters));
    NoiseVectorAccess::fix_ephemeral(*machine,
                                     pair_of(vector.bytes(initiator ? "init_ephemeral" : "resp_ephemeral")));
  }
}

Bytes seal_transport(const SecretBytes& key, std::uint64_t number, const Bytes& plain) {
  Bytes out(plain.size() + kTagBytes);
  const Tag tag = Aead::make(Suite::aes_256_gcm, key.view())
                      .value()
                      .seal(nonce_of({}, number), {}, plain, std::span(out).first(plain.size()))
                      .value();
  std::copy(tag.begin(), tag.end(), out.end() - kTagBytes);
  return out;
}

void check_vector(const std::string& name, const std::string& extra) {
  SCOPED_TRACE(name);
  const auto vectors = read_noise_vectors();
  ASSERT_TRUE(vectors.contains(name));
  const NoiseVector& vector = vectors.at(name);
  ASSERT_EQ(vector.ciphertexts.size(), 6u);
  ASSERT_EQ(vector.psk.empty(), name.find("psk0") == std::string::npos);
  Ends ends;
  make_ends(ends, vector);
  const auto payload = [&](std::size_t i) { return from_hex(vector.payloads[i]).value(); };

  const Bytes first = ends.initiator->write_message(payload(0)).value();
  EXPECT_EQ(to_hex(first), vector.ciphertexts[0]);
  EXPECT_EQ(ends.responder->read_message(first).value(), payload(0));
  EXPECT_FALSE(ends.responder->complete());
  const Bytes second = ends.responder->write_message(payload(1)).value();
  EXPECT_EQ(to_hex(second), vector.ciphertexts[1]);
  EXPECT_EQ(ends.initiator->read_message(second).value(), payload(1));

  const NoiseResult a = std::move(*ends.initiator).split(), b = std::move(*ends.responder).split();
  EXPECT_EQ(to_hex(a.handshake_hash), vector.values.at("handshake_hash"));
  EXPECT_EQ(a.handshake_hash, b.handshake_hash);
  EXPECT_EQ(to_hex(a.extra.view()), extra);
  EXPECT_EQ(to_hex(b.extra.view()), extra);
  for (std::size_t i = 2; i < 6; ++i) {  // the initiator sends the even ones; each direction counts from 0
    const NoiseResult& sender = i % 2 == 0 ? a : b;
    EXPECT_EQ(to_hex(seal_transport(sender.send_key, (i - 2) / 2, payload(i))), vector.ciphertexts[i]) << i;
  }
  EXPECT_TRUE(constant_time_equal(a.send_key.view(), b.receive_key.view()));
  EXPECT_TRUE(constant_time_equal(a.receive_key.view(), b.send_key.view()));
}

TEST(Noise, published_vectors) {
  check_vector("Noise_KK_25519_AESGCM_SHA512",
               "3221bddd342d3cd1f523cd5fde737df6789b485b50acfcd051e8d7ff68045f03"
               "b3775988dde477d11a1851d93310deb45db4cbdb7f9a3e5f2d1483723bab0d72");
  check_vector("Noise_KKpsk0_25519_AESGCM_SHA512",
               "d6c93d77870a9e318f3483b3eb21469e0bfd5bb73a6a86992eb711a78fc55b48"
               "773515a92b86907e376842774c08d51c9115cb2cc776ea7ede57ea2d2439dd55");
}

/// A fresh pair of machines in place: the parameters point into `ends`.
void make_fresh(Ends& ends, const Bytes& prologue_a, const Bytes& prologue_b, const std::string& psk_a,
                const std::string& psk_b) {
  ends.initiator_static = X25519KeyPair::generate();
  ends.responder_static = X25519KeyPair::generate();
  const auto make = [](bool initiator, const Bytes& prologue, const X25519KeyPair& mine,
                       const X25519Public& theirs, const std::string& psk) {
    NoiseParameters parameters;
    parameters.initiator = initiator;
    parameters.prologue = prologue;
    parameters.my_static = &mine;
    parameters.peer_static = theirs;
    if (!psk.empty()) parameters.psk = SecretBytes::copy_of(as_bytes(psk));
    return NoiseKk(std::move(parameters));
  };
  ends.initiator = make(true, prologue_a, ends.initiator_static, ends.responder_static.public_key, psk_a);
  ends.responder = make(false, prologue_b, ends.responder_static, ends.initiator_static.public_key, psk_b);
}

const std::string kPskA(32, 'a'), kPskB(32, 'b');

TEST(Noise, anything_that_differs_is_pair_auth) {
  const Bytes one = to_bytes(as_bytes("one")), two = to_bytes(as_bytes("two"));
  struct Case {
    Bytes prologue_a, prologue_b;
    std::string psk_a, psk_b;
  };
  for (const Case& c : {Case{one, two, "", ""}, Case{one, one, kPskA, kPskB}, Case{one, one, kPskA, ""},
                        Case{one, one, "", kPskB}}) {
    Ends ends;
    make_fresh(ends, c.prologue_a, c.prologue_b, c.psk_a, c.psk_b);
    const auto read = ends.responder->read_message(ends.initiator->write_message({}).value());
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, Code::pair_auth);
  }
}

TEST(Noise, every_changed_byte_of_both_messages_is_pair_auth) {
  for (std::size_t i = 0; i < 2 * NoiseKk::kMessageBytes; ++i) {
    Ends ends;
    make_fresh(ends, {}, {}, kPskA, kPskA);
    Bytes first = ends.initiator->write_message({}).value();
    ASSERT_EQ(first.size(), NoiseKk::kMessageBytes);
    if (i < first.size()) first[i] ^= std::byte{1};
    const auto read = ends.responder->read_message(first);
    ASSERT_EQ(read.has_value(), i >= first.size()) << i;
    if (!read) {
      EXPECT_EQ(read.error().code, Code::pair_auth);
      continue;
    }
    Bytes second = ends.responder->write_message({}).value();
    second[i - first.size()] ^= std::byte{1};
    const auto answer = ends.initiator->read_message(second);
    ASSERT_FALSE(answer) << i;
    EXPECT_EQ(answer.error().code, Code::pair_auth);
    EXPECT_FALSE(ends.initiator->complete());
  }
}

TEST(Noise, short_messages_and_low_order_ephemerals_are_pair_auth) {
  for (std::size_t bytes = 0; bytes < NoiseKk::kMessageBytes; ++bytes) {
    Ends ends;
    make_fresh(ends, {}, {}, "", "");
    const auto read =
        ends.responder->read_message(ByteView(ends.initiator->write_message({}).value()).first(bytes));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, Code::pair_auth);
  }
  Ends ends;
  make_fresh(ends, {}, {}, "", "");
  const auto read = ends.responder->read_message(Bytes(NoiseKk::kMessageBytes));  // e = 0
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Code::pair_auth);
}

}  // namespace
}  // namespace sealring
