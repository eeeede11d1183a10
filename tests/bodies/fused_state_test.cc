// Claim: a step that is begun while another one runs, as replays of one graph beside each other would, is
// refused without changing what the other one's blocks have still to read; nothing is sealed behind an abort;
// and an error of a fused step is told of the peer that it concerns. How: what the prologue and the last
// block run is driven on the host; the fused bodies run on the host beside them.
#include <gtest/gtest.h>

#include "sealring/device/cuda/group_state.h"
#include "tests/bodies/fused_steps.h"

namespace sealring::cuda::test {
namespace {

/// Rank 0 of two: a record of three segments each way in every step.
struct OneRank {
  FusedWorld world{2, 3, 7};
  FusedState& state = *world.states[0];
  KeyState& out = world.sealing(0, 1);
  FusedReservation step;

  OneRank() {
    step.peers = world.peers_of(0);
    step.push[0] = step.pull[0] = {3, 300};
    step.units = 3;
  }
  bool begin() { return prologue(state, step); }
  void end() {
    for (std::uint32_t i = 0; i < kFusedRings; ++i) {
      if (state.verdict != 0) spread_verdict(state, step.peers, i);
    }
    end_grant(state, step.peers, 0, state.push[0]);
    end_grant(state, step.peers, kFusedRanksMax, state.pull[0]);
    state.in_use = 0;
  }
};

TEST(FusedState, AStepBesideAnotherIsRefusedAndLeavesItAlone) {
  OneRank rank;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(rank.begin());
    rank.end();
  }
  ASSERT_TRUE(rank.begin());
  const FusedGrant push = rank.state.push[0], pull = rank.state.pull[0];
  ASSERT_EQ(push.view.first_number, 15u);
  EXPECT_FALSE(rank.begin());  // of the same graph: the same descriptor
  for (const auto& [now, before] : {std::pair{rank.state.push[0], push}, {rank.state.pull[0], pull}}) {
    EXPECT_EQ(now.view.first_number, before.view.first_number);
    EXPECT_EQ(now.view.epoch, before.view.epoch);
    EXPECT_EQ(now.view.seq, before.view.seq);
    EXPECT_EQ(now.slot, before.slot);
    EXPECT_EQ(now.begun, 1u);
  }
  EXPECT_EQ(rank.state.status, 0u);
  EXPECT_EQ(rank.out.descriptors[0].view.first_number, 15u);
  EXPECT_EQ(rank.out.segments, 18u);
  // Whoever still begins finds the verdict, and so do the ends of both ops.
  EXPECT_EQ(rank.state.verdict, status_of(Code::seq_reuse_guard));
  EXPECT_EQ(rank.out.verdict, status_of(Code::seq_reuse_guard));
  rank.end();
  ASSERT_TRUE(rank.begin());
  EXPECT_EQ(rank.state.status, status_of(Code::seq_reuse_guard));
  EXPECT_EQ(rank.out.segments, 18u);
}

// The prologue's thread of a ring was stopped between its read and its exchange, for a whole other step.
TEST(FusedState, AStepThatReadItsRingsBeforeAnotherHadThemIsRefused) {
  OneRank rank;
  ASSERT_TRUE(rank.begin());
  rank.end();
  RingStart found[kFusedRings];
  for (std::uint32_t i : {0u, kFusedRanksMax}) found[i].now = view_of(*ring_of(rank.step.peers, i));
  ASSERT_TRUE(rank.begin());
  rank.end();
  for (std::uint32_t i : {0u, kFusedRanksMax}) found[i].taken = take_state(*ring_of(rank.step.peers, i));
  StepStart start{};
  begin_step(rank.state, rank.step, 0, start);
  ASSERT_NE(start.begun, 0u);
  for (std::uint32_t i = 0; i < kFusedRings; ++i) reserve_ring(rank.state, rank.step, i, found[i], start);
  settle_step(rank.state, rank.step, start);
  EXPECT_EQ(rank.state.status, status_of(Code::seq_reuse_guard));
  EXPECT_EQ(rank.out.segments, 6u);         // no number twice
  EXPECT_EQ(rank.state.push[0].begun, 1u);  // what was taken is given back at its end
}

/// Counts out `columns` of a launch, the last of which is the last of all.
void expect_last(Launch& launch, std::uint32_t columns) {
  for (std::uint32_t i = 1; i < columns; ++i) EXPECT_FALSE(last_out(launch)) << i;
  EXPECT_TRUE(last_out(launch));
  EXPECT_EQ(launch.left, 0u);
}

// Of different captured steps, in every order: each has an end of its own, and one of them holds the state.
TEST(FusedState, AStepThatIsRefusedEndsForItself) {
  for (const bool refused_first : {true, false}) {
    OneRank rank;
    rank.step.launch = 1;
    ASSERT_TRUE(rank.begin());
    rank.step.launch = 2;
    EXPECT_FALSE(rank.begin());
    Launch &runs = rank.state.launches[1], &refused = rank.state.launches[2];
    EXPECT_EQ(runs.holds, 1u);
    EXPECT_EQ(refused.holds, 0u);
    EXPECT_FALSE(last_out(runs));
    if (refused_first) expect_last(refused, 3);
    expect_last(runs, 2);
    if (!refused_first) expect_last(refused, 3);
  }
}

// Two launches of one captured step: one last column, or one each, when the first has counted out before the
// second was refused.
TEST(FusedState, LaunchesOfOneStepCountOutTogether) {
  for (std::uint32_t before = 0; before <= 3; ++before) {
    OneRank rank;
    ASSERT_TRUE(rank.begin());
    Launch& launch = rank.state.launches[0];
    for (std::uint32_t i = 0; i < before; ++i) EXPECT_EQ(last_out(launch), i == 2);
    EXPECT_FALSE(rank.begin());
    expect_last(launch, before < 3 ? 6 - before : 3);
  }
}

// In the midst of a step that runs, at its 1st, 2nd, ... look at a word: both fail, each poisons its own
// output, and only the one that runs gives the state back.
TEST(FusedState, ARefusedStepsColumnsBetweenThoseOfTheOneThatRuns) {
  int at = 1;
  for (;; ++at) {
    SteppingWorld world(2, 3, static_cast<std::uint64_t>(at));
    std::vector<float> from(9000, 1.0f), to(9000, 2.0f);
    RankStep step;
    step.sends.resize(1);
    step.sends[0].peer = 1;
    step.sends[0].data = reinterpret_cast<const std::byte*>(from.data());
    step.recvs.resize(1);
    step.recvs[0].peer = 1;
    step.recvs[0].dst = reinterpret_cast<std::byte*>(to.data());
    step.sends[0].elements = step.recvs[0].elements = to.size();
    int looks = 0;
    world.on_look = [&](Rank rank, std::byte*, std::uint64_t) {
      if (rank != 0 || ++looks != at) return;
      std::size_t posts = 0;
      const auto others = std::exchange(world.on_post, [&](const Post&) { return ++posts == 0; });
      world.run_refused(0, step);
      world.on_post = others;
      EXPECT_EQ(posts, 0u);
      Bytes poisoned(to.size() * sizeof(float));
      poison(DType::f32, poisoned);
      EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(to)), poisoned));
      EXPECT_EQ(world.states[0]->in_use, 1u);
    };
    world.all_reduce({20'000, DType::f32, RedOp::sum, false, 1024, 1});
    if (looks < at) break;
    EXPECT_EQ(world.verdict(0), status_of(Code::seq_reuse_guard));
    Bytes poisoned(world.output_span(0).size());
    poison(DType::f32, poisoned);
    EXPECT_TRUE(std::ranges::equal(world.output_span(0), poisoned)) << at;
    EXPECT_EQ(world.states[0]->in_use, 0u);
    for (const Launch& launch : world.states[0]->launches) EXPECT_EQ(launch.left, 0u);
  }
  EXPECT_GT(at, 6);
}

TEST(FusedState, ColumnsOfARefusedStepTouchNoWindowAndPoisonTheirOutput) {
  SteppingWorld world(2, 3, 11);
  world.begins = false;
  for (std::uint32_t rank = 0; rank < 2; ++rank) world.states[rank]->in_use = 1;
  std::size_t posts = 0;
  world.on_post = [&](const Post&) { return ++posts == 0; };
  world.all_reduce({20'000, DType::f32, RedOp::sum, false, 1024, 1});
  EXPECT_EQ(posts, 0u);
  for (const auto& window : world.windows) {
    EXPECT_TRUE(std::ranges::all_of(window->span(), [](std::byte each) { return each == std::byte{0}; }));
  }
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(world.verdict(rank), status_of(Code::seq_reuse_guard));
    Bytes poisoned(world.output_span(rank).size());
    poison(DType::f32, poisoned);
    EXPECT_TRUE(std::ranges::equal(world.output_span(rank), poisoned));
    EXPECT_EQ(world.states[rank]->in_use, 1u);  // the other one's
  }
}

TEST(FusedState, NoStepBeginsBehindAnAbort) {
  SteppingWorld world(2, 3, 12);
  world.states[0]->abort = 1;
  std::size_t data_posts = 0;
  world.on_post = [&](const Post& post) {
    data_posts += post.from == 0 && post.value != kPoison ? 1 : 0;
    return true;
  };
  world.all_gather({20'000, DType::f32, RedOp::none, false, 1024, 1});
  EXPECT_EQ(data_posts, 0u);
  EXPECT_EQ(world.sealing(0, 1).segments, 0u);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(world.expect_right_or_failed(rank), status_of(Code::aborted));
  }
  EXPECT_EQ(world.states[0]->bad_peer, 0u);  // nobody's fault
  EXPECT_EQ(world.states[1]->bad_peer, 1u);  // by the POISON of rank 0
}

TEST(FusedState, AGroupTellsWhomAFusedErrorConcerns) {
  FusedState fused{};
  GroupState group{};
  group.ranks = 3;
  group.rank = 1;
  group.fused = &fused;
  std::array<KeyState, 2> keys{};
  group.to[0] = group.from[0] = &keys[0];
  group.to[2] = group.from[2] = &keys[1];
  EXPECT_EQ(verdict_of(group), 0u);
  fail_by(fused, status_of(Code::data_tag), peer_index(1, 2), 5);
  fail_by(fused, status_of(Code::timeout), peer_index(1, 0), 6);       // not the first
  for (KeyState& key : keys) key.verdict = status_of(Code::data_tag);  // as the last block leaves them
  for (std::uint32_t peer = 0; peer < 3; ++peer) {
    const GroupVerdict found = look_at(group, peer);
    EXPECT_EQ(found.code, status_of(Code::data_tag));
    EXPECT_EQ(found.bad_peer, 1u + 2u);
    EXPECT_EQ(found.bad_segment, 5u);
  }
}

TEST(FusedState, WhoIsNotHeardOfIsNamed) {
  SteppingWorld world(3, 2, 13);
  world.on_post = [](const Post& post) { return post.from != 2 || post.to != 0 || !post.flag; };
  world.reduce_scatter({30'000, DType::f32, RedOp::sum, false, 1024, 1});
  EXPECT_EQ(world.expect_right_or_failed(0), status_of(Code::timeout));
  EXPECT_EQ(world.states[0]->bad_peer, 1 + peer_index(0, 2));
}

}  // namespace
}  // namespace sealring::cuda::test
