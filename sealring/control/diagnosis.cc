#include "sealring/control/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sealring {
namespace {

using GroupId = std::array<std::byte, 32>;

bool takes_part(const OpContext& op) { return op.op != Op::send; }  // p2p numbers count per direction

std::string rank_list(const std::vector<Rank>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) out += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  return out;
}

std::string differing_fields(const OpContext& a, const OpContext& b) {
  std::string out;
  const auto note = [&out](bool differs, std::string_view name) {
    if (differs) out += fmt::format("{}{}", out.empty() ? "" : ", ", name);
  };
  note(a.op != b.op, "op");
  note(a.dtype != b.dtype, "dtype");
  note(a.elements != b.elements, "elements");
  note(a.redop != b.redop, "redop");
  note(a.root != b.root, "root");
  note(a.algorithm != b.algorithm, "algorithm");
  return out;
}

/// The records of one op: every rank that told of it.
using OpRecords = std::map<Rank, const OpContext*>;

/// By group, then seq; only groups that this rank has called something in, and their members.
std::map<std::pair<GroupId, std::uint64_t>, OpRecords> records_by_op(const DiagnosisInput& input) {
  std::map<std::pair<GroupId, std::uint64_t>, OpRecords> out;
  const auto add = [&](Rank rank, const std::vector<OpContext>& ops) {
    for (const OpContext& op : ops) {
      if (!takes_part(op)) continue;
      const auto group = input.members.find(op.group_id);
      if (group == input.members.end()) continue;
      if (std::find(group->second.begin(), group->second.end(), rank) == group->second.end()) continue;
      out[{op.group_id, op.seq}].emplace(rank, &op);
    }
  };
  add(input.me, input.mine);
  for (const auto& [rank, peer] : input.peers) add(rank, peer.ops);
  return out;
}

std::string mismatch_line(const DiagnosisInput& input) {
  for (const auto& [key, records] : records_by_op(input)) {
    const auto own = records.find(input.me);
    const auto reference = own != records.end() ? own : records.begin();
    const Bytes wanted = reference->second->signature();
    std::vector<Rank> others;
    const OpContext* other = nullptr;
    for (const auto& [rank, op] : records) {
      const bool differs = op->signature() != wanted;
      if (differs && other == nullptr) other = op;
      if (differs && op->signature() == other->signature()) others.push_back(rank);
    }
    if (other == nullptr) continue;
    const std::string here = own != records.end() ? "this rank" : fmt::format("rank {}", reference->first);
    return fmt::format("operation {} of {}: {} called {}, {} called {}; they differ in {}", key.second,
                       group_name(key.first, input.world_group), rank_list(others), other->describe(), here,
                       reference->second->describe(), differing_fields(*other, *reference->second));
  }
  return {};
}

bool somebody_timed_out(const DiagnosisInput& input) {
  if (input.error.code == Code::timeout) return true;
  return std::any_of(input.peers.begin(), input.peers.end(), [](const auto& entry) {
    return entry.second.report && entry.second.report->code == Code::timeout;
  });
}

/// The last seq that a peer is known to have issued in a group.
std::optional<std::uint64_t> last_issued(const PeerRecord& peer, const GroupId& group) {
  std::optional<std::uint64_t> last;
  if (const auto at = peer.last_seq.find(group); at != peer.last_seq.end()) last = at->second;
  for (const OpContext& op : peer.ops) {
    if (takes_part(op) && op.group_id == group && (!last || op.seq > *last)) last = op.seq;
  }
  return last;
}

/// Who is missing in the oldest op that this rank has not finished.
std::string missing_line(const DiagnosisInput& input) {
  for (const OpContext& op : input.mine) {
    if (!takes_part(op) || op.state == OpContext::State::done) continue;
    const auto group = input.members.find(op.group_id);
    if (group == input.members.end()) continue;
    std::vector<Rank> behind, silent;
    std::chrono::milliseconds silent_for{0};
    for (const Rank rank : group->second) {
      const auto peer = input.peers.find(rank);
      if (rank == input.me || peer == input.peers.end()) continue;
      const auto last = last_issued(peer->second, op.group_id);
      if (!peer->second.answered && !peer->second.gone) {
        silent.push_back(rank);
        silent_for = std::max(silent_for, peer->second.silent_for);
      } else if (peer->second.answered && (!last || *last < op.seq)) {
        behind.push_back(rank);
      }
    }
    const std::string name =
        fmt::format("operation {} of {}", op.seq, group_name(op.group_id, input.world_group));
    if (!behind.empty()) {
      return fmt::format("{} {} not issued {}", rank_list(behind), behind.size() == 1 ? "has" : "have", name);
    }
    if (!silent.empty()) {
      return fmt::format("{} {} not answered for {:.1f} s, while {} was under way", rank_list(silent),
                         silent.size() == 1 ? "has" : "have", static_cast<double>(silent_for.count()) / 1e3,
                         name);
    }
  }
  return {};
}

/// This rank is the one that others wait for.
std::string late_line(const DiagnosisInput& input) {
  for (const auto& [rank, peer] : input.peers) {
    for (const OpContext& op : peer.ops) {
      const auto group = input.members.find(op.group_id);
      if (!takes_part(op) || op.state == OpContext::State::done || group == input.members.end()) continue;
      PeerRecord me;
      me.ops = input.mine;
      const auto last = last_issued(me, op.group_id);
      if (last && *last >= op.seq) continue;
      return fmt::format("this rank has not issued operation {} of {}, which rank {} waits in ({})", op.seq,
                         group_name(op.group_id, input.world_group), rank, op.describe());
    }
  }
  return {};
}

std::string reported_line(const DiagnosisInput& input) {
  for (const auto& [rank, peer] : input.peers) {
    if (!peer.report || peer.report->origin == input.me) continue;
    const bool says_more = peer.report->code != Code::aborted && peer.report->code != Code::peer_lost;
    if (says_more && input.error.code != Code::aborted) return report_text(*peer.report, rank);
  }
  return {};
}

}  // namespace

std::string group_name(const GroupId& group_id, const GroupId& world_group) {
  if (group_id == world_group) return "the world group";
  return "group " + to_hex(ByteView(group_id).first(4));
}

std::string report_text(const AbortReport& report, Rank sender) {
  std::string out = fmt::format("rank {} reported SR-E{} {}", report.origin,
                                static_cast<unsigned>(report.code), code_info(report.code).name);
  if (report.peer >= 0) out += fmt::format(" about rank {}", report.peer);
  if (!report.stage.empty()) out += fmt::format(" at {}", report.stage);
  if (!report.what.empty()) out += fmt::format(": {}", report.what);
  if (sender != report.origin) out += fmt::format(" (passed on by rank {})", sender);
  return out;
}

std::string diagnose(const DiagnosisInput& input) {
  if (std::string line = mismatch_line(input); !line.empty()) return line;
  if (somebody_timed_out(input)) {
    if (std::string line = missing_line(input); !line.empty()) return line;
    if (std::string line = late_line(input); !line.empty()) return line;
  }
  return reported_line(input);
}

}  // namespace sealring
