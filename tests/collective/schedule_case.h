// A collective as tests of schedules try it: its schedules run on symbolic memory, its results and the rules
// of steps checked.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/collective/schedule_simulator.h"

namespace sealring::test {

struct ScheduleCase {
  Op op;
  Algorithm algorithm;
  std::uint16_t world;
  std::uint64_t elements;
  Rank root = 0;
  bool sender_keys = true;
  bool in_place = false;
  std::uint16_t node_ranks = 0;
};
std::ostream& operator<<(std::ostream& out, const ScheduleCase& c);

/// Elements of input and output of a rank.
std::uint64_t input_elements(const ScheduleCase& c);
std::uint64_t output_elements(const ScheduleCase& c);
/// Out of place: input, then output. In place: the smaller one inside the larger at rank * elements, or the
/// same.
Placement place(const ScheduleCase& c, Rank rank);
/// Of every rank.
std::vector<Schedule> schedules_of(const ScheduleCase& c);
/// What element i of a rank's output must be.
Value wanted(const ScheduleCase& c, Rank rank, std::uint64_t i);
void expect_results(const ScheduleCase& c, const std::vector<Placement>& places, const Outcome& outcome);

/// Hazards, matching, and results in several orders; `thorough`: also with little room in streams, and random
/// orders.
void check(const ScheduleCase& c, bool thorough);
/// With and without sender keys, out of place and in place, with every root.
void check_all_forms(ScheduleCase c, bool thorough);

}  // namespace sealring::test
