#include "sealring/session/handshake.h"

#include <fmt/format.h>

#include "sealring/session/handshake_state.h"

namespace sealring {

using internal::HandshakePeer;
using internal::HandshakeStage;
using internal::kContributionBytes;
using internal::Roster;
using internal::slot_name;

namespace {

constexpr std::string_view kDefaultPolicy = "sealring-policy-0";

Result<void> check_config(const HandshakeConfig& config, const Identity& identity) {
  const auto refuse = [](Code code, std::string what, std::string next = {}) {
    return fail(code, "handshake.start", std::move(what), std::move(next));
  };
  if (config.world == 0 || config.world > kRanksMax || config.rank >= config.world) {
    return refuse(Code::invalid_argument,
                  fmt::format("rank {} of a world of {} does not exist; at most {} ranks", config.rank,
                              config.world, kRanksMax));
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
    return refuse(Code::suite,
                  fmt::format("suite {} is for the study's own workers only", to_string(config.suite)),
                  "choose aes-256-gcm, aes-128-gcm or chacha20-poly1305");
  }
  return {};
}

}  // namespace

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
    const HandshakePeer& peer = s.peers[i];
    switch (s.stage) {
      case HandshakeStage::hello:
        if (!s.roster.knows(i))
          out.push_back(slot_name("hello", i));
        else if (s.roster.awaits_config(i))
          out.push_back(slot_name("config", i));
        break;
      case HandshakeStage::evidence:
        if (!peer.evidence_done) out.push_back(slot_name("evidence", i));
        break;
      case HandshakeStage::pair:
      case HandshakeStage::secret:
        if (!peer.paired)
          out.push_back(i < s.me ? slot_name("kk1", i, s.me) : slot_name("kk2", s.me, i));
        else if (!peer.secret_done)
          out.push_back(slot_name("m5", i, s.me));
        break;
      case HandshakeStage::confirm:
        if (!peer.confirmed) out.push_back(slot_name("confirm", i));
        break;
      case HandshakeStage::ready:
        break;
    }
  }
  return out;
}

std::vector<Rank> Handshake::missing() const {
  const State& s = *state_;
  std::vector<Rank> out;
  for (Rank i = 0; i < s.config.world; ++i) {
    if (i == s.me || s.error) continue;
    const HandshakePeer& peer = s.peers[i];
    const bool here = s.stage == HandshakeStage::hello      ? s.roster.knows(i) && !s.roster.awaits_config(i)
                      : s.stage == HandshakeStage::evidence ? peer.evidence_done
                      : s.stage == HandshakeStage::pair     ? peer.paired
                      : s.stage == HandshakeStage::secret   ? peer.secret_done
                                                            : peer.confirmed;
    if (!here) out.push_back(i);
  }
  return out;
}

std::string_view Handshake::stage() const { return name_of(state_->stage); }
bool Handshake::ready() const { return !state_->error && state_->stage == HandshakeStage::ready; }

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

}  // namespace sealring
