#include "sealring/channel/establish.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

namespace sealring {
namespace {

std::string joined(const std::vector<Rank>& ranks) {
  std::string out;
  for (const Rank rank : ranks) out += (out.empty() ? "" : ", ") + std::to_string(rank);
  return out;
}

/// Another rank's note, if one was posted.
Result<void> look_for_notes(Store& store, const std::string& prefix, Rank me,
                            const std::vector<Rank>& members, std::uint16_t world) {
  for (const Rank rank : members) {
    if (rank == me) continue;
    SR_TRY(const auto bytes, store.try_get(fmt::format("{}/note/{}", prefix, rank)));
    if (!bytes) continue;
    const auto note = Note::decode(*bytes, world);
    if (!note || note->rank != rank) continue;
    Error error;
    error.code = Code::aborted;
    error.rank = me;
    error.peer = rank;
    error.stage = "handshake";
    error.what = fmt::format("reported by rank {}, unauthenticated: SR-E{} {}{}", rank,
                             static_cast<unsigned>(note->code), code_info(note->code).name,
                             note->peer >= 0 ? fmt::format(" about rank {}", note->peer) : std::string());
    return fail(std::move(error));
  }
  return {};
}

/// Waits between polls: short at first, since local ranks answer within a millisecond.
class Backoff {
 public:
  void progress() { pause_ = std::chrono::microseconds(200); }
  void pause() {
    std::this_thread::sleep_for(pause_);
    pause_ = std::min<std::chrono::microseconds>(pause_ * 2, std::chrono::milliseconds(20));
  }
  bool slow() const { return pause_ >= std::chrono::milliseconds(10); }

 private:
  std::chrono::microseconds pause_{200};
};

/// Moves posts and awaited slots until the machine is ready.
template <class Machine>
Result<void> pump(Machine& machine, Store& store, const std::string& prefix, Rank me,
                  const std::vector<Rank>& members, std::uint16_t world, Deadline deadline) {
  Backoff backoff;
  while (true) {
    for (Post& post : machine.take_posts()) SR_TRY(store.set(prefix + "/" + post.slot, post.bytes));
    if (machine.ready()) return {};
    bool progress = false;
    for (const std::string& slot : machine.awaited()) {
      SR_TRY(const auto bytes, store.try_get(prefix + "/" + slot));
      if (!bytes) continue;
      SR_TRY(machine.receive(slot, *bytes));
      progress = true;
    }
    if (progress) {
      backoff.progress();
      continue;
    }
    if (backoff.slow()) SR_TRY(look_for_notes(store, prefix, me, members, world));
    if (deadline.expired()) {
      Error error;
      error.code = Code::timeout;
      error.rank = me;
      error.stage = fmt::format("handshake.{}", machine.stage());
      error.what = fmt::format("ranks missing: {} (at {})", joined(machine.missing()), store.describe());
      error.next = "start the missing ranks, or look at their logs";
      return fail(std::move(error));
    }
    backoff.pause();
  }
}

/// Tells the others why this rank gave up; best effort.
void post_note(Store& store, const std::string& prefix, Rank me, const Error& error) {
  const Note note{me, error.code, error.peer};
  (void)store.set(fmt::format("{}/note/{}", prefix, me), note.encode());
}

/// Stays until everybody of `present` has given up too, or `until`: the store may live in this rank's process
/// and end with it, and with the store the note.
void linger(Store& store, const std::string& prefix, Rank me, const std::vector<Rank>& present,
            Deadline until) {
  Backoff backoff;
  for (const Rank rank : present) {
    while (rank != me && !until.expired()) {
      const auto note = store.try_get(fmt::format("{}/note/{}", prefix, rank));
      if (!note) return;
      if (*note) break;
      backoff.pause();
    }
  }
}

tl::unexpected<Error> give_up(Store& store, const std::string& prefix, Rank me, Error error,
                              const std::vector<Rank>& present) {
  if (error.rank < 0) error.rank = me;
  post_note(store, prefix, me, error);
  const std::chrono::milliseconds patience(error.code == Code::timeout ? 500 : 2000);
  if (error.code != Code::store) linger(store, prefix, me, present, Deadline::in(patience));
  return fail(std::move(error));
}

/// Those who have posted their address: the others may never come.
std::vector<Rank> arrived(Store& store, const std::string& prefix, std::uint16_t world) {
  std::vector<Rank> out;
  for (Rank rank = 0; rank < world; ++rank) {
    const auto address = store.try_get(fmt::format("{}/address/{}", prefix, rank));
    if (!address) break;
    if (*address) out.push_back(rank);
  }
  return out;
}

std::vector<Rank> all_ranks(std::uint16_t world) {
  std::vector<Rank> out(world);
  for (Rank i = 0; i < world; ++i) out[i] = i;
  return out;
}

Result<std::vector<std::string>> collect_addresses(Store& store, const std::string& prefix,
                                                   std::uint16_t world, Deadline deadline) {
  constexpr std::size_t kAddressBytesMax = 256;
  std::vector<std::string> out(world);
  for (Rank rank = 0; rank < world; ++rank) {
    Backoff backoff;
    while (true) {
      SR_TRY(const auto bytes, store.try_get(fmt::format("{}/address/{}", prefix, rank)));
      if (bytes) {
        if (bytes->size() > kAddressBytesMax) {
          return fail(Code::malformed, "handshake.address",
                      fmt::format("rank {}'s address is too long", rank));
        }
        out[rank].assign(reinterpret_cast<const char*>(bytes->data()), bytes->size());
        break;
      }
      if (deadline.expired()) {
        return fail(Code::timeout, "handshake.address", fmt::format("rank {} posted no address", rank));
      }
      backoff.pause();
    }
  }
  return out;
}

}  // namespace

Result<Established> establish_world(const HandshakeConfig& config, const Identity& identity, Store& store,
                                    const std::string& prefix, const std::string& address,
                                    Deadline deadline) {
  SR_TRY(const std::int64_t arrivals, store.add(prefix + "/arrivals", 1));
  if (arrivals < 1)
    return fail(Code::store, "handshake.arrivals", "the store's arrival counter is not a count");
  Established out;
  out.prefix = fmt::format("{}/{}", prefix, (arrivals - 1) / config.world);
  SR_TRY(store.set(fmt::format("{}/address/{}", out.prefix, config.rank), as_bytes(address)));
  const auto failed = [&](Error error) {
    return give_up(store, out.prefix, config.rank, std::move(error),
                   arrived(store, out.prefix, config.world));
  };
  auto machine = Handshake::start(config, identity);
  if (!machine) return failed(std::move(machine).error());
  const auto ranks = all_ranks(config.world);
  if (auto done = pump(*machine, store, out.prefix, config.rank, ranks, config.world, deadline); !done) {
    return failed(std::move(done).error());
  }
  auto addresses = collect_addresses(store, out.prefix, config.world, deadline);
  if (!addresses) return failed(std::move(addresses).error());
  out.addresses = *std::move(addresses);
  out.keys = std::move(*machine).finish();
  return out;
}

Result<std::unique_ptr<GroupKeys>> establish_group(Result<SubgroupHandshake> machine, Rank me,
                                                   std::uint16_t world, const std::vector<Rank>& members,
                                                   Store& store, const std::string& prefix,
                                                   Deadline deadline) {
  if (!machine) return give_up(store, prefix, me, std::move(machine).error(), members);
  auto done = pump(*machine, store, prefix, me, members, world, deadline);
  if (!done) return give_up(store, prefix, me, std::move(done).error(), members);
  return std::move(*machine).finish();
}

void cleanup(Store& store, const std::string& prefix, Rank rank, std::uint16_t world) noexcept {
  for (const char* slot : {"address", "hello", "config", "evidence", "confirm"}) {
    (void)store.remove(fmt::format("{}/{}/{}", prefix, slot, rank));
  }
  for (Rank peer = 0; peer < world; ++peer) {
    if (peer == rank) continue;
    (void)store.remove(fmt::format("{}/m5/{}/{}", prefix, rank, peer));
    if (rank < peer) (void)store.remove(fmt::format("{}/kk1/{}/{}", prefix, rank, peer));
    if (rank > peer) (void)store.remove(fmt::format("{}/kk2/{}/{}", prefix, peer, rank));
  }
}

}  // namespace sealring
