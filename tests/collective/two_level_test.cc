// Claim: over nodes of equally many ranks the two-level schedule computes its collective as the others do, at
// the stated bytes between nodes, steps and cost; a group's nodes are found; auto takes it where it pays.
// How: symbolic runs of all ranks for 2..4 nodes of 1..4 ranks, every size up to 70 elements; moves between
// nodes counted against the formulas and against one-hop's; tables of groups and thresholds.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/collective/schedule_case.h"

namespace sealring {
namespace {

using Case = test::ScheduleCase;

constexpr Op kOps[] = {Op::all_reduce, Op::reduce_scatter, Op::all_gather};

struct Nodes {
  std::uint16_t nodes, ranks;  ///< so many nodes of so many ranks
  std::uint16_t world() const { return static_cast<std::uint16_t>(nodes * ranks); }
};

std::vector<Nodes> all_nodes(std::uint16_t least_ranks) {
  std::vector<Nodes> out;
  for (std::uint16_t nodes = 2; nodes <= 4; ++nodes) {
    for (std::uint16_t ranks = least_ranks; ranks <= 4; ++ranks) out.push_back({nodes, ranks});
  }
  return out;
}

/// Of a tensor of up to `most` elements, as requests count them.
std::vector<std::uint64_t> sizes(Op op, const Nodes& nodes, std::uint64_t most) {
  std::vector<std::uint64_t> out((op == Op::all_reduce ? most : most / nodes.world()) + 1);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

void check_nodes(Op op, const Nodes& nodes, const std::vector<std::uint64_t>& elements, bool thorough) {
  for (const std::uint64_t each : elements) {
    Case c{op, Algorithm::two_level, nodes.world(), each};
    c.node_ranks = nodes.ranks;
    ASSERT_NO_FATAL_FAILURE(test::check_all_forms(c, thorough));
  }
}

class TwoLevel : public testing::TestWithParam<Op> {};

TEST_P(TwoLevel, ComputesItsCollectiveAtEverySize) {
  for (const Nodes& nodes : all_nodes(1)) {
    ASSERT_NO_FATAL_FAILURE(check_nodes(GetParam(), nodes, sizes(GetParam(), nodes, 70), false));
  }
}

TEST_P(TwoLevel, ComputesItsCollectiveInEveryOrder) {
  for (const Nodes& nodes : all_nodes(2)) {
    if (nodes.world() > 9) continue;
    const std::uint64_t world = nodes.world();
    const std::vector<std::uint64_t> all_reduce{1, world - 1, world, 2 * world + 1, 3 * world + 2};
    const bool whole = GetParam() == Op::all_reduce;
    ASSERT_NO_FATAL_FAILURE(
        check_nodes(GetParam(), nodes, whole ? all_reduce : std::vector<std::uint64_t>{1, 2, 3, 5}, true));
  }
}

class SlowTwoLevel : public TwoLevel {};

TEST_P(SlowTwoLevel, ComputesItsCollectiveInEveryOrderAtEverySize) {
  for (const Nodes& nodes : all_nodes(2)) {
    ASSERT_NO_FATAL_FAILURE(check_nodes(GetParam(), nodes, sizes(GetParam(), nodes, 70), true));
  }
}

std::string name_of(const testing::TestParamInfo<Op>& tested) { return std::string(to_string(tested.param)); }
INSTANTIATE_TEST_SUITE_P(All, TwoLevel, testing::ValuesIn(kOps), name_of);
INSTANTIATE_TEST_SUITE_P(Slow, SlowTwoLevel, testing::ValuesIn(kOps), name_of);

Schedule schedule_of(Op op, Algorithm algorithm, const Nodes& nodes, Rank rank, std::uint64_t elements,
                     bool sender_keys = true) {
  return make_schedule({op, algorithm, rank, nodes.world(), elements, 0, sender_keys, nodes.ranks});
}

/// Elements that a rank sends to other nodes, and receives from them.
struct Crossing {
  std::uint64_t out = 0, in = 0;
};
Crossing crossing(const Schedule& schedule, const Nodes& nodes) {
  const auto elsewhere = [&](Rank peer) { return peer / nodes.ranks != schedule.rank / nodes.ranks; };
  Crossing c;
  for (const Step& step : schedule.steps) {
    for (const Move& move : step.sends) c.out += elsewhere(move.peer) ? move.data.elements : 0;
    for (const Move& move : step.recvs) c.in += elsewhere(move.peer) ? move.data.elements : 0;
  }
  return c;
}

TEST(TwoLevelCost, BetweenNodesARankMovesOneOfItsNodesShares) {
  for (const Nodes& nodes : all_nodes(2)) {
    const std::uint64_t share = 12;  // elements for each rank
    const std::uint64_t whole = share * nodes.world();
    for (Rank rank = 0; rank < nodes.world(); ++rank) {
      const auto at = [&](Op op, Algorithm algorithm) {
        const bool reduce = op == Op::all_reduce;
        return crossing(schedule_of(op, algorithm, nodes, rank, reduce ? whole : share), nodes);
      };
      const std::uint64_t reduced = 2 * (nodes.nodes - 1) * whole / nodes.nodes / nodes.ranks;
      const std::uint64_t scattered = (nodes.nodes - 1) * share;
      for (const Op op : kOps) {
        const Crossing two = at(op, Algorithm::two_level), one = at(op, Algorithm::one_hop);
        EXPECT_EQ(two.out, op == Op::all_reduce ? reduced : scattered) << to_string(op);
        EXPECT_EQ(two.in, two.out) << to_string(op);
        EXPECT_EQ(one.out, two.out * nodes.ranks) << to_string(op);
      }
    }
  }
}

TEST(TwoLevelCost, AllReduceOpensTheBytesOfOneHopInThreeOrFourSteps) {
  for (const Nodes& nodes : all_nodes(2)) {
    const std::uint64_t bytes = 4 * 12 * nodes.world();
    for (Rank rank = 0; rank < nodes.world(); ++rank) {
      const auto cost = [&](Algorithm algorithm, bool sender_keys) {
        return cost_of(schedule_of(Op::all_reduce, algorithm, nodes, rank, bytes / 4, sender_keys), 4, 1024);
      };
      const ScheduleCost two = cost(Algorithm::two_level, true), hop = cost(Algorithm::one_hop, true);
      EXPECT_EQ(two.opened_bytes, hop.opened_bytes);
      EXPECT_EQ(two.sealed_bytes, bytes + bytes / nodes.ranks);  // node sums and sums are sealed once each
      EXPECT_EQ(cost(Algorithm::two_level, false).sealed_bytes, hop.opened_bytes);
      const unsigned rail = nodes.nodes == 2 ? 1 : nodes.nodes - 1 + 1, opened = nodes.nodes == 2 ? 1 : 2;
      EXPECT_EQ(two.seals, nodes.ranks - 1u + rail + 1);
      EXPECT_EQ(two.opens, 2 * (nodes.ranks - 1u) + opened * (nodes.nodes - 1u));
      const auto steps = [&](Op op) {
        return schedule_of(op, Algorithm::two_level, nodes, rank, 12).steps.size();
      };
      EXPECT_EQ(steps(Op::all_reduce), nodes.nodes == 2 ? 3u : 4u);
      EXPECT_EQ(steps(Op::reduce_scatter), nodes.nodes + 1u);
      EXPECT_EQ(steps(Op::all_gather), nodes.nodes);
    }
  }
}

TEST(TwoLevelCost, ReduceScatterSealsNodeSumsAndAllGatherARecordANode) {
  for (const Nodes& nodes : all_nodes(2)) {
    for (Rank rank = 0; rank < nodes.world(); ++rank) {
      const auto cost = [&](Op op) {
        return cost_of(schedule_of(op, Algorithm::two_level, nodes, rank, 12), 4, 1024);
      };
      const unsigned others = nodes.ranks - 1, foreign = nodes.nodes - 1;
      const ScheduleCost scattered = cost(Op::reduce_scatter), gathered = cost(Op::all_gather);
      EXPECT_EQ(scattered.seals, nodes.nodes * others + foreign);
      EXPECT_EQ(scattered.opens, scattered.seals);
      EXPECT_EQ(scattered.sealed_bytes, 48 * scattered.seals);
      EXPECT_EQ(gathered.seals, nodes.nodes);
      EXPECT_EQ(gathered.opens, nodes.world() - 1u);
      EXPECT_EQ(gathered.sealed_bytes, 48u * nodes.nodes);
    }
  }
}

/// What Move::element_offset must be: the place of the first element in the tensor of all ranks.
TEST(TwoLevelShape, MovesSayTheirPlaceInTheLogicalTensor) {
  constexpr std::uint64_t kPiece = 5;
  for (const Nodes& nodes : all_nodes(2)) {
    for (Rank rank = 0; rank < nodes.world(); ++rank) {
      const auto steps = [&](Op op) {
        return schedule_of(op, Algorithm::two_level, nodes, rank, kPiece).steps;
      };
      const std::uint64_t mine = rank * kPiece;
      for (const Step& step : steps(Op::all_reduce)) {
        for (const auto* moves : {&step.sends, &step.recvs}) {
          for (const Move& move : *moves) EXPECT_EQ(move.element_offset, move.data.offset);
        }
      }
      for (const Step& step : steps(Op::all_gather)) {
        for (const Move& recv : step.recvs) EXPECT_EQ(recv.element_offset, recv.data.offset);
        for (const Move& send : step.sends) {
          EXPECT_EQ(send.element_offset, send.data.buffer == Buffer::input ? mine : send.data.offset);
        }
      }
      const std::vector<Step> scatter = steps(Op::reduce_scatter);
      for (const Step& step : scatter) {
        const bool inside = &step != &scatter.back();
        for (const Move& send : step.sends) {
          EXPECT_EQ(send.element_offset, inside ? send.data.offset : send.peer * kPiece);
        }
        for (const Move& recv : step.recvs) {
          EXPECT_EQ(recv.element_offset, inside ? recv.local.offset : mine);
        }
      }
    }
  }
}

TEST(TwoLevelShape, OneLevelIsOneHop) {
  for (const Op op : kOps) {
    for (const std::uint16_t node_ranks : {std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{6}}) {
      const Schedule two = make_schedule({op, Algorithm::two_level, 2, 6, 100, 0, true, node_ranks});
      const Schedule one = make_schedule({op, Algorithm::one_hop, 2, 6, 100, 0, true, 0});
      EXPECT_TRUE(two.steps == one.steps && two.before == one.before) << to_string(op) << node_ranks;
    }
    const Schedule levels = make_schedule({op, Algorithm::two_level, 2, 6, 100, 0, true, 3});
    EXPECT_GT(levels.steps.size(), make_schedule({op, Algorithm::one_hop, 2, 6, 100}).steps.size());
  }
}

TEST(TwoLevelShape, ReduceScatterGoesInRoundsThatBoundItsScratch) {
  const std::uint64_t elements = 2 * kRoundElementsMax + 5;
  for (const Nodes nodes : {Nodes{2, 2}, Nodes{3, 2}}) {
    Case c{Op::reduce_scatter, Algorithm::two_level, nodes.world(), elements, 0, true, true, nodes.ranks};
    const std::vector<Schedule> schedules = test::schedules_of(c);
    EXPECT_EQ("", test::mismatch(schedules));
    for (const Schedule& schedule : schedules) {
      EXPECT_LE(schedule.scratch_elements, (nodes.nodes - 1u) * kRoundElementsMax);
      EXPECT_EQ(schedule.steps.size(), 3u * (nodes.nodes + 1u));
      EXPECT_EQ("", test::hazards(schedule, test::place(c, schedule.rank), c.world * elements, elements));
      std::uint64_t covered = 0;
      for (const Step& step : schedule.steps) {
        if (!step.recvs[0].last) continue;
        EXPECT_EQ(step.recvs[0].data, (Range{Buffer::output, covered, step.recvs[0].data.elements}));
        covered += step.recvs[0].data.elements;
      }
      EXPECT_EQ(covered, elements);
    }
  }
  const Schedule many = make_schedule(
      {Op::reduce_scatter, Algorithm::two_level, 5, 1024, kRoundElementsMax * 1000, 0, true, 2});
  EXPECT_LE(many.steps.size(), 0xFFFFu);
}

TEST(NodeRanks, AreThoseOfAGroupsMembers) {
  const auto found = [](std::vector<Rank> members, std::uint16_t node_ranks) {
    return node_ranks_of(members, node_ranks);
  };
  EXPECT_EQ(4, found({0, 1, 2, 3, 4, 5, 6, 7}, 4));
  EXPECT_EQ(8, found({0, 1, 2, 3, 4, 5, 6, 7}, 8));  // one node
  EXPECT_EQ(0, found({0, 1, 2, 3, 4, 5, 6, 7}, 0));  // not known
  EXPECT_EQ(0, found({}, 4));
  EXPECT_EQ(4, found({4, 5, 6, 7, 12, 13, 14, 15}, 4));  // some nodes
  EXPECT_EQ(4, found({4, 5, 6, 7}, 4));
  EXPECT_EQ(2, found({0, 3, 5, 6}, 4));  // as many of each
  EXPECT_EQ(1, found({1, 5, 9}, 4));
  EXPECT_EQ(0, found({0, 1, 2, 4, 5}, 4));  // more of one
  EXPECT_EQ(0, found({0, 4, 5}, 4));
  EXPECT_EQ(0, found({0, 1, 4, 5, 6, 7}, 4));  // the second node twice as long
  EXPECT_EQ(0, found({0, 1, 2, 4}, 4));
  EXPECT_EQ(0, found({4, 5, 0, 1}, 4));  // not in order
  EXPECT_EQ(0, found({0, 4, 1, 5}, 4));
}

TEST(TwoLevelDefault, IsTakenWhereBytesOutweighSteps) {
  // 2 nodes of 4: all_reduce keeps 3/4 of its bytes off the link for one step more.
  const std::uint64_t edge = kStepBytes / 3 * 4;
  EXPECT_EQ(Algorithm::one_hop, default_algorithm(Op::all_reduce, 8, edge, 4));
  EXPECT_EQ(Algorithm::two_level, default_algorithm(Op::all_reduce, 8, edge + 64, 4));
  EXPECT_EQ(Algorithm::one_hop, default_algorithm(Op::all_reduce, 8, edge + 64));
  // 4 nodes of 2: reduce_scatter keeps off 3/4 * 1/2 for four steps more, all_gather for three.
  EXPECT_EQ(Algorithm::one_hop, default_algorithm(Op::reduce_scatter, 8, 10 * kStepBytes, 2));
  EXPECT_EQ(Algorithm::two_level, default_algorithm(Op::reduce_scatter, 8, 11 * kStepBytes, 2));
  EXPECT_EQ(Algorithm::one_hop, default_algorithm(Op::all_gather, 8, 8 * kStepBytes, 2));
  EXPECT_EQ(Algorithm::two_level, default_algorithm(Op::all_gather, 8, 9 * kStepBytes, 2));
  const std::uint64_t large = 1u << 30;
  for (const std::uint16_t node_ranks :
       {std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{3}, std::uint16_t{8}}) {
    EXPECT_EQ(Algorithm::one_hop, default_algorithm(Op::all_reduce, 8, large, node_ranks)) << node_ranks;
    EXPECT_EQ(Algorithm::one_hop, default_device_algorithm(Op::all_reduce, 8, large, node_ranks));
  }
  EXPECT_EQ(Algorithm::two_level, default_algorithm(Op::all_reduce, 64, large, 8));
  EXPECT_EQ(Algorithm::ring, default_algorithm(Op::all_reduce, 64, large, 2));  // 32 nodes: too many at once
  EXPECT_EQ(Algorithm::direct, default_algorithm(Op::broadcast, 8, large, 4));
  EXPECT_EQ(Algorithm::one_shot, default_device_algorithm(Op::all_reduce, 8, kDeviceOneShotBytesMax, 4));
  EXPECT_EQ(Algorithm::one_hop, default_device_algorithm(Op::all_reduce, 8, kDeviceStepBytes, 4));
  EXPECT_EQ(Algorithm::two_level, default_device_algorithm(Op::all_reduce, 8, 2 * kDeviceStepBytes, 4));
}

}  // namespace
}  // namespace sealring
