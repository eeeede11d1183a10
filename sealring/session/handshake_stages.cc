// What each message of roster-KK does (protocol A.2): checks, transcript hashes, and what is posted next.
#include <fmt/format.h>

#include "sealring/crypto/aead.h"
#include "sealring/session/handshake_state.h"

namespace sealring {

using internal::HandshakePeer;
using internal::HandshakeStage;
using internal::kContributionBytes;
using internal::Slot;
using internal::slot_name;

std::string_view internal::name_of(HandshakeStage stage) {
  switch (stage) {
    case HandshakeStage::hello:
      return "hello";
    case HandshakeStage::evidence:
      return "evidence";
    case HandshakeStage::pair:
      return "pair";
    case HandshakeStage::secret:
      return "secret";
    case HandshakeStage::confirm:
      return "confirm";
    case HandshakeStage::ready:
      return "ready";
  }
  return "?";
}

namespace {

constexpr std::size_t kHashBytes = 64;
constexpr std::size_t kSecretPlainBytes = kContributionBytes + kHashBytes;  // c_i || h_ij
constexpr std::size_t kMessageBytesMax = 64 * 1024 + kHashBytes;  // CONFIRM with the largest evidence

std::array<std::byte, 4> be_rank(Rank rank) {
  std::array<std::byte, 4> out;
  store_be(out.data(), std::uint32_t{rank});
  return out;
}

}  // namespace

bool Handshake::State::awaits(const Slot& slot) const {
  const Rank first = slot.first;
  if (first >= config.world) return false;
  if (!slot.second) {
    if (slot.kind == "hello") return stage == HandshakeStage::hello && !roster.knows(first);
    if (slot.kind == "config") return stage == HandshakeStage::hello && first != me;
    if (slot.kind == "evidence") return stage == HandshakeStage::evidence && !peers[first].evidence_done;
    return slot.kind == "confirm" && stage == HandshakeStage::confirm && !peers[first].confirmed;
  }
  const Rank second = *slot.second;
  const bool pairing = stage == HandshakeStage::pair || stage == HandshakeStage::secret;
  if (!pairing || second >= config.world) return false;
  if (slot.kind == "kk1") return first < me && second == me && !peers[first].paired;
  if (slot.kind == "kk2") return first == me && second > me && !peers[second].paired;
  return slot.kind == "m5" && second == me && peers[first].paired && !peers[first].secret_done;
}

Result<void> Handshake::State::take(const std::string& name, ByteView bytes) {
  const auto slot = internal::parse_slot(name);
  const std::string place = fmt::format("handshake.{}", name_of(stage));
  const auto refuse = [&](Code code, std::string what) -> Result<void> {
    Error problem;
    problem.code = code;
    problem.stage = place;
    problem.what = std::move(what);
    if (slot) problem.peer = slot->first == me && slot->second ? *slot->second : slot->first;
    return fail(std::move(problem));
  };
  if (bytes.size() > kMessageBytesMax) return refuse(Code::malformed, "a message is longer than any can be");
  const Hash256 digest = sha256({bytes});
  if (const auto before = received.find(name); before != received.end()) {
    if (before->second == digest) return {};
    return refuse(Code::malformed, fmt::format("slot {} changed after it was read", name));
  }
  if (!slot || !awaits(*slot)) {
    return refuse(Code::invalid_argument, fmt::format("slot {} is not awaited in stage {}",
                                                      internal::printable(name, 64), name_of(stage)));
  }
  received.emplace(name, digest);
  auto taken = dispatch(*slot, bytes);
  if (!taken && taken.error().peer < 0)
    taken.error().peer = slot->kind == "kk2" ? *slot->second : slot->first;
  if (!taken) return taken;
  return advance();
}

Result<void> Handshake::State::dispatch(const Slot& slot, ByteView bytes) {
  if (slot.kind == "hello") return roster.add(slot.first, bytes);
  if (slot.kind == "config") return roster.add_config(slot.first, bytes);
  if (slot.kind == "evidence") return take_evidence(slot.first, bytes);
  if (slot.kind == "kk1") return take_first(slot.first, bytes);
  if (slot.kind == "kk2") return take_second(*slot.second, bytes);
  if (slot.kind == "m5") return take_secret(slot.first, bytes);
  return take_confirm(slot.first, bytes);
}

/// Goes through as many stages as what has come allows.
Result<void> Handshake::State::advance() {
  if (stage == HandshakeStage::hello && roster.complete()) SR_TRY(begin_evidence());
  if (stage == HandshakeStage::evidence && every(&HandshakePeer::evidence_done)) SR_TRY(begin_pairs());
  if (stage == HandshakeStage::pair && every(&HandshakePeer::paired)) stage = HandshakeStage::secret;
  if (stage == HandshakeStage::secret && every(&HandshakePeer::secret_done)) SR_TRY(begin_confirm());
  if (stage == HandshakeStage::confirm && every(&HandshakePeer::confirmed)) stage = HandshakeStage::ready;
  return {};
}

Result<void> Handshake::State::begin_evidence() {
  stage = HandshakeStage::evidence;
  th1 = roster.transcript();
  SR_TRY(const Evidence evidence, identity->attester->quote(join_claim(me)));
  Bytes encoded = evidence.encode();
  peers[me].evidence_hash = sha512({encoded});
  post(slot_name("evidence", me), std::move(encoded));
  return {};
}

Result<void> Handshake::State::take_evidence(Rank rank, ByteView bytes) {
  SR_TRY(const Evidence evidence, Evidence::decode(bytes));
  SR_TRY(identity->verifier->verify(evidence, join_claim(rank), roster.hello(rank)));
  peers[rank].evidence_hash = sha512({bytes});
  peers[rank].evidence_done = true;
  return {};
}

/// Everybody's evidence was accepted: only now Diffie-Hellman with anybody [protocol A.2 M2].
Result<void> Handshake::State::begin_pairs() {
  stage = HandshakeStage::pair;
  ByteWriter hashes;
  for (const HandshakePeer& peer : peers) hashes.put(peer.evidence_hash);
  th2 = sha512({label("evid"), th1, hashes.bytes()});
  for (Rank rank = static_cast<Rank>(me + 1); rank < config.world;
       ++rank) {  // the lower rank is the initiator
    HandshakePeer& peer = peers[rank];
    peer.noise = make_noise(rank);
    auto message = peer.noise->write_message({});
    if (!message) {
      message.error().peer = rank;
      return tl::unexpected(std::move(message).error());
    }
    post(slot_name("kk1", me, rank), *std::move(message));
  }
  return {};
}

NoiseKk Handshake::State::make_noise(Rank rank) const {
  const Rank low = std::min(me, rank), high = std::max(me, rank);
  NoiseParameters parameters;
  parameters.initiator = me == low;
  // [protocol A.2 M3] prologue L("pair") || TH2 || u32 a || u32 b
  parameters.prologue =
      ByteWriter().put(ByteView(label("pair"))).put(th2).put(be_rank(low)).put(be_rank(high)).take();
  parameters.my_static = &share;
  parameters.peer_static = roster.hello(rank).share;
  parameters.psk = identity->attester->noise_psk(th1);
  return NoiseKk(std::move(parameters));
}

Result<void> Handshake::State::take_first(Rank rank, ByteView bytes) {
  NoiseKk noise = make_noise(rank);
  SR_TRY(const Bytes payload, noise.read_message(bytes));
  if (!payload.empty()) return fail(Code::pair_auth, "handshake.pair", "a pair message has a payload");
  SR_TRY(Bytes answer, noise.write_message({}));
  post(slot_name("kk2", rank, me), std::move(answer));
  finish_pair(rank, std::move(noise));
  return {};
}

Result<void> Handshake::State::take_second(Rank rank, ByteView bytes) {
  NoiseKk noise = std::move(*peers[rank].noise);
  peers[rank].noise.reset();
  SR_TRY(const Bytes payload, noise.read_message(bytes));
  if (!payload.empty()) return fail(Code::pair_auth, "handshake.pair", "a pair message has a payload");
  finish_pair(rank, std::move(noise));
  return {};
}

/// Takes the pair's keys and posts M5, the one message under the sending key [protocol A.2 M5].
void Handshake::State::finish_pair(Rank rank, NoiseKk noise) {
  HandshakePeer& peer = peers[rank];
  NoiseResult result = std::move(noise).split();
  peer.receive_key = std::move(result.receive_key);
  peer.extra = std::move(result.extra);
  peer.pair_hash = result.handshake_hash;
  peer.paired = true;

  SecretBytes plain(kSecretPlainBytes);
  std::memcpy(plain.data(), contributions.data() + kContributionBytes * me, kContributionBytes);
  std::memcpy(plain.data() + kContributionBytes, peer.pair_hash.data(), kHashBytes);
  Bytes sealed(kSecretPlainBytes + kTagBytes);
  const auto cipher = Aead::make(Suite::aes_256_gcm, result.send_key.view());
  SR_CHECK(cipher.has_value());
  const auto tag =
      cipher->seal(nonce_of({}, 0), {}, plain.view(), std::span(sealed).first(kSecretPlainBytes));
  SR_CHECK(tag.has_value());
  std::memcpy(sealed.data() + kSecretPlainBytes, tag->data(), kTagBytes);
  post(slot_name("m5", me, rank), std::move(sealed));
}

Result<void> Handshake::State::take_secret(Rank rank, ByteView bytes) {
  HandshakePeer& peer = peers[rank];
  const auto refuse = [rank](std::string_view what) {
    return fail(Code::pair_auth, "handshake.secret", fmt::format("peer {} {}", rank, what));
  };
  if (bytes.size() != kSecretPlainBytes + kTagBytes) return refuse("sent a secret of a wrong size");
  SecretBytes plain(kSecretPlainBytes);
  Tag tag;
  std::memcpy(tag.data(), bytes.data() + kSecretPlainBytes, kTagBytes);
  const auto cipher = Aead::make(Suite::aes_256_gcm, peer.receive_key.view());
  SR_CHECK(cipher.has_value());
  if (!cipher->open(nonce_of({}, 0), {}, bytes.first(kSecretPlainBytes), tag, plain.span())) {
    return refuse("does not hold the attested key");
  }
  peer.receive_key.wipe();
  // [protocol A.3] M5's h_ij must equal mine
  if (!constant_time_equal(plain.view().subspan(kContributionBytes), peer.pair_hash)) {
    return refuse("saw another exchange between the two ranks");
  }
  std::memcpy(contributions.data() + kContributionBytes * rank, plain.data(), kContributionBytes);
  peer.secret_done = true;
  return {};
}

Result<void> Handshake::State::begin_confirm() {
  stage = HandshakeStage::confirm;
  group_secret = hkdf_extract(th2, contributions.view());
  const Hash512 contributed = sha512({contributions.view()});
  th3 = sha512({label("conf"), th2, contributed});
  for (Rank rank = 0; rank < config.world; ++rank) {
    if (rank == me) continue;
    pair_secrets[rank] =
        hkdf_extract(th3, peers[rank].extra.view());  // [protocol A.2] XP_ij = Extract(TH3, X_ij)
    peers[rank].extra.wipe();
  }
  contributions.wipe();
  share.private_key.wipe();

  Claim claim = post_claim(me);
  auto evidence = identity->attester->quote(claim);
  secure_wipe(claim.context);
  if (!evidence) return tl::unexpected(std::move(evidence).error());
  ByteWriter message;
  message.put(finished_mac(me)).put(ByteView(evidence->encode()));
  post(slot_name("confirm", me), message.take());
  return {};
}

/// TH3 || Expand(GS, L("exporter"), 64) || u32 i; the caller wipes it. Sized at once: a growing buffer would
/// leave copies.
Claim Handshake::State::post_claim(Rank rank) const {
  const SecretBytes exporter = hkdf_expand(group_secret.view(), {label("exporter")}, kHashBytes);
  Claim claim{Phase::post, rank, Bytes(2 * kHashBytes + 4)};
  std::memcpy(claim.context.data(), th3.data(), kHashBytes);
  std::memcpy(claim.context.data() + kHashBytes, exporter.data(), kHashBytes);
  store_be(claim.context.data() + 2 * kHashBytes, std::uint32_t{rank});
  return claim;
}

/// [protocol A.2 M6] HMAC-SHA512(Expand(GS, L("finished") || u32 i, 64), TH3)
Hash512 Handshake::State::finished_mac(Rank rank) const {
  const SecretBytes key = hkdf_expand(group_secret.view(), {label("finished"), be_rank(rank)}, kHashBytes);
  return hmac_sha512(key.view(), {th3});
}

Result<void> Handshake::State::take_confirm(Rank rank, ByteView bytes) {
  if (bytes.size() < kHashBytes) {
    return fail(Code::malformed, "handshake.confirm",
                fmt::format("rank {}: a confirmation is too short", rank));
  }
  if (!constant_time_equal(finished_mac(rank), bytes.first(kHashBytes))) {
    return fail(Code::confirm, "handshake.confirm",
                fmt::format("ranks {} and {} disagree on the transcript", me, rank));
  }
  SR_TRY(const Evidence evidence, Evidence::decode(bytes.subspan(kHashBytes)));
  Claim claim = post_claim(rank);
  const auto verified = identity->verifier->verify(evidence, claim, roster.hello(rank));
  secure_wipe(claim.context);
  if (!verified) {
    Error problem = verified.error();
    problem.what = fmt::format("rank {} could not prove itself over the finished session: {}: {}", rank,
                               code_info(problem.code).name, problem.what);
    problem.code = Code::post_evidence;
    problem.stage = "handshake.confirm";
    return fail(std::move(problem));
  }
  peers[rank].confirmed = true;
  return {};
}

/// The first error is the last: secrets go, the note for the others is all that is left to post.
void Handshake::State::die(Error problem) {
  problem.rank = me;
  share.private_key.wipe();
  contributions.wipe();
  group_secret.wipe();
  pair_secrets.clear();
  for (HandshakePeer& peer : peers) {
    peer.noise.reset();
    peer.receive_key.wipe();
    peer.extra.wipe();
  }
  posts.clear();
  Note note{me, problem.code, problem.peer};
  if (note.peer >= config.world) note.peer = -1;
  post(slot_name("note", me), note.encode());
  error = std::move(problem);
}

}  // namespace sealring
