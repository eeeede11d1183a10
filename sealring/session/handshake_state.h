// The state of the roster-KK machine: handshake.cc is its outside, handshake_stages.cc what each message
// does. Private to session/.
#pragma once

#include <algorithm>
#include <optional>

#include "sealring/crypto/kdf.h"
#include "sealring/session/handshake.h"
#include "sealring/session/noise.h"
#include "sealring/session/roster.h"
#include "sealring/session/slots.h"

namespace sealring {
namespace internal {

inline constexpr std::size_t kContributionBytes = 32;

enum class HandshakeStage { hello, evidence, pair, secret, confirm, ready };

std::string_view name_of(HandshakeStage stage);

/// What I know of one peer. Mine at [me] has everything done from the start.
struct HandshakePeer {
  bool evidence_done = false, paired = false, secret_done = false, confirmed = false;
  Hash512 evidence_hash{};
  std::optional<NoiseKk> noise;  ///< between the two messages only
  SecretBytes receive_key;       ///< of M5, used once
  SecretBytes extra;             ///< X_ij
  Hash512 pair_hash{};           ///< h_ij
};

}  // namespace internal

struct Handshake::State {
  State(HandshakeConfig given, const Identity& who, Hello hello, X25519KeyPair pair)
      : config(std::move(given)),
        identity(&who),
        me(config.rank),
        share(std::move(pair)),
        roster(std::move(hello), config.config_text),
        peers(config.world),
        contributions(internal::kContributionBytes * config.world) {
    peers[me].evidence_done = peers[me].paired = peers[me].secret_done = peers[me].confirmed = true;
  }

  HandshakeConfig config;
  const Identity* identity;
  Rank me;
  X25519KeyPair share;  ///< S_me, this session only
  internal::Roster roster;
  internal::HandshakeStage stage = internal::HandshakeStage::hello;
  std::vector<internal::HandshakePeer> peers;
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
  bool every(bool internal::HandshakePeer::*done) const {
    return std::all_of(peers.begin(), peers.end(),
                       [done](const internal::HandshakePeer& peer) { return peer.*done; });
  }
  Claim join_claim(Rank rank) const {
    // [protocol A.1] TH1 || u32 i || H(HELLO_i)
    const Hash512 hello = sha512({roster.hello(rank).encode()});
    return {Phase::join, rank, ByteWriter().put(th1).put(std::uint32_t{rank}).put(hello).take()};
  }

  bool awaits(const internal::Slot& slot) const;
  Result<void> take(const std::string& name, ByteView bytes);
  Result<void> dispatch(const internal::Slot& slot, ByteView bytes);
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

}  // namespace sealring
