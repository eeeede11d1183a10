// A model of the waits of a fused kernel: which column may take its next action, given flags and credits in
// slots that are compared for equality. It knows nothing of data.
//
// Each column of each rank is a list of actions (sealring/device/cuda/progress.h). Column c of a rank shares
// windows with column c of the others. Only `resident` columns of a rank run at a time, in the order in which
// they were started.
#pragma once

#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "sealring/device/cuda/progress.h"

namespace sealring::cuda::test {

struct ModelShape {
  Pipeline pipeline;
  std::uint32_t ranks = 2, columns = 1, segments = 1;
  std::vector<std::uint32_t> resident;              ///< of each rank, at least 1
  std::vector<std::vector<std::uint32_t>> started;  ///< of each rank, the columns in their order of starting

  static ModelShape of(const Pipeline& pipeline, std::uint32_t ranks, std::uint32_t columns,
                       std::uint32_t segments) {
    ModelShape out{pipeline, ranks, columns, segments, {}, {}};
    std::vector<std::uint32_t> in_order(columns);
    for (std::uint32_t c = 0; c < columns; ++c) in_order[c] = c;
    out.resident.assign(ranks, columns);
    out.started.assign(ranks, in_order);
    return out;
  }
};

class ProgressModel {
 public:
  explicit ProgressModel(ModelShape shape) : shape_(std::move(shape)) {
    walk_column(shape_.pipeline, shape_.ranks == 2, shape_.segments,
                [&](Stage stage, std::uint32_t segment) { add_actions(stage, segment); });
  }

  /// Takes enabled actions in a random order until none is left. True: every column has ended.
  bool run(std::mt19937_64& random) const {
    State state = start();
    while (true) {
      const std::vector<std::uint32_t> enabled = enabled_in(state);
      if (enabled.empty()) return finished(state);
      take(state, enabled[random() % enabled.size()]);
    }
  }

  /// Every interleaving: the number of reachable states in which nobody can go on and not all have ended.
  std::size_t hangs(std::size_t* states = nullptr) const {
    std::set<State> seen{start()};
    std::vector<State> open{start()};
    std::size_t out = 0;
    while (!open.empty()) {
      const State state = std::move(open.back());
      open.pop_back();
      const std::vector<std::uint32_t> enabled = enabled_in(state);
      if (enabled.empty() && !finished(state)) ++out;
      for (const std::uint32_t column : enabled) {
        State next = state;
        take(next, column);
        if (seen.insert(next).second) open.push_back(std::move(next));
      }
    }
    if (states != nullptr) *states = seen.size();
    return out;
  }

 private:
  /// One wait and what follows it. Peers are by distance, so that the list is the same on every rank.
  struct Action {
    bool sends = false;    ///< waits for a credit and posts a flag; else the other way round
    bool gathers = false;  ///< through the window of the sums
    std::uint32_t distance = 0, segment = 0;
  };
  /// Places of all columns, then all window words: small numbers, 0 is "never written".
  using State = std::vector<std::uint8_t>;

  void add_actions(Stage stage, std::uint32_t segment) {
    const auto for_peers = [&](bool sends, bool gathers) {
      for (std::uint32_t d = 1; d < shape_.ranks; ++d) actions_.push_back({sends, gathers, d, segment});
    };
    if (stage == Stage::push) for_peers(true, false);
    if (stage == Stage::reduce) {
      for_peers(false, false);
      for_peers(true, true);
    }
    if (stage == Stage::pull) for_peers(false, shape_.ranks > 2);
  }

  std::uint32_t slots(bool gathers) const {
    return gathers ? shape_.pipeline.gather_slots : shape_.pipeline.slots;
  }
  std::size_t words_a_direction() const { return 2 * (slots(false) + slots(true)); }
  /// The word of a slot, of the column's direction from one rank to another.
  std::size_t word(std::uint32_t from, std::uint32_t to, std::uint32_t column, bool gathers, bool credit,
                   std::uint32_t segment) const {
    const std::size_t direction = (from * shape_.ranks + to) * shape_.columns + column;
    const std::size_t kind = (gathers ? 2 * slots(false) : 0) + (credit ? slots(gathers) : 0);
    return shape_.ranks * shape_.columns + direction * words_a_direction() + kind + segment % slots(gathers);
  }
  State start() const {
    const std::size_t directions = shape_.ranks * shape_.ranks * shape_.columns;
    return State(shape_.ranks * shape_.columns + directions * words_a_direction());
  }
  std::uint32_t place(const State& state, std::uint32_t rank, std::uint32_t column) const {
    return state[rank * shape_.columns + column];
  }
  bool finished(const State& state) const {
    for (std::uint32_t i = 0; i < shape_.ranks * shape_.columns; ++i) {
      if (state[i] < actions_.size()) return false;
    }
    return true;
  }
  bool is_resident(const State& state, std::uint32_t rank, std::uint32_t column) const {
    std::uint32_t before = 0;
    for (const std::uint32_t other : shape_.started[rank]) {
      if (other == column) return before < shape_.resident[rank];
      before += place(state, rank, other) < actions_.size() ? 1 : 0;
    }
    return false;
  }

  bool may_go_on(const State& state, std::uint32_t rank, std::uint32_t column) const {
    const std::uint32_t at = place(state, rank, column);
    if (at == actions_.size() || !is_resident(state, rank, column)) return false;
    const Action& action = actions_[at];
    const std::uint32_t all = slots(action.gathers);
    if (all == 0) return false;
    if (action.sends) {
      const std::uint32_t to = (rank + action.distance) % shape_.ranks;
      if (action.segment < all) return true;
      const std::size_t credit = word(rank, to, column, action.gathers, true, action.segment);
      return state[credit] == action.segment - all + 1;
    }
    const std::uint32_t from = (rank + shape_.ranks - action.distance) % shape_.ranks;
    return state[word(from, rank, column, action.gathers, false, action.segment)] == action.segment + 1;
  }
  std::vector<std::uint32_t> enabled_in(const State& state) const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < shape_.ranks * shape_.columns; ++i) {
      if (may_go_on(state, i / shape_.columns, i % shape_.columns)) out.push_back(i);
    }
    return out;
  }
  void take(State& state, std::uint32_t index) const {
    const std::uint32_t rank = index / shape_.columns, column = index % shape_.columns;
    const Action& action = actions_[state[index]++];
    const std::uint32_t distance = action.sends ? action.distance : shape_.ranks - action.distance;
    const std::uint32_t peer = (rank + distance) % shape_.ranks;
    const std::uint32_t from = action.sends ? rank : peer, to = action.sends ? peer : rank;
    state[word(from, to, column, action.gathers, !action.sends, action.segment)] =
        static_cast<std::uint8_t>(action.segment + 1);
  }

  ModelShape shape_;
  std::vector<Action> actions_;
};

}  // namespace sealring::cuda::test
