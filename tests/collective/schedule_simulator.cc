#include "tests/collective/schedule_simulator.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include "sealring/base/result.h"

namespace sealring::test {
namespace {

struct Span {
  std::uint64_t begin = 0, end = 0;
  bool empty() const { return begin == end; }
  bool overlaps(const Span& other) const {
    return !empty() && !other.empty() && begin < other.end && other.begin < end;
  }
  friend bool operator==(const Span&, const Span&) = default;
};

Span span_of(const Placement& placement, const Range& range) {
  const std::uint64_t base = range.buffer == Buffer::input    ? placement.input
                             : range.buffer == Buffer::output ? placement.output
                                                              : placement.elements;
  return {base + range.offset, base + range.offset + range.elements};
}

Value sum_of(const Value& a, const Value& b) {
  Value out;
  out.parts.reserve(a.parts.size() + b.parts.size());
  std::merge(a.parts.begin(), a.parts.end(), b.parts.begin(), b.parts.end(), std::back_inserter(out.parts));
  out.divided = static_cast<std::uint16_t>(a.divided + b.divided);
  return out;
}

Value scaled(Value value) {
  for (Contribution& part : value.parts) ++part.scaled;
  return value;
}

bool same_but_peer(Move a, const Move& b) {
  a.peer = b.peer;
  return a == b;
}

// One segment on the wire, with what its authenticated context would say.
struct Segment {
  std::uint32_t step = 0;
  std::uint64_t index = 0;
  bool multicast = false;
  std::uint64_t element_offset = 0;
  std::uint64_t move_elements = 0;
  std::vector<Value> values;
};

struct RankState {
  std::uint32_t step = 0;
  std::vector<std::uint64_t> sent, received;  // segments done of each move of the step
  std::vector<std::vector<Value>> multicast;  // segments of the step's multicast, read once
  std::map<std::uint64_t, std::vector<std::vector<Value>>>
      gathered;  // ordered: by element of memory, what has come
};

class Simulator {
 public:
  Simulator(const std::vector<Schedule>& schedules, const std::vector<Placement>& placements,
            std::uint64_t input_elements, const SimulatorOptions& options)
      : schedules_(schedules), placements_(placements), options_(options), random_(options.seed) {
    const std::size_t world = schedules.size();
    outcome_.memory.resize(world);
    outcome_.multicast_reads.resize(world);
    states_.resize(world);
    streams_.resize(world * world);
    for (std::size_t r = 0; r < world; ++r) {
      outcome_.memory[r].resize(placements[r].elements + schedules[r].scratch_elements);
      for (std::uint64_t i = 0; i < input_elements; ++i) {
        outcome_.memory[r][placements[r].input + i].parts = {
            Contribution{static_cast<Rank>(r), 0, static_cast<std::uint32_t>(i)}};
      }
      copy_before(r);
      enter_step(r);
    }
    enabled_.resize(world);
    for (std::size_t r = 0; r < world; ++r) find_enabled(r);
  }

  Outcome run() {
    while (outcome_.problem.empty() && advance()) {
    }
    for (std::size_t r = 0; r < states_.size() && outcome_.problem.empty(); ++r) {
      if (!finished(r)) problem(r, "stands still: deadlock");
    }
    for (const auto& stream : streams_) {
      if (!stream.empty() && outcome_.problem.empty()) outcome_.problem = "segments that nobody receives";
    }
    return std::move(outcome_);
  }

 private:
  struct Event {
    std::size_t rank, move;
    bool is_send;
  };

  void problem(std::size_t rank, const std::string& what) {
    if (outcome_.problem.empty()) {
      outcome_.problem =
          "rank " + std::to_string(rank) + " step " + std::to_string(states_[rank].step) + ": " + what;
    }
  }
  bool finished(std::size_t r) const { return states_[r].step == schedules_[r].steps.size(); }
  const Step& step_of(std::size_t r) const { return schedules_[r].steps[states_[r].step]; }
  std::uint64_t segments_of(const Move& move) const {
    return std::max<std::uint64_t>(
        1, (move.data.elements + options_.segment_elements - 1) / options_.segment_elements);
  }
  Span segment_span(std::size_t r, const Range& range, std::uint64_t index) const {
    const Span whole = span_of(placements_[r], range);
    const std::uint64_t begin = whole.begin + index * options_.segment_elements;
    return {std::min(begin, whole.end), std::min(begin + options_.segment_elements, whole.end)};
  }
  std::deque<Segment>& stream(std::size_t from, std::size_t to) {
    return streams_[from * states_.size() + to];
  }

  void copy_before(std::size_t r) {
    for (const Copy& copy : schedules_[r].before) {
      const Span from = span_of(placements_[r], copy.from);
      const Span to = span_of(placements_[r], copy.to);
      if (from == to && !copy.scale) continue;
      if (from != to && from.overlaps(to)) problem(r, "a copy overlaps itself");
      for (std::uint64_t i = 0; i < copy.from.elements; ++i) {
        const Value& value = outcome_.memory[r][from.begin + i];
        outcome_.memory[r][to.begin + i] = copy.scale ? scaled(value) : value;
      }
    }
  }

  void enter_step(std::size_t r) {
    RankState& state = states_[r];
    while (!finished(r)) {
      const Step& step = step_of(r);
      state.sent.assign(step.sends.size(), 0);
      state.received.assign(step.recvs.size(), 0);
      state.multicast.clear();
      if (!step.sends.empty() || !step.recvs.empty()) return;
      ++state.step;
    }
  }

  // A stream carries its moves one after the other: only the first unfinished move of a peer may advance.
  bool is_next(const std::vector<Move>& moves, const std::vector<std::uint64_t>& done,
               std::size_t index) const {
    if (done[index] == segments_of(moves[index])) return false;
    for (std::size_t k = 0; k < index; ++k) {
      if (moves[k].peer == moves[index].peer && done[k] < segments_of(moves[k])) return false;
    }
    return true;
  }

  // In lockstep nothing is written before every send has read its segment of the same number.
  bool may_write(std::size_t r, std::uint64_t index) const {
    const Step& step = step_of(r);
    const RankState& state = states_[r];
    for (std::size_t k = 0; k < step.sends.size() && step.lockstep; ++k) {
      const bool shared = step.sends[k].multicast && index < state.multicast.size();
      if (state.sent[k] <= index && !(shared && !state.multicast[index].empty())) return false;
    }
    return true;
  }

  /// What a rank can do now: it changes with an event of this rank or of a peer that it has the event with.
  void find_enabled(std::size_t r) {
    std::vector<Event>& events = enabled_[r];
    events.clear();
    if (finished(r)) return;
    const Step& step = step_of(r);
    for (std::size_t k = 0; k < step.sends.size(); ++k) {
      if (is_next(step.sends, states_[r].sent, k) &&
          stream(r, step.sends[k].peer).size() < options_.stream_segments) {
        events.push_back({r, k, true});
      }
    }
    for (std::size_t k = 0; k < step.recvs.size(); ++k) {
      if (is_next(step.recvs, states_[r].received, k) && !stream(step.recvs[k].peer, r).empty() &&
          may_write(r, states_[r].received[k])) {
        events.push_back({r, k, false});
      }
    }
  }

  Event pick(const std::vector<Event>& events) {
    const auto first_where = [&](bool is_send) {
      const auto found =
          std::find_if(events.begin(), events.end(), [&](const Event& e) { return e.is_send == is_send; });
      return found == events.end() ? events.front() : *found;
    };
    switch (options_.order) {
      case Order::sends_first:
        return first_where(true);
      case Order::recvs_first:
        return first_where(false);
      case Order::reversed:
        return events.back();
      case Order::random:
        return events[random_() % events.size()];
    }
    return events.front();
  }

  bool advance() {
    events_.clear();
    for (const std::vector<Event>& events : enabled_)
      events_.insert(events_.end(), events.begin(), events.end());
    if (events_.empty()) return false;
    const Event event = pick(events_);
    const Step& before = step_of(event.rank);
    const std::size_t peer = (event.is_send ? before.sends : before.recvs)[event.move].peer;
    event.is_send ? send(event.rank, event.move) : receive(event.rank, event.move);
    const RankState& state = states_[event.rank];
    const Step& step = step_of(event.rank);
    const auto all_done = [&](const std::vector<Move>& moves, const std::vector<std::uint64_t>& done) {
      for (std::size_t k = 0; k < moves.size(); ++k) {
        if (done[k] < segments_of(moves[k])) return false;
      }
      return true;
    };
    if (all_done(step.sends, state.sent) && all_done(step.recvs, state.received)) {
      if (!state.gathered.empty()) problem(event.rank, "an ordered reduction is incomplete");
      ++states_[event.rank].step;
      enter_step(event.rank);
    }
    find_enabled(event.rank);
    find_enabled(peer);
    return true;
  }

  std::vector<Value> read(std::size_t r, const Move& move, std::uint64_t index) {
    const Span span = segment_span(r, move.data, index);
    std::vector<Value> out;
    out.reserve(span.end - span.begin);
    for (std::uint64_t at = span.begin; at < span.end; ++at) {
      const Value& value = outcome_.memory[r][at];
      if (value.parts.empty()) problem(r, "sends memory that nobody has written");
      out.push_back(move.raw ? scaled(value) : value);
    }
    return out;
  }

  void send(std::size_t r, std::size_t k) {
    RankState& state = states_[r];
    const Move& move = step_of(r).sends[k];
    const std::uint64_t index = state.sent[k]++;
    Segment segment{state.step, index, move.multicast, move.element_offset, move.data.elements, {}};
    if (move.multicast) {
      // Read once for all peers: whoever comes later gets the record that was sealed then.
      if (state.multicast.empty()) state.multicast.resize(segments_of(move));
      if (state.multicast[index].empty()) {
        state.multicast[index] = read(r, move, index);
        outcome_.multicast_reads[r] += state.multicast[index].size();
      }
      segment.values = state.multicast[index];
    } else {
      segment.values = read(r, move, index);
    }
    stream(r, move.peer).push_back(std::move(segment));
  }

  void receive(std::size_t r, std::size_t k) {
    RankState& state = states_[r];
    const Step& step = step_of(r);
    const Move& move = step.recvs[k];
    Segment segment = std::move(stream(move.peer, r).front());
    stream(move.peer, r).pop_front();
    const std::uint64_t index = state.received[k]++;
    if (segment.step != state.step || segment.index != index || segment.multicast != move.multicast ||
        segment.element_offset != move.element_offset || segment.move_elements != move.data.elements) {
      return problem(r, "a segment is not the one expected");  // DATA_TAG in life
    }
    const Span to = segment_span(r, move.data, index);
    if (step.combine == Combine::replace) {
      for (std::uint64_t at = to.begin; at < to.end; ++at)
        outcome_.memory[r][at] = segment.values[at - to.begin];
    } else if (step.combine == Combine::reduce) {
      combine(r, move, index, {std::move(segment.values)});
    } else if (!to.empty()) {
      // Ordered: waits for the same elements of every receive of the step with this destination.
      auto& gathered = state.gathered[to.begin];
      gathered.push_back(std::move(segment.values));
      const auto wanted = static_cast<std::size_t>(std::count_if(
          step.recvs.begin(), step.recvs.end(), [&](const Move& other) { return other.data == move.data; }));
      if (gathered.size() < wanted) return;
      combine(r, move, index, gathered);
      state.gathered.erase(to.begin);
    }
  }

  void combine(std::size_t r, const Move& move, std::uint64_t index,
               const std::vector<std::vector<Value>>& received) {
    const Span local = segment_span(r, move.local, index);
    const Span to = segment_span(r, move.data, index);
    if (local.end - local.begin != to.end - to.begin) return problem(r, "local and data differ in length");
    for (std::uint64_t i = 0; i < to.end - to.begin; ++i) {
      Value value = outcome_.memory[r][local.begin + i];
      if (value.parts.empty()) problem(r, "reduces memory that nobody has written");
      if (move.raw) value = scaled(value);
      for (const std::vector<Value>& one : received) value = sum_of(value, one[i]);
      if (move.last) ++value.divided;
      outcome_.memory[r][to.begin + i] = std::move(value);
    }
  }

  const std::vector<Schedule>& schedules_;
  const std::vector<Placement>& placements_;
  SimulatorOptions options_;
  std::mt19937_64 random_;
  std::vector<RankState> states_;
  std::vector<std::deque<Segment>> streams_;
  std::vector<std::vector<Event>> enabled_;  ///< by rank
  std::vector<Event> events_;                ///< of all ranks
  Outcome outcome_;
};

std::uint64_t size_of(const Schedule& schedule, Buffer buffer, std::uint64_t input_elements,
                      std::uint64_t output_elements) {
  return buffer == Buffer::input    ? input_elements
         : buffer == Buffer::output ? output_elements
                                    : schedule.scratch_elements;
}

std::string step_hazard(const Step& step, const Placement& placement) {
  const Move* multicast = nullptr;
  for (std::size_t k = 0; k < step.sends.size(); ++k) {
    const Move& send = step.sends[k];
    if (!send.multicast) continue;
    if (multicast != nullptr && (!step.sends[k - 1].multicast || !same_but_peer(*multicast, send))) {
      return "the sends of a multicast are not neighbours or differ";
    }
    multicast = &send;
  }
  for (const Move& recv : step.recvs) {
    const Span written = span_of(placement, recv.data);
    for (const Move& send : step.sends) {
      const Span sent = span_of(placement, send.data);
      if (written.overlaps(sent) && !(step.lockstep && written == sent)) {
        return "a receive overwrites what is sent";
      }
    }
    if (step.lockstep && step.combine == Combine::replace) return "lockstep without a reduction";
    for (const Move& other : step.recvs) {
      const bool together = step.combine == Combine::ordered && other.data == recv.data;
      if (&other != &recv && !together && written.overlaps(span_of(placement, other.data))) {
        return "two receives write the same place";
      }
      if (step.combine == Combine::replace) continue;
      if (together && other.local != recv.local) return "an ordered reduction has two locals";
      const Span local = span_of(placement, other.local);
      const bool own = &other == &recv || together;
      if (written.overlaps(local) && !(own && written == local)) return "a receive overwrites a local";
    }
  }
  return {};
}

}  // namespace

Outcome simulate(const std::vector<Schedule>& schedules, const std::vector<Placement>& placements,
                 std::uint64_t input_elements, const SimulatorOptions& options) {
  SR_CHECK(schedules.size() == placements.size());
  return Simulator(schedules, placements, input_elements, options).run();
}

std::string hazards(const Schedule& schedule, const Placement& placement, std::uint64_t input_elements,
                    std::uint64_t output_elements) {
  const auto outside = [&](const Range& range) {
    const std::uint64_t size = size_of(schedule, range.buffer, input_elements, output_elements);
    return range.offset > size || range.elements > size - range.offset;
  };
  for (const Copy& copy : schedule.before) {
    if (outside(copy.from) || outside(copy.to)) return "a copy leaves its buffer";
    if (copy.from.elements != copy.to.elements) return "a copy changes its length";
  }
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const std::string at = "step " + std::to_string(s) + ": ";
    for (const Move& send : step.sends) {
      if (outside(send.data)) return at + "a send leaves its buffer";
    }
    for (const Move& recv : step.recvs) {
      if (outside(recv.data)) return at + "a receive leaves its buffer";
      if (recv.data.buffer == Buffer::input) return at + "a receive writes the input";
      if (step.combine != Combine::replace && outside(recv.local)) return at + "a local leaves its buffer";
    }
    if (const std::string hazard = step_hazard(step, placement); !hazard.empty()) return at + hazard;
  }
  return {};
}

std::string mismatch(const std::vector<Schedule>& schedules) {
  for (std::size_t a = 0; a < schedules.size(); ++a) {
    for (std::size_t b = 0; b < schedules.size(); ++b) {
      const std::string pair = std::to_string(a) + " to " + std::to_string(b);
      if (schedules[a].steps.size() != schedules[b].steps.size()) return "unequal numbers of steps: " + pair;
      for (std::size_t s = 0; s < schedules[a].steps.size(); ++s) {
        std::vector<const Move*> sends, recvs;
        for (const Move& send : schedules[a].steps[s].sends) {
          if (send.peer == b) sends.push_back(&send);
        }
        for (const Move& recv : schedules[b].steps[s].recvs) {
          if (recv.peer == a) recvs.push_back(&recv);
        }
        if (sends.size() != recvs.size() || (a == b && !sends.empty())) return "unmatched moves: " + pair;
        for (std::size_t k = 0; k < sends.size(); ++k) {
          if (sends[k]->data.elements != recvs[k]->data.elements ||
              sends[k]->multicast != recvs[k]->multicast ||
              sends[k]->element_offset != recvs[k]->element_offset) {
            return "a send and its receive differ: " + pair;
          }
        }
      }
    }
  }
  return {};
}

}  // namespace sealring::test
