// SignatureBook: what this rank called, what its peers say they called, and the first place where they
// differ.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "sealring/control/messages.h"

namespace sealring {

/// The digest of an op's signature that heartbeats carry.
OpDigest digest_of(const OpContext& context);

/// One op for which a peer's digest differs from mine.
struct Mismatch {
  std::array<std::byte, 32> group_id{};
  std::uint64_t seq = 0;
  Rank peer = 0;  ///< global
  OpDigest mine{}, theirs{};
};

/// An op of mine that a peer never called, and never will: it has left.
struct Desertion {
  std::array<std::byte, 32> group_id{};
  std::uint64_t seq = 0;
  Rank peer = 0;  ///< global
};

/// Not thread-safe. Ranks are global. Point-to-point ops must stay out: their numbers count per direction.
///
/// Keeps the last GroupBeat::kMarksMax ops of each group, mine and each peer's, so that ranks of different
/// speed still meet on one seq. What peers say of groups that this rank has not begun yet is kept too, within
/// bounds.
class SignatureBook {
 public:
  explicit SignatureBook(Rank me) : me_(me) {}
  /// My next op of a group. Ops of a group come by rising seq; an older one is ignored.
  std::optional<Mismatch> issued(const OpContext& context, const std::vector<Rank>& members);
  /// A peer's heartbeat. Words of a rank that is no member of the group are ignored.
  std::optional<Mismatch> heard(Rank peer, const Heartbeat& beat);
  /// This rank's group has ended. Its last op is still told in the next beat: peers may not have finished it.
  void forget(const std::array<std::byte, 32>& group_id);
  /// A peer says nothing more: what it has told of is all that it ever called.
  void left(Rank peer);
  /// The first op of mine that a peer has left without; nullopt when there is none.
  std::optional<Desertion> deserted() const;
  /// What is to be sent to `peer` now, per group that it is a member of: the marks since the last
  /// beat_sent(), at least the last one. Several messages when one cannot hold all, one empty message when
  /// there is nothing.
  std::vector<Heartbeat> beats_for(Rank peer);
  /// All beats of one round have been made.
  void beat_sent();
  /// The last seq that `peer` has told of for a group; nullopt when none.
  std::optional<std::uint64_t> last_heard(const std::array<std::byte, 32>& group_id, Rank peer) const;
  /// Members of a group that this rank has issued an op in; empty when unknown.
  std::vector<Rank> members(const std::array<std::byte, 32>& group_id) const;

 private:
  static constexpr std::size_t kForeignGroupsMax = 256;  ///< groups heard of but not begun here
  struct PeerMarks {
    std::uint64_t last_seq = 0;
    std::deque<OpMark> marks;
  };
  /// The digest is made when somebody needs it: most ops end unsaid, and hashing would cost more than the
  /// rest.
  struct OwnOp {
    OpContext context;
    std::optional<OpDigest> digest;
    const OpDigest& known_digest();
  };
  struct Group {
    std::array<std::byte, 32> id{};
    std::vector<Rank> members;  ///< empty: this rank has issued nothing here yet
    std::deque<OwnOp> mine;
    std::size_t unsent = 0;  ///< how many of the newest of `mine` no beat has carried
    bool ended = false;      ///< forgotten here; goes with the next beat
    std::map<Rank, PeerMarks> peers;
  };
  static bool holds(const Group& group, Rank rank);
  Group& group_for_heard(const GroupTag& tag);

  Rank me_;
  std::set<Rank> left_;
  std::map<GroupTag, Group> groups_;
  std::size_t foreign_groups_ = 0;
};

}  // namespace sealring
