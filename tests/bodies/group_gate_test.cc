// Claim: gates let a chunk be sealed only into a free slot and opened only when it has arrived, whatever the
// order in which two ranks run; and whatever a window's words hold, a gate ends, the first error is
// everybody's, and behind it nothing but POISON is posted and no key of the group is used. How: the body that
// the kernel runs is run on the host: by every interleaving of two ranks with two streams each, and alone
// against hostile words.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "sealring/device/cuda/gate_body.h"
#include "sealring/device/cuda/group_verdict.h"

namespace sealring::cuda::test {
namespace {

std::uint64_t word_at(const std::byte* at) {
  std::uint64_t out = 0;
  std::memcpy(&out, at, sizeof out);
  return out;
}
void set_word(std::byte* at, std::uint64_t value) { std::memcpy(at, &value, sizeof value); }

/// Words in host memory; each look takes a microsecond of its clock.
struct HostFabric {
  std::function<std::uint64_t(const std::byte*)> on_load = word_at;
  std::function<void(std::byte*, std::uint64_t)> on_post = set_word;
  std::uint64_t clock_ns = 0;

  std::uint64_t load(const std::byte* word) {
    clock_ns += 1000;
    return on_load(word);
  }
  void post(std::byte* word, std::uint64_t value) { on_post(word, value); }
  std::uint64_t now_ns() const { return clock_ns; }
  void pause() {}
};

void run_gate(HostFabric& fabric, GroupState& state, const GateJob& job) {
  HostBlock block(GateBody::kThreadsMax);
  GateBody::Shared shared;
  GateBody::run(block, shared, fabric, state, job);
}

// --- every interleaving

constexpr std::uint32_t kRounds = 5;  // slots are used again
constexpr std::uint64_t kSlotBytes = 8;

/// Two ranks; a chunk is one word, the number of its round. Stream 0 seals, stream 1 opens.
struct TwoRanks {
  std::array<std::array<std::uint8_t, 2>, 2> at{};  // [rank][stream]: actions done
  std::array<GroupState, 2> states{};
  std::array<std::array<std::byte, kWireSlots*(kSlotBytes + 2 * kWordBytes)>, 2> windows{};
  bool aborted = false;

  TwoRanks() {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      states[rank].ranks = 2;
      states[rank].rank = rank;
      states[rank].timeout_ns = 300'000;
      states[rank].shape = WireShape::of(2, kSlotBytes);
    }
  }
  /// After a copy.
  void settle() {
    for (GroupState& state : states) {
      for (std::uint32_t rank = 0; rank < 2; ++rank) state.windows[rank] = windows[rank].data();
    }
  }
  std::string key() const {
    std::string out(reinterpret_cast<const char*>(&at), sizeof at);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      out.append(reinterpret_cast<const char*>(windows[rank].data()), windows[rank].size());
      out.push_back(static_cast<char>(states[rank].verdict.code % 251));
      out.push_back(static_cast<char>(states[rank].abort));
    }
    out.push_back(aborted ? 1 : 0);
    return out;
  }

  static constexpr std::uint32_t kActions = 3 * kRounds;
  /// ready, seal, sent; arrived, open, taken.
  GateJob gate(std::uint32_t rank, std::uint32_t stream) const {
    GateJob out = GateJob::of();
    const std::uint32_t action = at[rank][stream], peer = 1 - rank;
    const auto slot = static_cast<std::uint8_t>(action / 3 % kWireSlots);
    if (action % 3 == 0) {
      out.wait = stream == 0 ? GateWord::credit : GateWord::flag;
      out.waits[peer] = slot;
    } else {
      out.post = stream == 0 ? GateWord::flag : GateWord::credit;
      out.posts[peer] = slot;
    }
    return out;
  }
  bool may_go_on(std::uint32_t rank, std::uint32_t stream) const {
    const std::uint32_t action = at[rank][stream];
    if (action == kActions) return false;
    // An event: the open of a round waits for the rank's own seals of it.
    if (stream == 1 && at[rank][0] < 3 * (action / 3 + 1)) return false;
    if (action % 3 != 0) return true;
    if (states[rank].verdict.code != 0 || states[rank].abort != 0) return true;
    HostFabric fabric;
    const std::uint32_t code = GateBody::wait(fabric, states[rank], gate(rank, stream), 1 - rank);
    return code != status_of(Code::timeout);
  }
  void go_on(std::uint32_t rank, std::uint32_t stream) {
    const std::uint32_t action = at[rank][stream], round = action / 3, peer = 1 - rank;
    GroupState& state = states[rank];
    if (action % 3 == 1) {
      const std::uint32_t slot = round % kWireSlots;
      // A key whose group has a verdict seals and releases nothing; else it must be the round's own chunk.
      if (state.verdict.code == 0 && stream == 0)
        set_word(windows[peer].data() + state.shape.slot_offset(peer, rank, slot), round + 1);
      if (state.verdict.code == 0 && stream == 1) {
        EXPECT_EQ(word_at(windows[rank].data() + state.shape.slot_offset(rank, peer, slot)), round + 1);
      }
    } else {
      HostFabric fabric;
      run_gate(fabric, state, gate(rank, stream));
    }
    at[rank][stream] += 1;
  }
  bool finished() const {
    for (const auto& rank : at) {
      for (const std::uint8_t done : rank) {
        if (done < kActions) return false;
      }
    }
    return true;
  }
};

/// Walks all of them; `may_abort`: rank 1's abort word is set at any one time.
std::size_t walk_all(bool may_abort) {
  std::set<std::string> seen;
  std::vector<TwoRanks> open(1);
  while (!open.empty()) {
    TwoRanks now = open.back();
    open.pop_back();
    now.settle();
    if (!seen.insert(now.key()).second) continue;
    std::size_t enabled = 0;
    for (std::uint32_t i = 0; i < 4; ++i) {
      if (!now.may_go_on(i / 2, i % 2)) continue;
      ++enabled;
      TwoRanks next = now;
      next.settle();
      next.go_on(i / 2, i % 2);
      open.push_back(next);
    }
    if (may_abort && !now.aborted && !now.finished()) {
      TwoRanks next = now;
      next.aborted = true;
      next.states[1].abort = 1;
      open.push_back(next);
    }
    EXPECT_TRUE(enabled > 0 || now.finished()) << "nobody can go on";
    if (!may_abort) {
      EXPECT_EQ(now.states[0].verdict.code + now.states[1].verdict.code, 0u);
    }
    if (::testing::Test::HasFailure()) break;
  }
  return seen.size();
}

TEST(GroupGate, TwoRanksComeThroughInEveryInterleaving) { EXPECT_GT(walk_all(false), 300u); }

TEST(GroupGate, AnAbortAtAnyTimeEndsBothRanks) { EXPECT_GT(walk_all(true), 1000u); }

// --- hostile words

/// Rank 1 of three, with keys.
struct OneRank {
  static constexpr std::uint32_t kRanks = 3, kMe = 1;
  GroupState state{};
  std::vector<std::vector<std::byte>> windows;
  std::vector<std::unique_ptr<KeyState>> keys;
  HostFabric fabric;
  std::vector<std::uint64_t> posted;

  OneRank() {
    state.ranks = kRanks;
    state.rank = kMe;
    state.timeout_ns = 5'000'000;
    state.shape = WireShape::of(kRanks, 64);
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      windows.emplace_back(state.shape.bytes());
      state.windows[rank] = windows[rank].data();
      if (rank == kMe) continue;
      keys.push_back(std::make_unique<KeyState>());
      state.to[rank] = keys.back().get();
      keys.push_back(std::make_unique<KeyState>());
      state.from[rank] = keys.back().get();
    }
    fabric.on_post = [this](std::byte* word, std::uint64_t value) {
      posted.push_back(value);
      set_word(word, value);
    };
  }
  /// A gate with both peers, slot 0 of each.
  static GateJob job(GateWord post, GateWord wait) {
    GateJob out = GateJob::of();
    out.post = post;
    out.wait = wait;
    for (const std::uint32_t peer : {0u, 2u}) out.posts[peer] = out.waits[peer] = 0;
    return out;
  }
  std::byte* word(GateWord kind, std::uint32_t peer) {
    const std::uint64_t at = kind == GateWord::flag ? state.shape.flag_offset(kMe, peer, 0)
                                                    : state.shape.credit_offset(kMe, peer, 0);
    return windows[kMe].data() + at;
  }
  void expect_dead(Code code) {
    EXPECT_EQ(state.verdict.code, status_of(code));
    for (const auto& key : keys) EXPECT_EQ(key->verdict, status_of(code));
    for (const std::uint32_t peer : {0u, 2u}) {
      for (std::uint32_t slot = 0; slot < kWireSlots; ++slot) {
        EXPECT_EQ(word_at(windows[peer].data() + state.shape.flag_offset(peer, kMe, slot)), kPoison);
        EXPECT_EQ(word_at(windows[peer].data() + state.shape.credit_offset(peer, kMe, slot)), kPoison);
      }
    }
    // For ever: every word that another gate posts is POISON too.
    posted.clear();
    run_gate(fabric, state, job(GateWord::flag, GateWord::none));
    run_gate(fabric, state, job(GateWord::credit, GateWord::flag));
    EXPECT_FALSE(posted.empty());
    for (const std::uint64_t value : posted) EXPECT_EQ(value, kPoison);
    EXPECT_EQ(state.verdict.code, status_of(code));
  }
};

TEST(GroupGate, PostsCountAndWaitsCompare) {
  OneRank rank;
  for (std::uint64_t ticket = 1; ticket <= 3; ++ticket) {
    for (const std::uint32_t peer : {0u, 2u}) set_word(rank.word(GateWord::flag, peer), ticket);
    run_gate(rank.fabric, rank.state, OneRank::job(GateWord::flag, GateWord::flag));
    run_gate(rank.fabric, rank.state, OneRank::job(GateWord::credit, GateWord::none));
    ASSERT_EQ(rank.state.verdict.code, 0u);
    for (const std::uint32_t peer : {0u, 2u}) {
      EXPECT_EQ(rank.state.sent[peer][0], ticket);
      EXPECT_EQ(rank.state.taken[peer][0], ticket);
      const std::byte* const window = rank.windows[peer].data();
      EXPECT_EQ(word_at(window + rank.state.shape.flag_offset(peer, OneRank::kMe, 0)), ticket);
      EXPECT_EQ(word_at(window + rank.state.shape.credit_offset(peer, OneRank::kMe, 0)), ticket);
    }
  }
}

TEST(GroupGate, HostileWordsEndAtTheDeadline) {
  for (const GateWord kind : {GateWord::flag, GateWord::credit}) {
    const std::uint64_t wanted = kind == GateWord::flag ? 5 + 1 : 7;
    for (const std::uint64_t value : {std::uint64_t{0}, ~std::uint64_t{0}, wanted + 1, wanted - 1}) {
      OneRank rank;
      rank.state.sent[0][0] = rank.state.sent[2][0] = 7;
      rank.state.taken[0][0] = rank.state.taken[2][0] = 5;
      set_word(rank.word(kind, 0), wanted);
      set_word(rank.word(kind, 2), value);
      run_gate(rank.fabric, rank.state, OneRank::job(GateWord::none, kind));
      EXPECT_GE(rank.fabric.clock_ns, rank.state.timeout_ns);
      EXPECT_LT(rank.fabric.clock_ns, 2 * rank.state.timeout_ns);
      EXPECT_EQ(rank.state.verdict.bad_peer, 3u);
      rank.expect_dead(Code::timeout);
    }
  }
}

TEST(GroupGate, ATogglingWordIsTakenOrEndsAtTheDeadline) {
  OneRank rank;
  std::uint64_t looks = 0;
  rank.fabric.on_load = [&](const std::byte*) { return ++looks % 2 == 0 ? ~std::uint64_t{0} : looks; };
  run_gate(rank.fabric, rank.state, OneRank::job(GateWord::none, GateWord::flag));
  // The first look gives 1, which is what peer 0's flag must be; peer 2's is never seen.
  rank.expect_dead(Code::timeout);
}

TEST(GroupGate, PoisonEndsTheWaitAtOnce) {
  OneRank rank;
  set_word(rank.word(GateWord::flag, 0), kPoison);
  run_gate(rank.fabric, rank.state, OneRank::job(GateWord::none, GateWord::flag));
  EXPECT_EQ(rank.state.verdict.bad_peer, 1u);
  rank.expect_dead(Code::aborted);
}

TEST(GroupGate, AVerdictOfOneKeyIsTheGroups) {
  for (std::size_t key = 0; key < 4; ++key) {
    OneRank rank;
    rank.keys[key]->verdict = status_of(Code::data_tag);
    rank.keys[key]->bad_segment = 9;
    run_gate(rank.fabric, rank.state, OneRank::job(GateWord::flag, GateWord::flag));
    EXPECT_EQ(rank.state.verdict.bad_peer, key < 2 ? 1u : 3u);
    EXPECT_EQ(rank.state.verdict.bad_segment, 9u);
    for (const std::uint64_t value : rank.posted) EXPECT_EQ(value, kPoison);
    EXPECT_EQ(rank.state.sent[0][0], 0u);
    rank.expect_dead(Code::data_tag);
  }
}

TEST(GroupGate, AnAbortEndsGatesBeforeAndWhileTheyWait) {
  OneRank before;
  before.state.abort = 1;
  run_gate(before.fabric, before.state, OneRank::job(GateWord::flag, GateWord::none));
  EXPECT_EQ(before.state.verdict.bad_peer, 0u);
  before.expect_dead(Code::aborted);

  OneRank during;
  during.fabric.on_load = [&](const std::byte*) {
    if (during.fabric.clock_ns > 1'000'000) during.state.abort = 1;
    return std::uint64_t{0};
  };
  run_gate(during.fabric, during.state, OneRank::job(GateWord::none, GateWord::flag));
  EXPECT_LT(during.fabric.clock_ns, during.state.timeout_ns);
  during.expect_dead(Code::aborted);
}

// Another stream's gate gives up between this one's look and its post.
TEST(GroupGate, PoisonIsTheLastWord) {
  OneRank rank;
  bool once = false;
  rank.fabric.on_post = [&](std::byte* word, std::uint64_t value) {
    if (!once) {
      once = true;
      set_verdict(rank.state.verdict, GroupVerdict{status_of(Code::timeout), 1, 0});
    }
    set_word(word, value);
    rank.posted.push_back(value);
  };
  run_gate(rank.fabric, rank.state, OneRank::job(GateWord::flag, GateWord::none));
  rank.expect_dead(Code::timeout);
}

TEST(GroupGate, ErrorsNameTheRank) {
  const std::vector<Rank> members = {4, 6, 9};
  const Error tag = group_error({status_of(Code::data_tag), 3, 5}, members, 1, {});
  EXPECT_EQ(tag.code, Code::data_tag);
  EXPECT_EQ(tag.rank, 6);
  EXPECT_EQ(tag.peer, 9);
  EXPECT_NE(tag.what.find("rank 9"), std::string::npos);
  EXPECT_EQ(group_error({status_of(Code::timeout), 1, 0}, members, 1, {}).peer, 4);
  const Error aborted = group_error({status_of(Code::aborted), 0, 0}, members, 1, {});
  EXPECT_EQ(aborted.peer, -1);
  EXPECT_NE(aborted.what.find("here"), std::string::npos);
}

}  // namespace
}  // namespace sealring::cuda::test
