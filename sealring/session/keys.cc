#include "sealring/session/keys.h"

#include <algorithm>

#include "sealring/crypto/kdf.h"

namespace sealring {
namespace {

template <std::unsigned_integral T>
std::array<std::byte, sizeof(T)> be(T value) {
  std::array<std::byte, sizeof(T)> out;
  store_be(out.data(), value);
  return out;
}
std::array<std::byte, 4> be_rank(Rank rank) { return be(std::uint32_t{rank}); }

constexpr std::size_t kChainBytes = 64;

}  // namespace

KeyChain::KeyChain(SecretBytes root, Suite suite) : chain_(std::move(root)), suite_(suite) {
  SR_CHECK(chain_.size() == kChainBytes, "root bytes", chain_.size());
}

TrafficKey KeyChain::next() {
  SR_CHECK(!chain_.empty(), "a wiped or moved-from chain was asked for a key");
  std::byte any{0};
  for (const std::byte each : chain_.view()) any |= each;
  SR_CHECK(any != std::byte{0}, "a chain is all zeros: this process is a fork of the one that made it");
  const auto suite_field = be(static_cast<std::uint16_t>(suite_));
  const auto epoch_field = be(next_epoch_);
  TrafficKey out;
  out.suite = suite_;
  out.epoch = next_epoch_;
  // [protocol A.3] key_e = Expand(C[e], L("key") || u16 suite || u32 e, 32); iv_e alike, 12 bytes
  out.key = hkdf_expand(chain_.view(), {label("key"), suite_field, epoch_field}, 32);
  out.iv = hkdf_expand(chain_.view(), {label("iv"), suite_field, epoch_field}, kNonceBytes);
  if (suite_key_bytes(suite_) == 16) out.key = SecretBytes::copy_of(out.key.view().first(16));
  chain_ =
      hkdf_expand(chain_.view(), {label("next")}, kChainBytes);  // the old value is wiped by the assignment
  ++next_epoch_;
  SR_CHECK(next_epoch_ != 0, "a chain ran through all its epochs");
  return out;
}

GroupKeys::GroupKeys(Suite suite, Rank me, std::vector<Rank> members, std::array<std::byte, 32> group_id,
                     std::array<std::byte, 64> th3, SecretBytes group_secret,
                     std::map<Rank, SecretBytes> pair_secrets)
    : suite_(suite),
      me_(me),
      members_(std::move(members)),
      group_id_(group_id),
      th3_(th3),
      group_secret_(std::move(group_secret)),
      pair_secrets_(std::move(pair_secrets)) {
  SR_CHECK(std::adjacent_find(members_.begin(), members_.end(), std::greater_equal<>()) == members_.end(),
           "members must ascend");
  SR_CHECK(std::binary_search(members_.begin(), members_.end(), me_), "not a member: rank", me_);
  SR_CHECK(pair_secrets_.size() + 1 == members_.size() && !pair_secrets_.contains(me_), "pair secrets",
           pair_secrets_.size());
  SR_CHECK(group_secret_.size() == 64, "bytes", group_secret_.size());
  for (const auto& [peer, secret] : pair_secrets_) {
    SR_CHECK(std::binary_search(members_.begin(), members_.end(), peer) && secret.size() == 64, "peer", peer);
  }
}

SecretBytes GroupKeys::root(std::string_view kind, Rank from, Rank to) const {
  SR_CHECK(!group_secret_.empty(), "keys were asked of a wiped group");
  SR_CHECK(from != to && (from == me_ || to == me_), "from", from, "to", to, "me", me_);
  const auto pair_secret = pair_secrets_.find(from == me_ ? to : from);
  SR_CHECK(pair_secret != pair_secrets_.end(), "not a member of the group: from", from, "to", to);
  // [protocol A.3] root(kind,g,i,j) = Expand(Extract(TH3_g, XP_ij), L(kind) || group_id || u32 i || u32 j,
  // 64)
  const SecretBytes extracted = hkdf_extract(th3_, pair_secret->second.view());
  return hkdf_expand(extracted.view(), {label(kind), group_id_, be_rank(from), be_rank(to)}, kChainBytes);
}

KeyChain GroupKeys::take_chain(Kind kind, Rank from, Rank to) {
  SR_CHECK(kind == Kind::pair || kind == Kind::p2p || kind == Kind::ctl, "kind", static_cast<int>(kind));
  const std::lock_guard lock(mutex_);
  SR_CHECK(taken_.emplace(kind, from, to).second, "a chain was taken twice: kind", to_string(kind), "from",
           from, "to", to);
  const Suite suite =
      kind == Kind::ctl ? Suite::aes_256_gcm : suite_;  // [protocol A.3] ctl is always aes-256-gcm
  return KeyChain(root(to_string(kind), from, to), suite);
}

KeyChain GroupKeys::take_sender_chain(Rank from) {
  const std::lock_guard lock(mutex_);
  SR_CHECK(!group_secret_.empty(), "keys were asked of a wiped group");
  SR_CHECK(std::binary_search(members_.begin(), members_.end(), from), "not a member: rank", from);
  SR_CHECK(taken_.emplace(Kind::sender, from, kMulticast).second, "a sender chain was taken twice: from",
           from);
  // [protocol A.3] SS[g,i] = Expand(GS_g, L("sender") || group_id || u32 i, 64)
  return KeyChain(hkdf_expand(group_secret_.view(), {label("sender"), group_id_, be_rank(from)}, kChainBytes),
                  suite_);
}

SecretBytes GroupKeys::connection_mac(Rank from, Rank to) const {
  const std::lock_guard lock(mutex_);
  // [protocol A.3] CONN[i->j] = Expand(root(conn,g,i,j), L("mac"), 32)
  return hkdf_expand(root("conn", from, to).view(), {label("mac")}, 32);
}

void GroupKeys::wipe() noexcept {
  const std::lock_guard lock(mutex_);
  group_secret_.wipe();
  for (auto& [peer, secret] : pair_secrets_) secret.wipe();
}

}  // namespace sealring
