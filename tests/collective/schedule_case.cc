#include "tests/collective/schedule_case.h"

#include <algorithm>

namespace sealring::test {
namespace {

bool has_root(Op op) {
  return op == Op::broadcast || op == Op::reduce || op == Op::gather || op == Op::scatter;
}

// Whether the op defines rank's output at all.
bool has_output(const ScheduleCase& c, Rank rank) {
  if (c.op == Op::barrier) return false;
  return !(c.op == Op::reduce || c.op == Op::gather) || rank == c.root;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const ScheduleCase& c) {
  return out << to_string(c.op) << " " << to_string(c.algorithm) << " world " << c.world << " elements "
             << c.elements << " root " << c.root << (c.sender_keys ? "" : " no sender keys")
             << (c.in_place ? " in place" : "") << " nodes of " << c.node_ranks;
}

std::uint64_t input_elements(const ScheduleCase& c) {
  const bool many = c.op == Op::reduce_scatter || c.op == Op::scatter || c.op == Op::all_to_all;
  return many ? c.elements * c.world : c.elements;
}
std::uint64_t output_elements(const ScheduleCase& c) {
  const bool many = c.op == Op::all_gather || c.op == Op::gather || c.op == Op::all_to_all;
  return many ? c.elements * c.world : c.elements;
}

Placement place(const ScheduleCase& c, Rank rank) {
  const std::uint64_t in = input_elements(c);
  const std::uint64_t out = output_elements(c);
  if (!c.in_place) return {0, in, in + out};
  Placement placement{0, 0, std::max(in, out)};
  if (in > out) placement.output = rank * c.elements;
  if (out > in) placement.input = rank * c.elements;
  return placement;
}

std::vector<Schedule> schedules_of(const ScheduleCase& c) {
  std::vector<Schedule> out;
  for (Rank r = 0; r < c.world; ++r) {
    out.push_back(
        make_schedule({c.op, c.algorithm, r, c.world, c.elements, c.root, c.sender_keys, c.node_ranks}));
  }
  return out;
}

Value wanted(const ScheduleCase& c, Rank rank, std::uint64_t i) {
  const auto one = [](std::uint64_t from, std::uint64_t index) {
    return Value{{Contribution{static_cast<Rank>(from), 0, static_cast<std::uint32_t>(index)}}, 0};
  };
  switch (c.op) {
    case Op::broadcast:
      return one(c.root, i);
    case Op::all_gather:
    case Op::gather:
      return one(i / c.elements, i % c.elements);
    case Op::scatter:
      return one(c.root, rank * c.elements + i);
    case Op::all_to_all:
      return one(i / c.elements, rank * c.elements + i % c.elements);
    default:
      break;
  }
  // Reductions: every rank once, premul's factor applied to each once, avg's division once (never at world 1,
  // where a division by 1 would change nothing).
  const std::uint64_t index = c.op == Op::reduce_scatter ? rank * c.elements + i : i;
  Value value;
  value.parts.reserve(c.world);
  for (Rank r = 0; r < c.world; ++r) value.parts.push_back({r, 1, static_cast<std::uint32_t>(index)});
  value.divided = c.world > 1 ? 1 : 0;
  return value;
}

void expect_results(const ScheduleCase& c, const std::vector<Placement>& places, const Outcome& outcome) {
  for (Rank r = 0; r < c.world; ++r) {
    if (has_output(c, r)) {
      for (std::uint64_t i = 0; i < output_elements(c); ++i) {
        ASSERT_TRUE(wanted(c, r, i) == outcome.memory[r][places[r].output + i])
            << "rank " << r << " element " << i;
      }
    }
    // Out of place, inputs stay what they were.
    for (std::uint64_t i = 0; i < input_elements(c) && !c.in_place; ++i) {
      const Value mine{{Contribution{r, 0, static_cast<std::uint32_t>(i)}}, 0};
      ASSERT_TRUE(mine == outcome.memory[r][places[r].input + i])
          << "input of rank " << r << " element " << i;
    }
  }
}

void check(const ScheduleCase& c, bool thorough) {
  SCOPED_TRACE(testing::Message() << c);
  const std::vector<Schedule> schedules = schedules_of(c);
  std::vector<Placement> places;
  for (Rank r = 0; r < c.world; ++r) {
    places.push_back(place(c, r));
    ASSERT_EQ("", hazards(schedules[r], places[r], input_elements(c), output_elements(c))) << "rank " << r;
  }
  ASSERT_EQ("", mismatch(schedules));
  const std::uint64_t segment = std::max<std::uint64_t>(2, c.elements / 16);
  std::vector<SimulatorOptions> runs{{Order::sends_first, 0, segment, 1'000'000},
                                     {Order::recvs_first, 0, segment, 1'000'000}};
  if (thorough) {
    runs.push_back({Order::reversed, 0, 1, 1});
    runs.push_back({Order::random, 1, 1, 1});
    runs.push_back({Order::random, 2, 3, 2});
  }
  for (const SimulatorOptions& options : runs) {
    const Outcome outcome = simulate(schedules, places, input_elements(c), options);
    ASSERT_EQ("", outcome.problem);
    ASSERT_NO_FATAL_FAILURE(expect_results(c, places, outcome));
    for (Rank r = 0; r < c.world; ++r) {
      std::uint64_t multicast = 0;
      for (const Step& step : schedules[r].steps) {
        if (!step.sends.empty() && step.sends[0].multicast) multicast += step.sends[0].data.elements;
      }
      ASSERT_EQ(multicast, outcome.multicast_reads[r]) << "a multicast was read more than once";
    }
  }
}

void check_all_forms(ScheduleCase c, bool thorough) {
  for (const bool sender_keys : {true, false}) {
    for (const bool in_place : {false, true}) {
      if (in_place && (c.op == Op::all_to_all || c.op == Op::barrier)) continue;  // not offered
      c.sender_keys = sender_keys;
      c.in_place = in_place;
      for (Rank root = 0; root < (has_root(c.op) ? c.world : 1); ++root) {
        c.root = root;
        ASSERT_NO_FATAL_FAILURE(check(c, thorough));
      }
    }
  }
}

}  // namespace sealring::test
