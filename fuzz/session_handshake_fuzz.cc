// Two ranks start over a store that changes one message on the way to one reader. A reader that was shown
// changed bytes never becomes ready, and two ranks that are ready have the same keys.
//
// Input: u8 which message of the run, u8 how (xor, overwrite, cut, append, replace by another message), u16
// where, bytes.
#include <map>
#include <optional>

#include "sealring/session/handshake.h"

namespace {

using namespace sealring;

struct Change {
  unsigned message = 0, how = 0;
  std::size_t where = 0;
  ByteView bytes;

  void apply(Bytes& target, const std::map<std::string, Bytes>& board) const {
    const std::size_t at = target.empty() ? 0 : where % target.size();
    switch (how % 5) {
      case 0:
        for (std::size_t i = 0; i < bytes.size() && at + i < target.size(); ++i) target[at + i] ^= bytes[i];
        break;
      case 1:
        for (std::size_t i = 0; i < bytes.size() && at + i < target.size(); ++i) target[at + i] = bytes[i];
        break;
      case 2:
        target.resize(at);
        break;
      case 3:
        target.insert(target.end(), bytes.begin(), bytes.end());
        break;
      case 4: {
        auto other = board.begin();
        std::advance(other, static_cast<std::ptrdiff_t>(where % board.size()));
        target = other->second;
        break;
      }
    }
  }
};

struct Run {
  std::map<std::string, Bytes> board;
  unsigned delivered = 0;
  std::optional<Rank> shown_changed;

  void collect(Handshake& machine) {
    for (Post& post : machine.take_posts()) board.emplace(post.slot, std::move(post.bytes));
  }
  /// True when anything moved.
  bool deliver(Rank rank, Handshake& machine, const Change& change) {
    bool moved = false;
    for (const std::string& slot : machine.awaited()) {
      const auto found = board.find(slot);
      if (found == board.end()) continue;
      Bytes bytes = found->second;
      if (delivered++ == change.message % 12) change.apply(bytes, board);
      if (bytes != found->second) shown_changed = rank;
      moved = true;
      const auto taken = machine.receive(slot, bytes);
      if (!taken) {
        SR_CHECK(taken.error().rank == rank && taken.error().code != Code::ok && !machine.ready());
        SR_CHECK(!machine.receive(slot, found->second).has_value());
        break;
      }
    }
    return moved;
  }
};

void compare(Handshake& a, Handshake& b) {
  const auto first = std::move(a).finish(), second = std::move(b).finish();
  SR_CHECK(first->th3() == second->th3());
  SR_CHECK(constant_time_equal(first->pair_secret(1).view(), second->pair_secret(0).view()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const JobKey key = JobKey::generate();
  static const Identity identities[2] = {make_job_key_identity(key), make_job_key_identity(key)};
  ByteReader in(std::as_bytes(std::span(data, size)));
  Change change;
  change.message = in.get<std::uint8_t>();
  change.how = in.get<std::uint8_t>();
  change.where = in.get<std::uint16_t>();
  if (in.failed()) return 0;
  change.bytes = in.take(in.remaining());

  std::optional<Handshake> machines[2];
  for (Rank rank = 0; rank < 2; ++rank) {
    HandshakeConfig config;
    config.rank = rank;
    config.world = 2;
    config.config_text = "lanes=1\n";
    machines[rank].emplace(Handshake::start(config, identities[rank]).value());
  }
  Run run;
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& machine : machines) run.collect(*machine);
    for (Rank rank = 0; rank < 2; ++rank) moved = run.deliver(rank, *machines[rank], change) || moved;
  }
  SR_CHECK(!run.shown_changed || !machines[*run.shown_changed]->ready());
  SR_CHECK(run.shown_changed || (machines[0]->ready() && machines[1]->ready()));
  if (machines[0]->ready() && machines[1]->ready()) compare(*machines[0], *machines[1]);
  return 0;
}
