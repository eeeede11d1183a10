#include "sealring/control/signature_book.h"

#include <algorithm>

#include "sealring/crypto/kdf.h"

namespace sealring {
namespace {

std::uint64_t seq_of(const OpMark& mark) { return mark.seq; }
template <class Own>
std::uint64_t seq_of(const Own& own) {
  return own.context.seq;
}

/// Null when the window does not hold the seq.
template <class Entry>
Entry* find_seq(std::deque<Entry>& entries, std::uint64_t seq) {
  const auto at =
      std::lower_bound(entries.begin(), entries.end(), seq,
                       [](const Entry& entry, std::uint64_t wanted) { return seq_of(entry) < wanted; });
  return at != entries.end() && seq_of(*at) == seq ? &*at : nullptr;
}

template <class Entry>
void push_bounded(std::deque<Entry>& entries, Entry entry) {
  entries.push_back(std::move(entry));
  if (entries.size() > GroupBeat::kMarksMax) entries.pop_front();
}

}  // namespace

OpDigest digest_of(const OpContext& context) {
  const Bytes signature = context.signature();
  const Hash256 hash = sha256({signature});
  OpDigest out{};
  std::copy_n(hash.begin(), out.size(), out.begin());
  return out;
}

const OpDigest& SignatureBook::OwnOp::known_digest() {
  if (!digest) digest = digest_of(context);
  return *digest;
}

bool SignatureBook::holds(const Group& group, Rank rank) {
  return std::find(group.members.begin(), group.members.end(), rank) != group.members.end();
}

std::optional<Mismatch> SignatureBook::issued(const OpContext& context, const std::vector<Rank>& members) {
  const auto [at, fresh] = groups_.try_emplace(group_tag(context.group_id));
  Group& group = at->second;
  if (!fresh && group.members.empty()) --foreign_groups_;  // heard of before, mine from now on
  if (group.members.empty()) {
    group.id = context.group_id;
    group.members = members;
    if (group.members.empty()) group.members.push_back(me_);
    std::erase_if(group.peers, [&group](const auto& entry) { return !holds(group, entry.first); });
  }
  if (!group.mine.empty() && context.seq <= group.mine.back().context.seq) return std::nullopt;
  push_bounded(group.mine, OwnOp{context, std::nullopt});
  group.unsent = std::min(group.unsent + 1, group.mine.size());
  for (auto& [peer, said] : group.peers) {
    const OpMark* theirs = find_seq(said.marks, context.seq);
    if (theirs != nullptr && theirs->digest != group.mine.back().known_digest()) {
      return Mismatch{group.id, context.seq, peer, group.mine.back().known_digest(), theirs->digest};
    }
  }
  return std::nullopt;
}

SignatureBook::Group& SignatureBook::group_for_heard(const GroupTag& tag) {
  if (const auto at = groups_.find(tag); at != groups_.end()) return at->second;
  if (foreign_groups_ >=
      kForeignGroupsMax) {  // groups that were forgotten here but not yet there, or an insider
    const auto old = std::find_if(groups_.begin(), groups_.end(),
                                  [](const auto& entry) { return entry.second.members.empty(); });
    groups_.erase(old);
    --foreign_groups_;
  }
  ++foreign_groups_;
  return groups_[tag];
}

std::optional<Mismatch> SignatureBook::heard(Rank peer, const Heartbeat& beat) {
  std::optional<Mismatch> found;
  for (const GroupBeat& said : beat.groups) {
    Group& group = group_for_heard(said.group);
    if (!group.members.empty() && !holds(group, peer)) continue;
    PeerMarks& known = group.peers[peer];
    known.last_seq = std::max(known.last_seq, said.last_seq);
    for (const OpMark& mark : said.marks) {
      if (!known.marks.empty() && mark.seq <= known.marks.back().seq)
        continue;  // each beat repeats its last op
      push_bounded(known.marks, mark);
      OwnOp* mine = find_seq(group.mine, mark.seq);
      if (mine != nullptr && !found && mine->known_digest() != mark.digest) {
        found = Mismatch{group.id, mark.seq, peer, mine->known_digest(), mark.digest};
      }
    }
  }
  return found;
}

void SignatureBook::forget(const std::array<std::byte, 32>& group_id) {
  const auto at = groups_.find(group_tag(group_id));
  if (at == groups_.end()) return;
  if (at->second.unsent > 0) {
    at->second.ended = true;
    return;
  }
  if (at->second.members.empty()) --foreign_groups_;
  groups_.erase(at);
}

void SignatureBook::left(Rank peer) { left_.insert(peer); }

std::optional<Desertion> SignatureBook::deserted() const {
  if (left_.empty()) return std::nullopt;
  for (const auto& [tag, group] : groups_) {
    if (group.mine.empty() || group.ended) continue;
    for (const Rank peer : left_) {
      if (!holds(group, peer)) continue;
      const auto said = group.peers.find(peer);
      const std::uint64_t called = said == group.peers.end() ? 0 : said->second.last_seq + 1;
      if (const std::uint64_t mine = group.mine.back().context.seq; mine >= called) {
        return Desertion{group.id, std::max(called, group.mine.front().context.seq), peer};
      }
    }
  }
  return std::nullopt;
}

std::vector<Heartbeat> SignatureBook::beats_for(Rank peer) {
  std::vector<Heartbeat> out(1);
  for (auto& [tag, group] : groups_) {
    if (group.mine.empty() || !holds(group, peer)) continue;
    if (out.back().groups.size() == Heartbeat::kGroupsMax) out.emplace_back();
    GroupBeat beat;
    beat.group = tag;
    beat.last_seq = group.mine.back().context.seq;
    const std::size_t marks = std::max<std::size_t>(group.unsent, 1);
    for (auto own = group.mine.end() - static_cast<std::ptrdiff_t>(marks); own != group.mine.end(); ++own) {
      beat.marks.push_back({own->context.seq, own->known_digest()});
    }
    out.back().groups.push_back(std::move(beat));
  }
  return out;
}

void SignatureBook::beat_sent() {
  for (auto& [tag, group] : groups_) group.unsent = 0;
  std::erase_if(groups_, [](const auto& entry) { return entry.second.ended; });
}

std::optional<std::uint64_t> SignatureBook::last_heard(const std::array<std::byte, 32>& group_id,
                                                       Rank peer) const {
  const auto at = groups_.find(group_tag(group_id));
  if (at == groups_.end()) return std::nullopt;
  const auto said = at->second.peers.find(peer);
  if (said == at->second.peers.end()) return std::nullopt;
  return said->second.last_seq;
}

std::vector<Rank> SignatureBook::members(const std::array<std::byte, 32>& group_id) const {
  const auto at = groups_.find(group_tag(group_id));
  return at == groups_.end() ? std::vector<Rank>{} : at->second.members;
}

}  // namespace sealring
