// Claim: every schedule computes its collective in every order that its steps allow, in place too, at the
// stated cost. How: symbolic runs of all ranks, ops, algorithms, roots, aliasings, worlds 1..8, sizes 0..4
// world + 3 and odd large.
//
//   rank 0 -- rank 1 -- ... -- rank w-1      every pair has a stream of its own in each direction
#include "sealring/collective/schedule.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "tests/collective/schedule_case.h"
#include "tests/collective/schedule_simulator.h"

namespace sealring {
namespace {

using test::Order;
using test::Placement;
using Case = test::ScheduleCase;
using test::check;
using test::check_all_forms;
using test::expect_results;
using test::input_elements;
using test::place;
using test::schedules_of;
using test::wanted;

std::vector<std::uint16_t> worlds(std::initializer_list<int> sizes) { return {sizes.begin(), sizes.end()}; }

class Schedules : public testing::TestWithParam<Op> {};

void check_sizes(Op op, std::uint16_t world, const std::vector<std::uint64_t>& sizes, bool thorough) {
  for (const Algorithm algorithm : all_algorithms()) {
    if (!algorithm_supported(op, algorithm)) continue;
    for (const std::uint64_t elements : sizes) {
      if (op == Op::barrier && elements > 0) continue;
      ASSERT_NO_FATAL_FAILURE(check_all_forms({op, algorithm, world, elements}, thorough));
    }
  }
}

std::vector<std::uint64_t> up_to(std::uint64_t most) {
  std::vector<std::uint64_t> out(most + 1);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

TEST_P(Schedules, ComputeTheirCollective) {
  for (std::uint16_t world = 1; world <= 4; ++world) {
    ASSERT_NO_FATAL_FAILURE(check_sizes(GetParam(), world, up_to(4u * world + 3), true));
  }
  for (std::uint16_t world = 5; world <= 8; ++world) {
    ASSERT_NO_FATAL_FAILURE(check_sizes(GetParam(), world, {0, 1, world - 1u, 2u * world + 1}, false));
  }
}

class SlowSchedules : public Schedules {};

TEST_P(SlowSchedules, ComputeTheirCollectiveAtEverySize) {
  for (std::uint16_t world = 5; world <= 8; ++world) {
    ASSERT_NO_FATAL_FAILURE(check_sizes(GetParam(), world, up_to(4u * world + 3), true));
  }
}

TEST_P(Schedules, ComputeTheirCollectiveAtOddLargeSizes) {
  if (GetParam() == Op::barrier) return;  // has no elements
  for (const Algorithm algorithm : all_algorithms()) {
    if (!algorithm_supported(GetParam(), algorithm)) continue;
    for (const std::uint16_t world : worlds({2, 3, 5, 8})) {
      for (const bool in_place : {false, true}) {
        if (in_place && GetParam() == Op::all_to_all) continue;
        ASSERT_NO_FATAL_FAILURE(
            check({GetParam(), algorithm, world, 1009, static_cast<Rank>(world - 1), true, in_place}, false));
      }
    }
  }
}

std::vector<Op> ops_with_schedules() {
  std::vector<Op> out;
  for (const Op op : all_ops()) {
    if (op != Op::send) out.push_back(op);
  }
  return out;
}
std::string name_of(const testing::TestParamInfo<Op>& tested) { return std::string(to_string(tested.param)); }
INSTANTIATE_TEST_SUITE_P(All, Schedules, testing::ValuesIn(ops_with_schedules()), name_of);
// The prefix makes ctest's label: a name of the whole suite begins with it.
INSTANTIATE_TEST_SUITE_P(Slow, SlowSchedules, testing::ValuesIn(ops_with_schedules()), name_of);

TEST(Barrier, LeavingNeedsARecordFromEveryRank) {
  for (Rank rank = 0; rank < 5; ++rank) {
    const Schedule schedule = make_schedule({Op::barrier, Algorithm::direct, rank, 5, 0, 0, true});
    ASSERT_EQ(1u, schedule.steps.size());
    std::set<Rank> heard, told;
    for (const Move& recv : schedule.steps[0].recvs) heard.insert(recv.peer);
    for (const Move& send : schedule.steps[0].sends) {
      told.insert(send.peer);
      EXPECT_FALSE(send.multicast);  // pair keys: no third rank can forge an entry
    }
    EXPECT_EQ(4u, heard.size());
    EXPECT_EQ(heard, told);
    EXPECT_EQ(0u, heard.count(rank));
  }
}

ScheduleCost cost(Op op, Algorithm algorithm, Rank rank, std::uint16_t world, std::uint64_t elements,
                  bool sender_keys = true) {
  return cost_of(make_schedule({op, algorithm, rank, world, elements, 0, sender_keys}), 4, 64 * 1024);
}

TEST(ScheduleCost, RingAllReduceFollowsTheCountLaw) {
  for (std::uint16_t world = 1; world <= 16; ++world) {
    for (Rank rank = 0; rank < world; ++rank) {
      const ScheduleCost c = cost(Op::all_reduce, Algorithm::ring, rank, world, 1'000'003);
      EXPECT_EQ(2u * (world - 1), c.seals);
      EXPECT_EQ(2u * (world - 1), c.opens);
    }
  }
  // The study's examples: n = 4 and 5 or 142 buckets.
  const ScheduleCost c = cost(Op::all_reduce, Algorithm::ring, 0, 4, 1 << 20);
  EXPECT_EQ(60u, 5 * (c.seals + c.opens));
  EXPECT_EQ(1704u, 142 * (c.seals + c.opens));
}

TEST(ScheduleCost, BytesAreThoseOfTheDesign) {
  for (const std::uint16_t world : worlds({2, 4, 8})) {
    const std::uint64_t elements = 1024u * world;
    const std::uint64_t bytes = 4 * elements;
    const std::uint64_t most = 2 * (bytes - bytes / world);  // 2(n-1)/n S
    for (Rank rank = 0; rank < world; ++rank) {
      const ScheduleCost ring = cost(Op::all_reduce, Algorithm::ring, rank, world, elements);
      EXPECT_EQ(most, ring.sealed_bytes);
      EXPECT_EQ(most, ring.opened_bytes);
      const ScheduleCost hop = cost(Op::all_reduce, Algorithm::one_hop, rank, world, elements);
      EXPECT_EQ(bytes, hop.sealed_bytes);
      EXPECT_EQ(most, hop.opened_bytes);
      EXPECT_EQ(world, hop.seals);  // n-1 pieces and one sum
      EXPECT_EQ(2u * (world - 1), hop.opens);
      const ScheduleCost paired = cost(Op::all_reduce, Algorithm::one_hop, rank, world, elements, false);
      EXPECT_EQ(most, paired.sealed_bytes);
      EXPECT_EQ(2u * (world - 1), paired.seals);
      const ScheduleCost shot = cost(Op::all_reduce, Algorithm::one_shot, rank, world, elements);
      EXPECT_EQ(bytes, shot.sealed_bytes);
      EXPECT_EQ((world - 1) * bytes, shot.opened_bytes);
      EXPECT_EQ(1u, shot.seals);  // everything, once
      EXPECT_EQ(world - 1u, shot.opens);
      EXPECT_EQ(world - 1u, cost(Op::all_reduce, Algorithm::one_shot, rank, world, elements, false).seals);
    }
  }
}

TEST(ScheduleCost, SegmentsAreCountedPerRecord) {
  // Pieces of 25000 elements: 100000 bytes, two segments of 64 KiB; an empty piece is one segment.
  const ScheduleCost c = cost(Op::all_reduce, Algorithm::ring, 1, 2, 50'000);
  EXPECT_EQ(4u, c.sealed_segments);
  EXPECT_EQ(4u, c.opened_segments);
  const ScheduleCost empty = cost(Op::all_reduce, Algorithm::ring, 0, 3, 0);
  EXPECT_EQ(4u, empty.sealed_segments);
  EXPECT_EQ(4u, empty.opened_segments);
  EXPECT_EQ(0u, empty.sealed_bytes);
  const ScheduleCost barrier = cost(Op::barrier, Algorithm::direct, 0, 5, 0);
  EXPECT_EQ(4u, barrier.sealed_segments);
  EXPECT_EQ(4u, barrier.opened_segments);
}

TEST(ScheduleCost, BroadcastSealsOnce) {
  EXPECT_EQ(1u, cost(Op::broadcast, Algorithm::direct, 0, 6, 10).seals);
  EXPECT_EQ(5u, cost(Op::broadcast, Algorithm::direct, 0, 6, 10, false).seals);
  EXPECT_EQ(0u, cost(Op::broadcast, Algorithm::direct, 3, 6, 10).seals);
  EXPECT_EQ(1u, cost(Op::broadcast, Algorithm::direct, 3, 6, 10).opens);
}

TEST(ScheduleRounds, BoundTheScratchOfRingReduceScatter) {
  const std::uint64_t elements = 5 * kRoundElementsMax + 12'345;
  for (const std::uint16_t world : worlds({2, 3, 4})) {
    std::vector<Schedule> schedules;
    for (Rank r = 0; r < world; ++r) {
      schedules.push_back(make_schedule({Op::reduce_scatter, Algorithm::ring, r, world, elements, 0, true}));
    }
    EXPECT_EQ("", test::mismatch(schedules));
    std::uint64_t covered = 0;
    for (const Step& step : schedules[0].steps) {
      EXPECT_LE(step.recvs[0].data.elements, kRoundElementsMax);
      if (step.recvs[0].last) {
        EXPECT_EQ(covered, step.recvs[0].data.offset);
        covered += step.recvs[0].data.elements;
      }
    }
    EXPECT_EQ(elements, covered);
    EXPECT_LE(schedules[0].scratch_elements, 2 * kRoundElementsMax);
    EXPECT_EQ(world == 2 ? 0u : 2 * ((elements + 5) / 6), schedules[0].scratch_elements);
    for (Rank r = 0; r < world; ++r) {
      const Placement in_place{0, r * elements, world * elements};
      EXPECT_EQ("", test::hazards(schedules[r], in_place, world * elements, elements));
    }
  }
}

// Every range of this schedule is a multiple of a round: with a round as the unit it is small enough to run.
TEST(ScheduleRounds, ComputeTheirCollective) {
  const Case c{Op::reduce_scatter, Algorithm::ring, 4, 3};
  std::vector<Schedule> schedules;
  for (Rank r = 0; r < c.world; ++r) {
    Schedule s = make_schedule({c.op, c.algorithm, r, c.world, c.elements * kRoundElementsMax, 0, true});
    const auto shrink = [](std::uint64_t& elements) {
      ASSERT_EQ(0u, elements % kRoundElementsMax);
      elements /= kRoundElementsMax;
    };
    shrink(s.scratch_elements);
    for (Step& step : s.steps) {
      for (auto* moves : {&step.sends, &step.recvs}) {
        for (Move& move : *moves) {
          for (auto* value : {&move.data.offset, &move.data.elements, &move.local.offset,
                              &move.local.elements, &move.element_offset}) {
            shrink(*value);
          }
        }
      }
    }
    EXPECT_EQ(3u * (c.world - 1), s.steps.size());
    schedules.push_back(std::move(s));
  }
  for (const bool in_place : {false, true}) {
    Case form = c;
    form.in_place = in_place;
    std::vector<Placement> places;
    for (Rank r = 0; r < c.world; ++r) places.push_back(place(form, r));
    for (const Order order : {Order::sends_first, Order::recvs_first, Order::reversed, Order::random}) {
      const test::Outcome outcome = simulate(schedules, places, input_elements(form), {order, 5, 1, 1});
      ASSERT_EQ("", outcome.problem);
      ASSERT_NO_FATAL_FAILURE(expect_results(form, places, outcome));
    }
  }
}

TEST(ScheduleRounds, StepsFitSixteenBits) {
  const Schedule s =
      make_schedule({Op::reduce_scatter, Algorithm::ring, 0, 1024, kRoundElementsMax * 1000, 0, true});
  EXPECT_LE(s.steps.size(), 0xFFFFu);
}

TEST(ScheduleTable, SupportIsExact) {
  for (const Op op : all_ops()) {
    const bool heavy = op == Op::all_reduce || op == Op::reduce_scatter || op == Op::all_gather;
    for (const Algorithm algorithm : all_algorithms()) {
      const bool known = heavy ? algorithm == Algorithm::ring || algorithm == Algorithm::one_hop ||
                                     algorithm == Algorithm::two_level ||
                                     (op == Op::all_reduce && algorithm == Algorithm::one_shot)
                               : op != Op::send && algorithm == Algorithm::direct;
      EXPECT_EQ(known, algorithm_supported(op, algorithm)) << to_string(op) << " " << to_string(algorithm);
    }
    if (op == Op::send) continue;
    for (const std::uint64_t bytes : {0ull, 1ull << 10, 1ull << 30}) {
      for (const std::uint16_t world : worlds({1, 2, 8, 64, 1024})) {
        EXPECT_TRUE(algorithm_supported(op, default_algorithm(op, world, bytes)));
      }
    }
  }
}

TEST(ScheduleTable, TwoRanksReduceInOneShot) {
  for (const std::uint64_t bytes : {0ull, 4ull, 1ull << 20, 1ull << 33}) {
    EXPECT_EQ(Algorithm::one_shot, default_algorithm(Op::all_reduce, 2, bytes));
    EXPECT_EQ(Algorithm::one_hop, default_algorithm(Op::all_reduce, 3, bytes));
    EXPECT_EQ(Algorithm::one_hop, default_algorithm(Op::reduce_scatter, 2, bytes));
    EXPECT_EQ(Algorithm::one_hop, default_algorithm(Op::all_gather, 2, bytes));
  }
  EXPECT_EQ(Algorithm::ring, default_algorithm(Op::all_reduce, 64, 1ull << 30));
  // The same bytes as one hop, in one step instead of two, under the pair key.
  const Schedule schedule = make_schedule({Op::all_reduce, Algorithm::one_shot, 1, 2, 1000, 0, true});
  ASSERT_EQ(1u, schedule.steps.size());
  EXPECT_FALSE(schedule.steps[0].sends[0].multicast);
  const ScheduleCost hop = cost(Op::all_reduce, Algorithm::one_hop, 1, 2, 1000);
  const ScheduleCost shot = cost(Op::all_reduce, Algorithm::one_shot, 1, 2, 1000);
  EXPECT_EQ(hop.sealed_bytes, shot.sealed_bytes);
  EXPECT_EQ(hop.opened_bytes, shot.opened_bytes);
}

// The simulator itself must find what is wrong.
TEST(ScheduleSimulator, SeesAHazardAMismatchAndADeadlock) {
  const Case c{Op::reduce_scatter, Algorithm::ring, 3, 4};
  std::vector<Placement> places;
  for (Rank r = 0; r < 3; ++r) places.push_back(place(c, r));
  const auto with = [&](auto change) {
    std::vector<Schedule> schedules = schedules_of(c);
    change(schedules);
    return schedules;
  };
  const auto problem = [&](const std::vector<Schedule>& schedules, Order order) {
    return simulate(schedules, places, 12, {order, 0, 1, 1'000'000}).problem;
  };
  // Receiving into the half that is being sent: right when sends go first, and caught statically.
  const auto one_half = with([](auto& s) { s[0].steps[1].recvs[0].data = s[0].steps[1].sends[0].data; });
  EXPECT_EQ("step 1: a receive overwrites what is sent", test::hazards(one_half[0], places[0], 12, 4));
  const auto shorter = with([](auto& s) { s[1].steps[0].sends[0].data.elements = 3; });
  EXPECT_NE("", test::mismatch(shorter));
  EXPECT_NE("", problem(shorter, Order::sends_first));
  const auto silent = with([](auto& s) { s[1].steps[0].sends.clear(); });
  EXPECT_NE("", test::mismatch(silent));
  EXPECT_NE("", problem(silent, Order::sends_first));
  const auto unwritten = with([](auto& s) { s[2].steps[0].sends[0].data = {Buffer::scratch, 0, 4}; });
  EXPECT_EQ("rank 2 step 0: sends memory that nobody has written", problem(unwritten, Order::sends_first));
}

TEST(ScheduleSimulator, OneShotInPlaceNeedsItsLockstep) {
  const Case c{Op::all_reduce, Algorithm::one_shot, 2, 4, 0, true, true};
  const std::vector<Placement> places(2, place(c, 0));
  std::vector<Schedule> schedules = schedules_of(c);
  EXPECT_EQ("", test::hazards(schedules[0], places[0], 4, 4));
  for (Schedule& schedule : schedules) schedule.steps[0].lockstep = false;
  EXPECT_EQ("step 0: a receive overwrites what is sent", test::hazards(schedules[0], places[0], 4, 4));
  const auto late = simulate(schedules, places, 4, {Order::recvs_first, 0, 2, 1'000'000});
  EXPECT_FALSE(wanted(c, 0, 0) == late.memory[0][0] && wanted(c, 1, 0) == late.memory[1][0]);
  for (Schedule& schedule : schedules) {
    schedule.steps[0].lockstep = true;
    schedule.steps[0].recvs[0].data = {Buffer::output, 1, 3};
  }
  EXPECT_EQ("step 0: a receive overwrites what is sent", test::hazards(schedules[0], places[0], 4, 4));
}

TEST(ScheduleSimulator, LateReadsAreTried) {
  // Rank 0 swaps with rank 1 in one place: legal for nobody, and wrong exactly when a read comes late.
  std::vector<Schedule> schedules(2);
  for (Rank r = 0; r < 2; ++r) {
    schedules[r].rank = r;
    schedules[r].world = 2;
    Move move;
    move.peer = static_cast<Rank>(1 - r);
    move.data = {Buffer::output, 0, 2};
    Step step;
    step.sends.push_back(move);
    step.recvs.push_back(move);
    schedules[r].steps.push_back(step);
  }
  const std::vector<Placement> places(2, Placement{0, 0, 2});
  const auto late = simulate(schedules, places, 2, {Order::recvs_first, 0, 2, 1'000'000});
  EXPECT_TRUE(late.memory[0] == late.memory[1]);  // both hold one rank's values: the other's are lost
  const auto early = simulate(schedules, places, 2, {Order::sends_first, 0, 2, 1'000'000});
  EXPECT_FALSE(early.memory[0] == early.memory[1]);
  EXPECT_EQ("step 0: a receive overwrites what is sent", test::hazards(schedules[0], places[0], 2, 2));
}

}  // namespace
}  // namespace sealring
