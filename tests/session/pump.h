// A board in memory and ranks in one process: posts go up, awaited slots come down. Used by the session
// tests.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sealring/session/handshake.h"

namespace sealring::test {

using Board = std::map<std::string, Bytes>;

/// May change what reader `reader` sees in `slot`.
using Tamper = std::function<void(Rank reader, const std::string& slot, Bytes& bytes)>;

/// Moves messages until nothing moves any more. `errors[i]` is the first error of machine i, if any.
template <class Machine>
void pump(std::vector<Machine>& machines, const std::vector<Rank>& ranks, Board& board,
          std::vector<std::optional<Error>>& errors, const Tamper& tamper = {}) {
  errors.assign(machines.size(), std::nullopt);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t m = 0; m < machines.size(); ++m) {
      for (Post& post : machines[m].take_posts()) board.emplace(post.slot, std::move(post.bytes));
    }
    for (std::size_t m = 0; m < machines.size(); ++m) {
      for (const std::string& slot : machines[m].awaited()) {
        const auto found = board.find(slot);
        if (found == board.end()) continue;
        Bytes bytes = found->second;
        if (tamper) tamper(ranks[m], slot, bytes);
        moved = true;
        if (auto taken = machines[m].receive(slot, bytes); !taken) {
          errors[m] = taken.error();
          break;
        }
      }
    }
  }
}

/// A world of n ranks; each member may be changed before run().
struct World {
  explicit World(std::uint16_t n, const std::function<Identity(Rank)>& make_identity) {
    for (Rank rank = 0; rank < n; ++rank) {
      identities.push_back(std::make_unique<Identity>(make_identity(rank)));
      HandshakeConfig config;
      config.rank = rank;
      config.world = n;
      config.config_text = "segment_bytes=262144\nlanes=1\n";
      configs.push_back(config);
    }
  }
  static World of_key(std::uint16_t n, const JobKey& key) {
    return World(n, [&key](Rank) { return make_job_key_identity(key); });
  }

  void start() {
    for (Rank rank = 0; rank < configs.size(); ++rank) {
      auto machine = Handshake::start(configs[rank], *identities[rank]);
      SR_CHECK(machine.has_value(), machine.error().message());
      machines.push_back(*std::move(machine));
      ranks.push_back(rank);
    }
  }
  void run(const Tamper& tamper = {}) {
    start();
    pump(machines, ranks, board, errors, tamper);
  }
  bool all_ready() const {
    for (const Handshake& machine : machines) {
      if (!machine.ready()) return false;
    }
    return true;
  }
  bool none_ready() const {
    for (const Handshake& machine : machines) {
      if (machine.ready()) return false;
    }
    return true;
  }
  std::vector<std::unique_ptr<SessionKeys>> finish() {
    std::vector<std::unique_ptr<SessionKeys>> out;
    for (Handshake& machine : machines) out.push_back(std::move(machine).finish());
    return out;
  }

  std::vector<std::unique_ptr<Identity>> identities;
  std::vector<HandshakeConfig> configs;
  std::vector<Handshake> machines;
  std::vector<Rank> ranks;
  Board board;
  std::vector<std::optional<Error>> errors;
};

}  // namespace sealring::test
