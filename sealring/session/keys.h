// What a finished handshake leaves behind: one GroupKeys a group, from which every traffic key is derived
// once.
//
//   root(kind,g,i,j) = Expand(Extract(TH3_g, XP_ij), L(kind) || group_id || u32 i || u32 j, 64)
//   SS[g,i]          = Expand(GS_g, L("sender") || group_id || u32 i, 64)
//   chain C[0]=root; key_e, iv_e, C[e+1] from C[e]; C[e] erased               (protocol A.3)
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "sealring/base/result.h"
#include "sealring/base/secret.h"
#include "sealring/base/types.h"

namespace sealring {

/// One epoch's key of one direction. Move-only through SecretBytes.
struct TrafficKey {
  Suite suite = Suite::aes_256_gcm;
  Epoch epoch = 0;
  SecretBytes key;  ///< suite_key_bytes(suite); always 32 bytes are derived for plain too, unused
  SecretBytes iv;   ///< 12 bytes
};

/// The one-way chain of one root. Move-only: a root is loaded into one chain once.
class KeyChain {
 public:
  KeyChain(SecretBytes root, Suite suite);
  KeyChain(KeyChain&&) noexcept = default;
  KeyChain& operator=(KeyChain&&) noexcept = default;
  /// Derives the next epoch's key (first call: epoch 0) and erases what it came from.
  TrafficKey next();
  Epoch next_epoch() const { return next_epoch_; }
  void wipe() noexcept { chain_.wipe(); }

 private:
  SecretBytes chain_;
  Suite suite_;
  Epoch next_epoch_ = 0;
};

/// Keys of one group. Owned by the session; valid until wipe(). Thread-safe.
class GroupKeys {
 public:
  /// `pair_secrets`: global peer rank -> XP_{me,peer} (64 bytes each) for the members other than me.
  GroupKeys(Suite suite, Rank me, std::vector<Rank> members, std::array<std::byte, 32> group_id,
            std::array<std::byte, 64> th3, SecretBytes group_secret,
            std::map<Rank, SecretBytes> pair_secrets);

  Suite suite() const { return suite_; }
  Rank me() const { return me_; }                                ///< global rank
  const std::vector<Rank>& members() const { return members_; }  ///< global ranks, ascending
  const std::array<std::byte, 32>& group_id() const { return group_id_; }
  const std::array<std::byte, 64>& th3() const { return th3_; }

  /// The chain of a directional root; `from` and `to` are global ranks, one of them me; kind pair, p2p or ctl
  /// (ctl chains are always aes-256-gcm). Each (kind, from, to) is given once: a second call is a programmer
  /// error.
  KeyChain take_chain(Kind kind, Rank from, Rank to);
  /// The sender-key chain of member `from`; once.
  KeyChain take_sender_chain(Rank from);
  /// CONN[from->to] = Expand(root(conn,g,from,to), L("mac"), 32); from or to is me. May be asked again.
  SecretBytes connection_mac(Rank from, Rank to) const;
  void wipe() noexcept;

 private:
  SecretBytes root(std::string_view kind, Rank from, Rank to) const;
  Suite suite_;
  Rank me_;
  std::vector<Rank> members_;
  std::array<std::byte, 32> group_id_;
  std::array<std::byte, 64> th3_;
  SecretBytes group_secret_;
  std::map<Rank, SecretBytes> pair_secrets_;
  std::set<std::tuple<Kind, Rank, Rank>> taken_;
  mutable std::mutex mutex_;
};

}  // namespace sealring
