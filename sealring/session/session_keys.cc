// SessionKeys: the world group and the pair secrets of a finished handshake.
#include <algorithm>

#include "sealring/crypto/kdf.h"
#include "sealring/session/handshake.h"

namespace sealring {

SessionKeys::SessionKeys(Suite suite, Rank me, std::uint16_t world, std::array<std::byte, 64> th3,
                         SecretBytes group_secret, std::map<Rank, SecretBytes> pair_secrets)
    : suite_(suite), me_(me), world_(world), th3_(th3) {
  std::vector<Rank> members(world);
  for (Rank rank = 0; rank < world; ++rank) members[rank] = rank;
  std::array<std::byte, 32> group_id;
  const Hash512 named =
      sha512({label("world"), th3_});  // [protocol A.3] group_id = H(L("world") || TH3)[0..32)
  std::copy_n(named.begin(), group_id.size(), group_id.begin());
  for (const auto& [peer, secret] : pair_secrets) pair_secrets_.emplace(peer, secret.clone());
  world_group_ = std::make_unique<GroupKeys>(suite, me, std::move(members), group_id, th3_,
                                             std::move(group_secret), std::move(pair_secrets));
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
