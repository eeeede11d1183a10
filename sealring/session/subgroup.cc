// The subgroup exchange (protocol A.2, "Subgroup g"): fresh nonces, a secret from each to each,
// confirmations.
#include <fmt/format.h>

#include <algorithm>

#include "sealring/crypto/aead.h"
#include "sealring/crypto/kdf.h"
#include "sealring/session/handshake.h"
#include "sealring/session/roster.h"
#include "sealring/session/slots.h"

namespace sealring {

using internal::Slot;
using internal::slot_name;

namespace {

constexpr std::size_t kContributionBytes = 32;
constexpr std::size_t kMacBytes = 64;
constexpr std::size_t kMessageBytesMax = 64;
using GroupNonce = std::array<std::byte, 32>;

enum class Stage { nonce, secret, confirm, ready };

std::string_view name_of(Stage stage) {
  switch (stage) {
    case Stage::nonce:
      return "nonce";
    case Stage::secret:
      return "secret";
    case Stage::confirm:
      return "confirm";
    case Stage::ready:
      return "ready";
  }
  return "?";
}

std::array<std::byte, 4> be_rank(Rank rank) {
  std::array<std::byte, 4> out;
  store_be(out.data(), std::uint32_t{rank});
  return out;
}

struct Member {
  Rank rank = 0;  ///< global
  bool nonce_done = false, secret_done = false, confirmed = false;
  GroupNonce nonce{};
  SecretBytes pair_secret;  ///< XP_{me,rank}; empty for me
};

}  // namespace

struct SubgroupHandshake::State {
  Suite suite = Suite::aes_256_gcm;
  Rank me = 0;
  Hash512 session_th3{};
  Stage stage = Stage::nonce;
  std::vector<Member> members;  ///< ascending
  std::size_t my_index = 0;
  SecretBytes contributions;  ///< c'_i in the order of members
  Hash512 group_hash{}, th3{};
  SecretBytes group_secret;
  std::vector<Post> posts;
  std::map<std::string, Hash256, std::less<>> received;
  std::optional<Error> error;

  void post(std::string slot, Bytes bytes) {
    if (members.size() > 1) posts.push_back({std::move(slot), std::move(bytes)});
  }
  bool every(bool Member::*done) const {
    return std::all_of(members.begin(), members.end(), [done](const Member& member) { return member.*done; });
  }
  Member* find(Rank rank) {
    const auto found =
        std::find_if(members.begin(), members.end(), [rank](const Member& m) { return m.rank == rank; });
    return found == members.end() || rank == me ? nullptr : &*found;
  }
  std::size_t index_of(const Member& member) const {
    return static_cast<std::size_t>(&member - members.data());
  }

  Member* awaits(const Slot& slot);
  Result<void> take(const std::string& name, ByteView bytes);
  void advance();
  Result<void> take_nonce(Member& member, ByteView bytes);
  void begin_secrets();
  Aead secret_cipher(const Member& with, Rank from, Rank to) const;
  Result<void> take_secret(Member& member, ByteView bytes);
  void begin_confirm();
  Hash512 finished_mac(Rank rank) const;
  Result<void> take_confirm(Member& member, ByteView bytes);
  void die(Error problem);
};

Result<SubgroupHandshake> SubgroupHandshake::start(const SessionKeys& session, std::vector<Rank> ranks) {
  const auto refuse = [&session](std::string what) {
    Error error;
    error.code = Code::invalid_argument;
    error.rank = session.rank();
    error.stage = "subgroup.start";
    error.what = std::move(what);
    return fail(std::move(error));
  };
  if (std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) != ranks.end()) {
    return refuse("the members of a group must ascend, each once");
  }
  if (!std::binary_search(ranks.begin(), ranks.end(), session.rank())) {
    return refuse(fmt::format("rank {} is no member of the group that it is to start", session.rank()));
  }
  if (ranks.back() >= session.world()) {
    return refuse(fmt::format("rank {} does not exist in a world of {}", ranks.back(), session.world()));
  }
  auto state = std::make_unique<State>();
  state->suite = session.suite();
  state->me = session.rank();
  state->session_th3 = session.th3();
  state->contributions = SecretBytes(kContributionBytes * ranks.size());
  for (const Rank rank : ranks) {
    Member member;
    member.rank = rank;
    if (rank == state->me) {
      state->my_index = state->members.size();
      member.nonce_done = member.secret_done = member.confirmed = true;
      random_bytes(member.nonce);
    } else {
      member.pair_secret = session.pair_secret(rank);
    }
    state->members.push_back(std::move(member));
  }
  random_bytes(state->contributions.span().subspan(kContributionBytes * state->my_index, kContributionBytes));
  state->post(slot_name("nonce", state->me), to_bytes(state->members[state->my_index].nonce));
  state->advance();
  return SubgroupHandshake(std::move(state));
}

SubgroupHandshake::SubgroupHandshake(std::unique_ptr<State> state) : state_(std::move(state)) {}
SubgroupHandshake::SubgroupHandshake(SubgroupHandshake&&) noexcept = default;
SubgroupHandshake& SubgroupHandshake::operator=(SubgroupHandshake&&) noexcept = default;
SubgroupHandshake::~SubgroupHandshake() = default;

std::vector<Post> SubgroupHandshake::take_posts() { return std::exchange(state_->posts, {}); }
std::string_view SubgroupHandshake::stage() const { return name_of(state_->stage); }
bool SubgroupHandshake::ready() const { return !state_->error && state_->stage == Stage::ready; }

std::vector<std::string> SubgroupHandshake::awaited() const {
  const State& s = *state_;
  std::vector<std::string> out;
  for (const Rank rank : missing()) {
    out.push_back(s.stage == Stage::nonce    ? slot_name("nonce", rank)
                  : s.stage == Stage::secret ? slot_name("m5sub", rank, s.me)
                                             : slot_name("confirm", rank));
  }
  return out;
}

std::vector<Rank> SubgroupHandshake::missing() const {
  const State& s = *state_;
  std::vector<Rank> out;
  for (const Member& member : s.members) {
    const bool here = s.stage == Stage::nonce    ? member.nonce_done
                      : s.stage == Stage::secret ? member.secret_done
                                                 : member.confirmed;
    if (!here && !s.error) out.push_back(member.rank);
  }
  return out;
}

Result<void> SubgroupHandshake::receive(const std::string& slot, ByteView bytes) {
  SR_CHECK(state_ != nullptr, "a finished handshake was fed");
  State& s = *state_;
  if (s.error) return fail(*s.error);
  auto taken = s.take(slot, bytes);
  if (!taken) s.die(std::move(taken).error());
  if (s.error) return fail(*s.error);
  return {};
}

std::unique_ptr<GroupKeys> SubgroupHandshake::finish() && {
  SR_CHECK(ready(), "keys were asked for before every CONFIRM; stage", stage());
  const std::unique_ptr<State> state = std::move(state_);
  std::vector<Rank> ranks;
  std::map<Rank, SecretBytes> pair_secrets;
  for (Member& member : state->members) {
    ranks.push_back(member.rank);
    if (member.rank != state->me) pair_secrets.emplace(member.rank, std::move(member.pair_secret));
  }
  std::array<std::byte, 32> group_id;  // [protocol A.2] group_id = gh[0..32)
  std::copy_n(state->group_hash.begin(), group_id.size(), group_id.begin());
  return std::make_unique<GroupKeys>(state->suite, state->me, std::move(ranks), group_id, state->th3,
                                     std::move(state->group_secret), std::move(pair_secrets));
}

/// The member whose message this slot holds; nullptr when it is not awaited.
Member* SubgroupHandshake::State::awaits(const Slot& slot) {
  Member* member = find(slot.first);
  if (member == nullptr) return nullptr;
  bool wanted = false;
  if (slot.kind == "nonce") wanted = !slot.second && stage == Stage::nonce && !member->nonce_done;
  if (slot.kind == "m5sub") wanted = slot.second == me && stage == Stage::secret && !member->secret_done;
  if (slot.kind == "confirm") wanted = !slot.second && stage == Stage::confirm && !member->confirmed;
  return wanted ? member : nullptr;
}

Result<void> SubgroupHandshake::State::take(const std::string& name, ByteView bytes) {
  const auto slot = internal::parse_slot(name);
  const auto refuse = [&](Code code, std::string what) -> Result<void> {
    Error problem;
    problem.code = code;
    problem.stage = fmt::format("subgroup.{}", name_of(stage));
    problem.what = std::move(what);
    if (slot) problem.peer = slot->first;
    return fail(std::move(problem));
  };
  if (bytes.size() > std::max(kMessageBytesMax, kMacBytes)) {
    return refuse(Code::malformed, "a message is longer than any can be");
  }
  const Hash256 digest = sha256({bytes});
  if (const auto before = received.find(name); before != received.end()) {
    if (before->second == digest) return {};
    return refuse(Code::malformed, fmt::format("slot {} changed after it was read", name));
  }
  Member* member = slot ? awaits(*slot) : nullptr;
  if (member == nullptr) {
    return refuse(Code::invalid_argument, fmt::format("slot {} is not awaited in stage {}",
                                                      internal::printable(name, 64), name_of(stage)));
  }
  received.emplace(name, digest);
  auto taken = slot->kind == "nonce"   ? take_nonce(*member, bytes)
               : slot->kind == "m5sub" ? take_secret(*member, bytes)
                                       : take_confirm(*member, bytes);
  if (!taken) {
    taken.error().peer = slot->first;
    return taken;
  }
  advance();
  return {};
}

void SubgroupHandshake::State::advance() {
  if (stage == Stage::nonce && every(&Member::nonce_done)) begin_secrets();
  if (stage == Stage::secret && every(&Member::secret_done)) begin_confirm();
  if (stage == Stage::confirm && every(&Member::confirmed)) stage = Stage::ready;
}

Result<void> SubgroupHandshake::State::take_nonce(Member& member, ByteView bytes) {
  if (bytes.size() != member.nonce.size()) {
    return fail(Code::malformed, "subgroup.nonce",
                fmt::format("the nonce of rank {} has a wrong size", member.rank));
  }
  std::memcpy(member.nonce.data(), bytes.data(), bytes.size());
  for (const Member& other : members) {
    if (&other != &member && other.nonce_done && other.nonce == member.nonce) {
      return fail(Code::duplicate, "subgroup.nonce",
                  fmt::format("ranks {} and {} present the same nonce", other.rank, member.rank));
    }
  }
  member.nonce_done = true;
  return {};
}

void SubgroupHandshake::State::begin_secrets() {
  stage = Stage::secret;
  // [protocol A.2] gh = H(L("group") || TH3 || u32 m || global ranks || N' in that order)
  ByteWriter input;
  input.put(static_cast<std::uint32_t>(members.size()));
  for (const Member& member : members) input.put(std::uint32_t{member.rank});
  for (const Member& member : members) input.put(member.nonce);
  group_hash = sha512({label("group"), session_th3, input.bytes()});
  const ByteView mine = contributions.view().subspan(kContributionBytes * my_index, kContributionBytes);
  for (const Member& member : members) {
    if (member.rank == me) continue;
    // One message under a single-use key: this machine's own nonce is in gh and it passes here once.
    Bytes sealed(kContributionBytes + kTagBytes);
    const auto tag =
        secret_cipher(member, me, member.rank)
            .seal(nonce_of({}, 0), group_hash, mine, std::span(sealed).first(kContributionBytes));
    SR_CHECK(tag.has_value());
    std::memcpy(sealed.data() + kContributionBytes, tag->data(), kTagBytes);
    post(slot_name("m5sub", me, member.rank), std::move(sealed));
  }
}

/// [protocol A.2] AES-256-GCM under Expand(XP_ij, L("m5sub") || gh || u32 i || u32 j, 32)
Aead SubgroupHandshake::State::secret_cipher(const Member& with, Rank from, Rank to) const {
  const SecretBytes key =
      hkdf_expand(with.pair_secret.view(), {label("m5sub"), group_hash, be_rank(from), be_rank(to)}, 32);
  auto cipher = Aead::make(Suite::aes_256_gcm, key.view());
  SR_CHECK(cipher.has_value());
  return *std::move(cipher);
}

Result<void> SubgroupHandshake::State::take_secret(Member& member, ByteView bytes) {
  if (bytes.size() != kContributionBytes + kTagBytes) {
    return fail(Code::pair_auth, "subgroup.secret",
                fmt::format("peer {} sent a secret of a wrong size", member.rank));
  }
  Tag tag;
  std::memcpy(tag.data(), bytes.data() + kContributionBytes, kTagBytes);
  const auto out = contributions.span().subspan(kContributionBytes * index_of(member), kContributionBytes);
  const auto opened = secret_cipher(member, member.rank, me)
                          .open(nonce_of({}, 0), group_hash, bytes.first(kContributionBytes), tag, out);
  if (!opened) {
    return fail(Code::pair_auth, "subgroup.secret",
                fmt::format("peer {} does not hold the pair's key, or saw other nonces", member.rank));
  }
  member.secret_done = true;
  return {};
}

void SubgroupHandshake::State::begin_confirm() {
  stage = Stage::confirm;
  group_secret = hkdf_extract(group_hash, contributions.view());
  const Hash512 contributed = sha512({contributions.view()});
  th3 = sha512({label("conf"), group_hash, contributed});
  contributions.wipe();
  post(slot_name("confirm", me), to_bytes(finished_mac(me)));
}

Hash512 SubgroupHandshake::State::finished_mac(Rank rank) const {
  const SecretBytes key = hkdf_expand(group_secret.view(), {label("finished"), be_rank(rank)}, kMacBytes);
  return hmac_sha512(key.view(), {th3});
}

Result<void> SubgroupHandshake::State::take_confirm(Member& member, ByteView bytes) {
  if (!constant_time_equal(finished_mac(member.rank), bytes)) {
    return fail(Code::confirm, "subgroup.confirm",
                fmt::format("ranks {} and {} disagree on the transcript", me, member.rank));
  }
  member.confirmed = true;
  return {};
}

void SubgroupHandshake::State::die(Error problem) {
  problem.rank = me;
  contributions.wipe();
  group_secret.wipe();
  for (Member& member : members) member.pair_secret.wipe();
  posts.clear();
  error = std::move(problem);
}

}  // namespace sealring
