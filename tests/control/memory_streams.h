// In-memory control streams for ranks as threads of one test, with an adversary on every link.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "sealring/transport/transport.h"

namespace sealring::testing {

/// All links of a small world. Thread-safe. Must outlive its streams.
class MemoryHub {
 public:
  /// Decides what arrives instead of `bytes`: any number of pieces, in order. Runs under the hub's lock.
  using Tamper = std::function<std::vector<Bytes>(Rank from, Rank to, ByteView bytes)>;

  explicit MemoryHub(std::uint16_t world) : inboxes_(world) {}

  std::unique_ptr<ControlStreams> streams(Rank rank);
  void tamper(Tamper tamper) {
    const std::lock_guard lock(mutex_);
    tamper_ = std::move(tamper);
  }
  /// Puts bytes on a link as if `from` had sent them.
  void inject(Rank from, Rank to, ByteView bytes) {
    const std::lock_guard lock(mutex_);
    push(from, to, bytes);
  }
  /// The same from inside a Tamper, which runs under the lock.
  void inject_locked(Rank from, Rank to, ByteView bytes) { push(from, to, bytes); }
  /// As if the process had been killed: its links end, and it hears and says nothing more.
  void kill(Rank rank) {
    const std::lock_guard lock(mutex_);
    dead_.insert(rank);
    for (Rank other = 0; other < inboxes_.size(); ++other) {
      if (other != rank) end(rank, other);
    }
  }
  /// As if it had been stopped: its links stay open; what is sent to it waits.
  void freeze(Rank rank, bool frozen) {
    const std::lock_guard lock(mutex_);
    if (frozen) {
      frozen_.insert(rank);
    } else {
      frozen_.erase(rank);
    }
    changed_.notify_all();
  }
  /// Bytes that `from` has sent so far, over all links.
  std::uint64_t sent_bytes(Rank from) {
    const std::lock_guard lock(mutex_);
    return sent_bytes_[from];
  }

 private:
  friend class MemoryStreams;
  struct Inbox {
    std::deque<ControlEvent> events;
    bool woken = false;
    bool closed = false;
  };
  void push(Rank from, Rank to, ByteView bytes) {
    if (dead_.contains(from) || inboxes_[to].closed) return;
    ControlEvent event;
    event.peer = from;
    event.bytes = to_bytes(bytes);
    inboxes_[to].events.push_back(std::move(event));
    changed_.notify_all();
  }
  void end(Rank from, Rank to) {
    if (!ended_.emplace(from, to).second) return;
    ControlEvent event;
    event.peer = from;
    event.closed = true;
    inboxes_[to].events.push_back(std::move(event));
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Inbox> inboxes_;
  std::set<Rank> dead_, frozen_;
  std::set<std::pair<Rank, Rank>> ended_;
  std::map<Rank, std::uint64_t> sent_bytes_;
  Tamper tamper_;
};

class MemoryStreams final : public ControlStreams {
 public:
  MemoryStreams(MemoryHub& hub, Rank rank) : hub_(hub), rank_(rank) {}
  ~MemoryStreams() override { close(); }

  std::vector<ControlEvent> wait(Deadline deadline) override {
    std::unique_lock lock(hub_.mutex_);
    auto& inbox = hub_.inboxes_[rank_];
    const auto frozen = [&] { return hub_.frozen_.contains(rank_) || hub_.dead_.contains(rank_); };
    // A frozen process does not even see its deadline pass; closing from outside still ends it.
    hub_.changed_.wait_until(lock, deadline.when(), [&] {
      return inbox.closed || (!frozen() && (!inbox.events.empty() || inbox.woken));
    });
    hub_.changed_.wait(lock, [&] { return inbox.closed || !hub_.frozen_.contains(rank_); });
    std::vector<ControlEvent> out;
    inbox.woken = false;
    if (hub_.dead_.contains(rank_)) return out;
    out.assign(std::make_move_iterator(inbox.events.begin()), std::make_move_iterator(inbox.events.end()));
    inbox.events.clear();
    return out;
  }

  Result<void> send(Rank peer, ByteView bytes) override {
    const std::lock_guard lock(hub_.mutex_);
    hub_.sent_bytes_[rank_] += bytes.size();
    if (hub_.inboxes_[rank_].closed) return fail(Code::peer_lost, "memory.send", "closed");
    if (!hub_.tamper_) {
      hub_.push(rank_, peer, bytes);
    } else {
      for (const Bytes& piece : hub_.tamper_(rank_, peer, bytes)) hub_.push(rank_, peer, piece);
    }
    return {};
  }

  void wake() noexcept override {
    const std::lock_guard lock(hub_.mutex_);
    hub_.inboxes_[rank_].woken = true;
    hub_.changed_.notify_all();
  }

  void close() noexcept override {
    const std::lock_guard lock(hub_.mutex_);
    if (hub_.inboxes_[rank_].closed) return;
    hub_.inboxes_[rank_].closed = true;
    for (Rank other = 0; other < hub_.inboxes_.size(); ++other) {
      if (other != rank_) hub_.end(rank_, other);
    }
  }

 private:
  MemoryHub& hub_;
  Rank rank_;
};

inline std::unique_ptr<ControlStreams> MemoryHub::streams(Rank rank) {
  return std::make_unique<MemoryStreams>(*this, rank);
}

}  // namespace sealring::testing
