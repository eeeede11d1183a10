#include "sealring/session/handshake.h"

#include <fmt/format.h>

#include <algorithm>

#include "sealring/crypto/aead.h"
#include "sealring/crypto/kdf.h"
#include "sealring/session/noise.h"
#include "sealring/session/roster.h"
#include "sealring/session/slots.h"

namespace sealring {

using internal::Roster;
using internal::Slot;
using internal::slot_name;

namespace {

constexpr std::size_t kContributionBytes = 32;
constexpr std::size_t kHashBytes = 64;
constexpr std::size_t kSecretPlainBytes = kContributionBytes + kHashBytes;  // c_i || h_ij
constexpr std::size_t kMessageBytesMax = 64 * 1024 + kHashBytes;            // CONFIRM with the largest evidence
constexpr std::string_view kDefaultPolicy = "sealring-policy-0";

enum class Stage { hello, evidence, pair, secret, confirm, ready };

std::string_view name_of(Stage stage) {
  switch (stage) {
    case Stage::hello: return "hello";
    case Stage::evidence: return "evidence";
    case Stage::pair: return "pair";
    case Stage::secret: return "secret";
    case Stage::confirm: return "confirm";
    case Stage::ready: return "ready";
  }
  return "?";
}

std::array<std::byte, 4> be_rank(Rank rank) {
  std::array<std::byte, 4> out;
  store_be(out.data(), std::uint32_t{rank});
  return out;
}

/// What I know of one peer. Mine at [me] has everything done from the start.
struct Peer {
  bool evidence_done = false, paired = false, secret_done = false, confirmed = false;
  Hash512 evidence_hash{};
  std::optional<NoiseKk> noise;  ///< between the two messages only
  SecretBytes receive_key;       ///< of M5, used once
  SecretBytes extra;             ///< X_ij
  Hash512 pair_hash{};           ///< h_ij
};

Result<void> check_config(const HandshakeConfig& config, const Identity& identity) {
  const auto refuse = [](Code code, std::string what, std::string next = {}) {
    return fail(code, "handshake.start", std::move(what), std::move(next));
  };
  if (config.world == 0 || config.world > kRanksMax || config.rank >= config.world) {
    return refuse(Code::invalid_argument, fmt::format("rank {} of a world of {} does not exist; at most {} ranks",
                                                      config.rank, config.world, kRanksMax));
  }
  if (config.config_text.size() > Roster::kConfigBytesMax) {
    return refuse(Code::invalid_argument, "the text of the settings is too long");
  }
  if (identity.attester == nullptr || identity.verifier == nullptr) {
    return refuse(Code::no_identity, "no identity is configured");
  }
  const auto suites = all_suites();
  if (std::find(suites.begin(), suites.end(), config.suite) == suites.end()) {
    return refuse(Code::suite, fmt::format("there is no suite {}", static_cast<unsigned>(config.suite)));
  }
  if (suite_is_study(config.suite) && identity.attester->kind() != IdentityKind::study) {
    return refuse(Code::suite, fmt::format("suite {} is for the study's own workers only", to_string(config.suite)),
                  "choose aes-256-gcm, aes-128-gcm or chacha20-poly1305");
  }
  return {};
}

}  // namespace

struct Handshake::State {
  State(HandshakeConfig given, const Identity& who, Hello hello, X25519KeyPair pair)
      : config(std::move(given)), identity(&who), me(config.rank), share(std::move(pair)),
        roster(std::move(hello), config.config_text), peers(config.world),
        contributions(kContributionBytes * config.world) {
    peers[me].evidence_done = peers[me].paired = peers[me].secret_done = peers[me].confirmed = true;
  }

  HandshakeConfig config;
  const Identity* identity;
  Rank me;
  X25519KeyPair share;  ///< S_me, this session only
  Roster roster;
  Stage stage = Stage::hello;
  std::vector<Peer> peers;
  SecretBytes contributions;  ///< c_0 || ... || c_{n-1}
  Hash512 th1{}, th2{}, th3{};
  SecretBytes group_secret;
  std::map<Rank, SecretBytes> pair_secrets;  ///< XP_{me,peer}
  std::vector<Post> posts;
  std::map<std::string, Hash256, std::less<>> received;
  std::optional<Error> error;

  void post(std::string slot, Bytes bytes) {
    if (config.world > 1) posts.push_back({std::move(slot), std::move(bytes)});
  }
  bool every(bool Peer::*done) const {
    return std::all_of(peers.begin(), peers.end(), [done](const Peer& peer) { return peer.*done; });
  }
  Claim join_claim(Rank rank) const {
    // [protocol A.1] TH1 || u32 i || H(HELLO_i)
    const Hash512 hello = sha512({roster.hello(rank).encode()});
    return {Phase::join, rank, ByteWriter().put(th1).put(std::uint32_t{rank}).put(hello).take()};
  }

  bool awaits(const Slot& slot) const;
  Result<void> take(const std::string& name, ByteView bytes);
  Result<void> dispatch(const Slot& slot, ByteView bytes);
  Result<void> advance();
  Result<void> begin_evidence();
  Result<void> take_evidence(Rank peer, ByteView bytes);
  Result<void> begin_pairs();
  NoiseKk make_noise(Rank peer) const;
  Result<void> take_first(Rank peer, ByteView bytes);
  Result<void> take_second(Rank peer, ByteView bytes);
  void finish_pair(Rank peer, NoiseKk noise);
  Result<void> take_secret(Rank peer, ByteView bytes);
  Result<void> begin_confirm();
  Claim post_claim(Rank rank) const;
  Hash512 finished_mac(Rank rank) const;
  Result<void> take_confirm(Rank peer, ByteView bytes);
  void die(Error problem);
};

Result<Handshake> Handshake::start(HandshakeConfig config, const Identity& identity) {
  auto checked = check_config(config, identity);
  if (!checked) {
    checked.error().rank = config.rank;
    return tl::unexpected(std::move(checked).error());
  }
  X25519KeyPair share = X25519KeyPair::generate();
  Hello hello;
  hello.suite = config.suite;
  hello.world = config.world;
  hello.rank = config.rank;
  hello.identity = identity.attester->kind();
  hello.job_id = identity.job_id;
  hello.policy_hash = sha256({config.policy.empty() ? as_bytes(kDefaultPolicy) : ByteView(config.policy)});
  hello.config_hash = sha256({as_bytes(config.config_text)});
  random_bytes(hello.nonce);
  hello.share = share.public_key;
  if (auto described = identity.attester->describe(hello); !described) {
    described.error().rank = config.rank;
    return tl::unexpected(std::move(described).error());
  }
  auto state = std::make_unique<State>(std::move(config), identity, hello, std::move(share));
  random_bytes(state->contributions.span().subspan(kContributionBytes * state->me, kContributionBytes));
  // The text goes first: whoever sees the HELLO may need it at once.
  state->post(slot_name("config", state->me), to_bytes(as_bytes(state->config.config_text)));
  state->post(slot_name("hello", state->me), hello.encode());
  if (state->config.world == 1) state->roster.add_mine();
  if (auto advanced = state->advance(); !advanced) {
    advanced.error().rank = state->me;
    return tl::unexpected(std::move(advanced).error());
  }
  return Handshake(std::move(state));
}

Handshake::Handshake(std::unique_ptr<State> state) : state_(std::move(state)) {}
Handshake::Handshake(Handshake&&) noexcept = default;
Handshake& Handshake::operator=(Handshake&&) noexcept = default;
Handshake::~Handshake() = default;

std::vector<Post> Handshake::take_posts() { return std::exchange(state_->posts, {}); }

std::vector<std::string> Handshake::awaited() const {
  const State& s = *state_;
  std::vector<std::string> out;
  if (s.error) return out;
  for (Rank i = 0; i < s.config.world; ++i) {
    const Peer& peer = s.peers[i];
    switch (s.stage) {
      case Stage::hello:
        if (!s.roster.knows(i)) out.push_back(slot_name("hello", i));
        else if (s.roster.awaits_config(i)) out.push_back(slot_name("config", i));
        break;
      case Stage::evidence:
        if (!peer.evidence_done) out.push_back(slot_name("evidence", i));
        break;
      case Stage::pair: case Stage::secret:
        if (!peer.paired) out.push_back(i < s.me ? slot_name("kk1", i, s.me) : slot_name("kk2", s.me, i));
        else if (!peer.secret_done) out.push_back(slot_name("m5", i, s.me));
        break;
      case Stage::confirm:
        if (!peer.confirmed) out.push_back(slot_name("confirm", i));
        break;
      case Stage::ready: break;
    }
  }
  return out;
}

std::vector<Rank> Handshake::missing() const {
  const State& s = *state_;
  std::vector<Rank> out;
  for (Rank i = 0; i < s.config.world; ++i) {
    if (i == s.me || s.error) continue;
    const Peer& peer = s.peers[i];
    const bool here = s.stage == Stage::hello      ? s.roster.knows(i) && !s.roster.awaits_config(i)
                      : s.stage == Stage::evidence ? peer.evidence_done
                      : s.stage == Stage::pair     ? peer.paired
                      : s.stage == Stage::secret   ? peer.secret_done
                                                   : peer.confirmed;
    if (!here) out.push_back(i);
  }
  return out;
}

std::string_view Handshake::stage() const { return name_of(state_->stage); }
bool Handshake::ready() const { return !state_->error && state_->stage == Stage::ready; }

Result<void> Handshake::receive(const std::string& slot, ByteView bytes) {
  SR_CHECK(state_ != nullptr, "a finished handshake was fed");
  State& s = *state_;
  if (s.error) return fail(*s.error);
  auto taken = s.take(slot, bytes);
  if (!taken) s.die(std::move(taken).error());
  if (s.error) return fail(*s.error);
  return {};
}

std::unique_ptr<SessionKeys> Handshake::finish() && {
  SR_CHECK(ready(), "keys were asked for before n valid CONFIRMs; stage", stage());
  const std::unique_ptr<State> state = std::move(state_);
  return std::make_unique<SessionKeys>(state->config.suite, state->me, state->config.world, state->th3,
                                       std::move(state->group_secret), std::move(state->pair_secrets));
}

bool Handshake::State::awaits(const Slot& slot) const {
  const Rank first = slot.first;
  if (first >= config.world) return false;
  if (!slot.second) {
    if (slot.kind == "hello") return stage == Stage::hello && !roster.knows(first);
    if (slot.kind == "config") return stage == Stage::hello && first != me;
    if (slot.kind == "evidence") return stage == Stage::evidence && !peers[first].evidence_done;
    return slot.kind == "confirm" && stage == Stage::confirm && !peers[first].confirmed;
  }
  const Rank second = *slot.second;
  const bool pairing = stage == Stage::pair || stage == Stage::secret;
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
    return refuse(Code::invalid_argument,
                  fmt::format("slot {} is not awaited in stage {}", internal::printable(name, 64), name_of(stage)));
  }
  received.emplace(name, digest);
  auto taken = dispatch(*slot, bytes);
  if (!taken && taken.error().peer < 0) taken.error().peer = slot->kind == "kk2" ? *slot->second : slot->first;
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
  if (stage == Stage::hello && roster.complete()) SR_TRY(begin_evidence());
  if (stage == Stage::evidence && every(&Peer::evidence_done)) SR_TRY(begin_pairs());
  if (stage == Stage::pair && every(&Peer::paired)) stage = Stage::secret;
  if (stage == Stage::secret && every(&Peer::secret_done)) SR_TRY(begin_confirm());
  if (stage == Stage::confirm && every(&Peer::confirmed)) {
    stage = Stage::ready;
    received.clear();
  }
  return {};
}

Result<void> Handshake::State::begin_evidence() {
  stage = Stage::evidence;
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
  stage = Stage::pair;
  ByteWriter hashes;
  for (const Peer& peer : peers) hashes.put(peer.evidence_hash);
  th2 = sha512({label("evid"), th1, hashes.bytes()});
  for (Rank rank = static_cast<Rank>(me + 1); rank < config.world; ++rank) {  // the lower rank is the initiator
    Peer& peer = peers[rank];
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
  parameters.prologue = ByteWriter().put(ByteView(label("pair"))).put(th2).put(be_rank(low)).put(be_rank(high)).take();
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
  Peer& peer = peers[rank];
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
  const auto tag = cipher->seal(nonce_of({}, 0), {}, plain.view(), std::span(sealed).first(kSecretPlainBytes));
  SR_CHECK(tag.has_value());
  std::memcpy(sealed.data() + kSecretPlainBytes, tag->data(), kTagBytes);
  post(slot_name("m5", me, rank), std::move(sealed));
}

Result<void> Handshake::State::take_secret(Rank rank, ByteView bytes) {
  Peer& peer = peers[rank];
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
  stage = Stage::confirm;
  group_secret = hkdf_extract(th2, contributions.view());
  const Hash512 contributed = sha512({contributions.view()});
  th3 = sha512({label("conf"), th2, contributed});
  for (Rank rank = 0; rank < config.world; ++rank) {
    if (rank == me) continue;
    pair_secrets[rank] = hkdf_extract(th3, peers[rank].extra.view());  // [protocol A.2] XP_ij = Extract(TH3, X_ij)
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

/// TH3 || Expand(GS, L("exporter"), 64) || u32 i; the caller wipes it. Sized at once: a growing buffer would leave copies.
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
    return fail(Code::malformed, "handshake.confirm", fmt::format("rank {}: a confirmation is too short", rank));
  }
  if (!constant_time_equal(finished_mac(rank), bytes.first(kHashBytes))) {
    return fail(Code::confirm, "handshake.confirm", fmt::format("ranks {} and {} disagree on the transcript", me, rank));
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
  for (Peer& peer : peers) {
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

SessionKeys::SessionKeys(Suite suite, Rank me, std::uint16_t world, std::array<std::byte, 64> th3,
                         SecretBytes group_secret, std::map<Rank, SecretBytes> pair_secrets)
    : suite_(suite), me_(me), world_(world), th3_(th3) {
  std::vector<Rank> members(world);
  for (Rank rank = 0; rank < world; ++rank) members[rank] = rank;
  std::array<std::byte, 32> group_id;
  const Hash512 named = sha512({label("world"), th3_});  // [protocol A.3] group_id = H(L("world") || TH3)[0..32)
  std::copy_n(named.begin(), group_id.size(), group_id.begin());
  for (const auto& [peer, secret] : pair_secrets) pair_secrets_.emplace(peer, secret.clone());
  world_group_ = std::make_unique<GroupKeys>(suite, me, std::move(members), group_id, th3_, std::move(group_secret),
                                             std::move(pair_secrets));
}

SecretBytes SessionKeys::pair_secret(Rank peer) const {
  const auto found = pair_secrets_.find(peer);
  SR_CHECK(found != pair_secrets_.end() && !found->second.empty(), "no secret with peer", peer);
  return found->second.clone();
}

void SessionKeys::wipe() noexcept {
  for (auto& [peer, secret] : pair_secrets_) secret.wipe();
  world_group_->wipe();
}

}  // namespace sealring
