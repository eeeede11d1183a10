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

/// What the note of `rank` says, if one was posted: this rank's error.
Result<std::optional<Error>> read_note(Store& store, const std::string& prefix, Rank me, Rank rank,
                                       std::uint16_t world, const char* stage) {
  SR_TRY(const auto bytes, store.try_get(fmt::format("{}/note/{}", prefix, rank)));
  if (!bytes) return std::nullopt;
  const auto note = Note::decode(*bytes, world);
  if (!note || note->rank != rank) return std::nullopt;
  Error error;
  error.code = Code::aborted;
  error.rank = me;
  error.peer = rank;
  error.stage = stage;
  error.what = fmt::format("reported by rank {}, unauthenticated: SR-E{} {}{}", rank,
                           static_cast<unsigned>(note->code), code_info(note->code).name,
                           note->peer >= 0 ? fmt::format(" about rank {}", note->peer) : std::string());
  return error;
}

Result<void> look_for_notes(Store& store, const std::string& prefix, Rank me,
                            const std::vector<Rank>& members, std::uint16_t world) {
  for (const Rank rank : members) {
    if (rank == me) continue;
    SR_TRY(auto note, read_note(store, prefix, me, rank, world, "handshake"));
    if (note) return fail(*std::move(note));
  }
  return {};
}

/// Looks for notes again and again, at a few ranks each time: a large world must not drown its store. Whoever
/// finds a note posts its own, so all soon know.
class NoteWatch {
 public:
  NoteWatch(Store& store, const std::string& prefix, Rank me, const std::vector<Rank>& peers,
            std::uint16_t world)
      : store_(store), prefix_(prefix), me_(me), peers_(peers), world_(world) {}
  Result<void> look() {
    for (std::size_t i = 0; i < std::min(peers_.size(), kRanksEachTime); ++i) {
      const Rank rank = peers_[next_++ % peers_.size()];
      // A store that has ended is no error here: it may have lived in a rank that is through.
      auto note = read_note(store_, prefix_, me_, rank, world_, "connect");
      if (!note) return {};
      if (*note) return fail(**std::move(note));
    }
    return {};
  }

 private:
  static constexpr std::size_t kRanksEachTime = 16;
  Store& store_;
  const std::string& prefix_;
  const Rank me_;
  const std::vector<Rank>& peers_;
  const std::uint16_t world_;
  std::size_t next_ = 0;
};

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

/// How long a rank that gives up stays for the others: behind the deadline they are about to give up too.
std::chrono::milliseconds patience_after(const Error& error) {
  return std::chrono::milliseconds(error.code == Code::timeout ? 500 : 2000);
}

tl::unexpected<Error> give_up(Store& store, const std::string& prefix, Rank me, Error error,
                              const std::vector<Rank>& present, std::chrono::milliseconds patience) {
  if (error.rank < 0) error.rank = me;
  post_note(store, prefix, me, error);
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
  const auto of_this_rank = [&](Error error) {
    error.rank = config.rank;
    return fail(std::move(error));
  };
  auto arrivals = store.add(prefix + "/arrivals", 1);
  if (!arrivals) return of_this_rank(std::move(arrivals).error());
  if (*arrivals < 1) {
    Error error;
    error.code = Code::store;
    error.stage = "handshake.arrivals";
    error.what = "the store's arrival counter is not a count";
    return of_this_rank(std::move(error));
  }
  Established out;
  out.prefix = fmt::format("{}/{}", prefix, (*arrivals - 1) / config.world);
  const auto failed = [&](Error error) {
    const auto patience = patience_after(error);
    return give_up(store, out.prefix, config.rank, std::move(error), arrived(store, out.prefix, config.world),
                   patience);
  };
  auto posted = store.set(fmt::format("{}/address/{}", out.prefix, config.rank), as_bytes(address));
  if (!posted) return failed(std::move(posted).error());
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
  const auto failed = [&](Error error) {
    const auto patience = patience_after(error);
    return give_up(store, prefix, me, std::move(error), members, patience);
  };
  if (!machine) return failed(std::move(machine).error());
  auto done = pump(*machine, store, prefix, me, members, world, deadline);
  if (!done) return failed(std::move(done).error());
  return std::move(*machine).finish();
}

Result<void> connect_group(Transport& transport, GroupLinks links, Store& store, const std::string& prefix,
                           std::uint16_t world, Deadline deadline) {
  std::vector<Rank> peers;
  for (const PeerLink& link : links.peers) peers.push_back(link.peer);
  NoteWatch watch(store, prefix, links.me, peers, world);
  links.check = [&watch] { return watch.look(); };
  auto opened = transport.open_group(links, deadline);
  if (opened) return {};
  // Those who are connecting look ten times a second; those who are through post no note.
  constexpr std::chrono::milliseconds kPatience{500};
  return give_up(store, prefix, links.me, std::move(opened).error(), peers, kPatience);
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
