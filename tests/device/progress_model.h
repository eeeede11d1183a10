// A model of the waits of a fused step: which column may take its next action, given flags and credits in
// slots that are compared for equality. It knows nothing of data.
//
// Each column of each rank is a list of actions (sealring/device/cuda/progress.h). Column c of a rank shares
// windows with column c of the others. Only `resident` columns of a rank run at a time, in the order in which
// they were started.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "sealring/device/cuda/progress.h"

namespace sealring::cuda::test {

/// `segments` are shared by the first `columns` columns of both ends.
struct ModelRecord {
  std::uint32_t from = 0, to = 0, segments = 1, columns = 1;
};

struct ModelStep {
  std::uint32_t ranks = 2, columns = 1;
  std::uint32_t lag_segments = kLagSegments, slots = kFusedSlots;
  bool by_items = false;                            ///< as columns of AES-GCM do; two ranks
  std::uint32_t lag_turns = 0;                      ///< not 0: instead of lag_segments
  std::vector<std::uint32_t> lags;                  ///< not empty: of each rank, instead of lag_segments
  std::vector<ModelRecord> records;                 ///< at most one between two ranks each way
  std::vector<std::uint32_t> resident;              ///< of each rank, at least 1
  std::vector<std::vector<std::uint32_t>> started;  ///< of each rank, the columns in their order of starting

  static ModelStep of(std::uint32_t ranks, std::uint32_t columns, std::vector<ModelRecord> records) {
    ModelStep out;
    out.ranks = ranks;
    out.columns = columns;
    out.records = std::move(records);
    std::vector<std::uint32_t> in_order(columns);
    for (std::uint32_t c = 0; c < columns; ++c) in_order[c] = c;
    out.resident.assign(ranks, columns);
    out.started.assign(ranks, in_order);
    return out;
  }
  /// Everybody sends as many segments to everybody.
  static ModelStep all_to_all(std::uint32_t ranks, std::uint32_t columns, std::uint32_t segments_a_column) {
    std::vector<ModelRecord> records;
    for (std::uint32_t from = 0; from < ranks; ++from) {
      for (std::uint32_t to = 0; to < ranks; ++to) {
        if (from != to) records.push_back({from, to, segments_a_column * columns, columns});
      }
    }
    return of(ranks, columns, std::move(records));
  }
};

class ProgressModel {
 public:
  explicit ProgressModel(ModelStep step) : step_(std::move(step)) {
    for (std::uint32_t rank = 0; rank < step_.ranks; ++rank) {
      for (std::uint32_t column = 0; column < step_.columns; ++column)
        actions_.push_back(actions_of(rank, column));
    }
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
  struct Word {
    std::size_t at = 0;  ///< in a State
    std::uint8_t value = 0;
  };
  /// A wait and what follows it up to the next wait.
  struct Action {
    bool waits = false;
    Word wait;
    std::vector<Word> posts;
  };
  /// Places of all columns, then all window words: small numbers, 0 is "never written".
  using State = std::vector<std::uint8_t>;

  /// A rank's records one way: to rank + 1, rank + 2, ...; from rank 0, 1, ...
  std::vector<ModelRecord> links(std::uint32_t rank, bool pushes) const {
    std::vector<ModelRecord> out;
    for (std::uint32_t i = 0; i < step_.ranks; ++i) {
      const std::uint32_t peer = pushes ? (rank + i) % step_.ranks : i;
      for (const ModelRecord& record : step_.records) {
        if (pushes ? record.from == rank && record.to == peer : record.to == rank && record.from == peer)
          out.push_back(record);
      }
    }
    return out;
  }
  std::vector<Action> actions_of(std::uint32_t rank, std::uint32_t column) const {
    const std::vector<ModelRecord> pushes = links(rank, true), pulls = links(rank, false);
    const auto stride = static_cast<std::uint32_t>(std::max({std::size_t{1}, pushes.size(), pulls.size()}));
    const std::uint32_t segments = step_.lags.empty() ? step_.lag_segments : step_.lags[rank];
    const std::uint32_t lag = step_.lag_turns != 0 ? step_.lag_turns : segments * stride;
    const auto counts = [&](const std::vector<ModelRecord>& records) {
      std::vector<std::uint32_t> out;
      for (const ModelRecord& record : records)
        out.push_back(share_of(record.segments, record.columns, column));
      return out;
    };
    std::vector<Action> out;
    const auto add = [&](Act act, std::uint32_t link, std::uint32_t segment) {
      const bool push = act == Act::wait_credit || act == Act::post_flag;
      const bool credit = act == Act::wait_credit || act == Act::post_credit;
      const bool waits = act == Act::wait_credit || act == Act::wait_flag;
      if (act == Act::wait_credit && segment < step_.slots) return;
      Word word{word_of(push ? pushes[link] : pulls[link], column, credit, segment),
                static_cast<std::uint8_t>(segment + 1)};
      if (act == Act::wait_credit) word.value = static_cast<std::uint8_t>(word.value - step_.slots);
      if (waits || out.empty()) out.push_back(Action{waits, word, {}});
      if (!waits) out.back().posts.push_back(word);
    };
    const std::vector<std::uint32_t> out_counts = counts(pushes), in_counts = counts(pulls);
    if (!step_.by_items) {
      walk_column(stride, lag, out_counts, in_counts, add);
      return out;
    }
    walk_items(Items{out_counts.empty() ? 0 : out_counts[0], in_counts.empty() ? 0 : in_counts[0]},
               [&](Act act, std::uint32_t segment) { add(act, 0, segment); });
    return out;
  }

  /// The word of a slot, of the column's direction from one rank to another.
  std::size_t word_of(const ModelRecord& record, std::uint32_t column, bool credit,
                      std::uint32_t segment) const {
    const std::size_t direction = (record.from * step_.ranks + record.to) * step_.columns + column;
    return step_.ranks * step_.columns + (2 * direction + (credit ? 1 : 0)) * step_.slots +
           segment % step_.slots;
  }
  State start() const {
    const std::size_t directions = step_.ranks * step_.ranks * step_.columns;
    return State(step_.ranks * step_.columns + 2 * directions * step_.slots);
  }
  bool ended(const State& state, std::uint32_t index) const { return state[index] == actions_[index].size(); }
  bool finished(const State& state) const {
    for (std::uint32_t i = 0; i < actions_.size(); ++i) {
      if (!ended(state, i)) return false;
    }
    return true;
  }
  bool is_resident(const State& state, std::uint32_t rank, std::uint32_t column) const {
    std::uint32_t before = 0;
    for (const std::uint32_t other : step_.started[rank]) {
      if (other == column) return before < step_.resident[rank];
      before += ended(state, rank * step_.columns + other) ? 0 : 1;
    }
    return false;
  }
  std::vector<std::uint32_t> enabled_in(const State& state) const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < actions_.size(); ++i) {
      if (ended(state, i) || !is_resident(state, i / step_.columns, i % step_.columns)) continue;
      const Action& action = actions_[i][state[i]];
      if (!action.waits || state[action.wait.at] == action.wait.value) out.push_back(i);
    }
    return out;
  }
  void take(State& state, std::uint32_t index) const {
    for (const Word& post : actions_[index][state[index]].posts) state[post.at] = post.value;
    ++state[index];
  }

  ModelStep step_;
  std::vector<std::vector<Action>> actions_;  ///< by rank * columns + column
};

}  // namespace sealring::cuda::test
