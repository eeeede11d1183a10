// n ranks as threads of one process: a stream is two rings in memory, a rank has two signals to sleep on.
#include <algorithm>
#include <map>
#include <tuple>

#include "sealring/transport/byte_pipe.h"
#include "sealring/transport/exchange_loop.h"
#include "sealring/transport/stream_closer.h"

namespace sealring {
namespace {

constexpr std::size_t kPipeBytes = kWaitBytesMax;  // a segment that is waited for whole must fit
constexpr std::size_t kQueuedBytesMax = 1024 * 1024;

struct RankState {
  Signal data, control;  ///< raised when one of this rank's streams may go on
  std::atomic<bool> killed{false}, frozen{false};
  void raise() noexcept {
    data.raise();
    control.raise();
  }
};

/// Both directions of one stream; side 0 is the lower rank.
struct Link {
  BytePipe from[2] = {BytePipe(kPipeBytes), BytePipe(kPipeBytes)};  ///< by the side that writes
  std::atomic<bool> opened[2] = {false, false};
  std::atomic<bool> closed[2] = {false, false};
};

using LinkKey = std::tuple<std::array<std::byte, 8>, Rank, Rank, Kind, Lane>;

class LoopStream final : public DuplexStream {
 public:
  LoopStream(std::shared_ptr<Link> link, int side, RankState& me, RankState& peer, bool control)
      : link_(std::move(link)), side_(side), me_(me), peer_(peer), control_(control) {}
  ~LoopStream() override { close(); }

  PipeStep write_some(ByteView bytes) override {
    if (closed_here()) return {PipeStep::State::closed_here, 0};
    if (link_->closed[1 - side_].load()) return {PipeStep::State::ended, 0};
    if (me_.frozen.load()) return {};
    const std::size_t count = out().write(bytes);
    if (count > 0 && out().take_reader_waits()) wake_peer();
    if (count == 0) return {};
    return {PipeStep::State::moved, count};
  }

  PipeStep read_some(std::span<std::byte> buffer) override {
    if (closed_here()) return {PipeStep::State::closed_here, 0};
    if (me_.frozen.load()) return {};
    const bool peer_closed = link_->closed[1 - side_].load();  // before the read: its last bytes come first
    const std::size_t count = in().read(buffer);
    if (count > 0 && in().take_writer_waits()) wake_peer();
    if (count == 0) return {peer_closed ? PipeStep::State::ended : PipeStep::State::would_block, 0};
    return {PipeStep::State::moved, count};
  }

  std::size_t readable() { return me_.frozen.load() ? 0 : in().readable(); }
  /// Asks to be woken; true when there is no reason to sleep: enough to read or room to write already, or an
  /// end.
  bool arm_read(std::size_t bytes) {
    const std::size_t there = in().arm_reader();
    return closed_here() || (!me_.frozen.load() && (there >= bytes || peer_closed()));
  }
  bool arm_write() {
    const std::size_t room = out().arm_writer();
    return closed_here() || (!me_.frozen.load() && (room > 0 || peer_closed()));
  }
  bool peer_closed() const { return link_->closed[1 - side_].load(); }
  bool closed_here() const { return link_->closed[side_].load() || me_.killed.load(); }
  bool peer_opened() const { return link_->opened[1 - side_].load(); }
  void close() noexcept {
    if (link_->closed[side_].exchange(true)) return;
    wake_peer();
    (control_ ? me_.control : me_.data).raise();
  }

 private:
  BytePipe& out() { return link_->from[side_]; }
  BytePipe& in() { return link_->from[1 - side_]; }
  void wake_peer() noexcept { (control_ ? peer_.control : peer_.data).raise(); }

  std::shared_ptr<Link> link_;
  const int side_;
  RankState& me_;
  RankState& peer_;
  const bool control_;
};

class Hub final : public LoopbackHub, public std::enable_shared_from_this<Hub> {
 public:
  explicit Hub(std::uint16_t world) : ranks_(world) {}
  std::unique_ptr<Transport> transport(Rank rank) override;
  void kill(Rank rank) override;
  void freeze(Rank rank, bool frozen) override {
    SR_CHECK(rank < ranks_.size(), rank);
    ranks_[rank].frozen.store(frozen);
    ranks_[rank].raise();
  }

  RankState& state(Rank rank) { return ranks_[rank]; }
  std::size_t world() const { return ranks_.size(); }

  /// My end of a stream. A key whose link this side has already used gets a new link: the old one lives on at
  /// the other end until that is closed too.
  std::shared_ptr<LoopStream> open(Rank me, const StreamId& id) {
    const std::lock_guard lock(mutex_);
    const int side = me < id.peer ? 0 : 1;
    auto& link = links_[LinkKey{id.group, std::min(me, id.peer), std::max(me, id.peer), id.kind, id.lane}];
    if (!link || link->opened[side].load() || link->closed[1 - side].load()) link = std::make_shared<Link>();
    link->opened[side].store(true);
    ranks_[id.peer].data.raise();
    return std::make_shared<LoopStream>(link, side, ranks_[me], ranks_[id.peer], id.kind == Kind::ctl);
  }
  void forget(Rank me, const StreamId& id) {
    const std::lock_guard lock(mutex_);
    const auto found =
        links_.find(LinkKey{id.group, std::min(me, id.peer), std::max(me, id.peer), id.kind, id.lane});
    if (found == links_.end()) return;
    const bool lower_done = !found->second->opened[0] || found->second->closed[0];
    const bool upper_done = !found->second->opened[1] || found->second->closed[1];
    if (lower_done && upper_done) links_.erase(found);
  }

 private:
  std::vector<RankState> ranks_;
  std::mutex mutex_;
  std::map<LinkKey, std::shared_ptr<Link>> links_;
};

class LoopWaiter final : public StreamWaiter {
 public:
  explicit LoopWaiter(Signal& signal) : signal_(signal) { begin_pass(); }
  void begin_pass() override { seen_ = signal_.events(); }
  Result<void> wait(std::span<Interest> interests, Deadline deadline) override {
    bool ready = false;
    for (Interest& interest : interests) {
      auto* stream = static_cast<LoopStream*>(interest.stream);
      ready = (interest.want_read && stream->arm_read(1)) || ready;
      ready = (interest.want_write && stream->arm_write()) || ready;
    }
    if (!ready) signal_.wait_past(seen_, deadline);
    // A pipe's state costs one load to look at, so every direction is simply tried again.
    for (Interest& interest : interests) interest.can_read = interest.can_write = true;
    return {};
  }

 private:
  Signal& signal_;
  std::uint64_t seen_ = 0;
};

class LoopControl final : public ControlStreams {
 public:
  LoopControl(std::shared_ptr<Hub> hub, Rank me, std::map<Rank, std::shared_ptr<LoopStream>> streams)
      : hub_(std::move(hub)), me_(me) {
    for (auto& [peer, stream] : streams) peers_[peer].stream = std::move(stream);
  }
  ~LoopControl() override { close(); }

  std::vector<ControlEvent> wait(Deadline deadline) override {
    Signal& signal = hub_->state(me_).control;
    std::vector<ControlEvent> events;
    while (true) {
      const std::uint64_t seen = signal.events();
      if (collect(events)) continue;
      if (!events.empty() || woken_.exchange(false) || closed_.load() || deadline.expired()) return events;
      signal.wait_past(seen, deadline);
    }
  }

  Result<void> send(Rank peer, ByteView bytes) override {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(peer);
    if (found == peers_.end())
      return fail(Code::invalid_argument, "control.send", "no control stream to that rank");
    Peer& to = found->second;
    if (to.stream->closed_here()) return fail(transport_aborted("control.send"));
    if (to.stream->peer_closed())
      return fail(peer_lost(peer, "control.send", "its control stream has ended"));
    if (to.queued.size() + bytes.size() > kQueuedBytesMax) {
      return fail(peer_lost(peer, "control.send", "it takes no control messages: 1 MiB is waiting for it"));
    }
    to.queued.insert(to.queued.end(), bytes.begin(), bytes.end());
    flush(to);
    return {};
  }
  void wake() noexcept override {
    woken_.store(true);
    hub_->state(me_).control.raise();
  }
  void close() noexcept override {
    closed_.store(true);
    for (auto& [peer, end] : peers_) end.stream->close();
    hub_->state(me_).control.raise();
  }

 private:
  struct Peer {
    std::shared_ptr<LoopStream> stream;
    Bytes queued;
    bool told_closed = false;
  };

  void flush(Peer& to) {
    while (!to.queued.empty()) {
      const PipeStep step = to.stream->write_some(to.queued);
      if (step.state != PipeStep::State::moved) return;
      to.queued.erase(to.queued.begin(), to.queued.begin() + static_cast<std::ptrdiff_t>(step.bytes));
    }
  }
  /// Takes what there is and asks to be woken for more; true when there is more already.
  bool collect(std::vector<ControlEvent>& events) {
    const std::lock_guard lock(mutex_);
    bool more = false;
    for (auto& [rank, peer] : peers_) {
      if (peer.told_closed) continue;
      flush(peer);
      ControlEvent event;
      event.peer = rank;
      std::array<std::byte, 4096> chunk;
      PipeStep step{PipeStep::State::moved, 0};
      while (event.bytes.size() < kQueuedBytesMax) {
        step = peer.stream->read_some(chunk);
        if (step.state != PipeStep::State::moved) break;
        event.bytes.insert(event.bytes.end(), chunk.begin(),
                           chunk.begin() + static_cast<std::ptrdiff_t>(step.bytes));
      }
      event.closed = peer.told_closed =
          step.state == PipeStep::State::ended || step.state == PipeStep::State::closed_here;
      more = (!event.closed && peer.stream->arm_read(1)) || more;
      more = (!event.closed && !peer.queued.empty() && peer.stream->arm_write()) || more;
      if (!event.bytes.empty() || event.closed) events.push_back(std::move(event));
    }
    return more && events.empty();
  }

  std::shared_ptr<Hub> hub_;
  const Rank me_;
  std::mutex mutex_;  ///< the peers' queues
  std::map<Rank, Peer> peers_;
  std::atomic<bool> woken_{false}, closed_{false};
};

class LoopbackTransport final : public Transport, public StreamCloser {
 public:
  LoopbackTransport(std::shared_ptr<Hub> hub, Rank me) : hub_(std::move(hub)), me_(me) {}
  ~LoopbackTransport() override {
    abort();
    close_where([](const StreamId&) { return true; });
  }

  std::string address() const override { return ""; }
  std::string describe() const override { return "loopback"; }
  Result<void> open_group(const GroupLinks& links, Deadline deadline) override;
  void close_group(const std::array<std::byte, 8>& group) noexcept override {
    close_where([&](const StreamId& id) { return id.group == group; });
  }

  Result<void> exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream&,
                        Deadline deadline) override {
    LoopWaiter waiter(hub_->state(me_).data);
    return run_exchange(sends, recvs, {[this](const StreamId& id) { return find(id); }, &waiter, &aborted_},
                        deadline);
  }

  Result<std::size_t> wait_readable(std::span<const StreamId> streams, std::size_t bytes,
                                    Deadline deadline) override;
  Result<std::unique_ptr<ControlStreams>> control_streams() override;

  void abort() noexcept override {
    aborted_.store(true, std::memory_order_release);
    hub_->state(me_).data.raise();
  }
  void close_stream(const StreamId& id) noexcept override {
    if (const auto stream = find(id)) stream->close();
  }

 private:
  std::shared_ptr<LoopStream> find(const StreamId& id) {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(id);
    return found == streams_.end() ? nullptr : found->second;
  }
  template <class Predicate>
  void close_where(Predicate predicate) noexcept {
    std::vector<StreamId> gone;
    {
      const std::lock_guard lock(mutex_);
      for (auto at = streams_.begin(); at != streams_.end();) {
        if (!predicate(at->first)) {
          ++at;
          continue;
        }
        at->second->close();
        gone.push_back(at->first);
        at = streams_.erase(at);
      }
    }
    for (const StreamId& id : gone) hub_->forget(me_, id);
  }

  std::shared_ptr<Hub> hub_;
  const Rank me_;
  std::mutex mutex_;
  std::map<StreamId, std::shared_ptr<LoopStream>> streams_;
  bool control_taken_ = false;
  std::atomic<bool> aborted_{false};
};

Result<void> LoopbackTransport::open_group(const GroupLinks& links, Deadline deadline) {
  SR_CHECK(links.me == me_, links.me, me_);
  std::vector<std::shared_ptr<LoopStream>> opened;
  std::vector<Rank> peers;
  for (const PeerLink& link : links.peers) {
    SR_CHECK(link.peer < hub_->world() && link.peer != me_, link.peer);
    for (const Kind kind : links.kinds) {
      for (Lane lane = 0; lane < (kind == Kind::pair ? links.lanes : Lane{1}); ++lane) {
        const StreamId id{links.group, link.peer, kind, lane};
        const std::lock_guard lock(mutex_);
        SR_CHECK(!streams_.contains(id), "this group is open already, peer", link.peer);
        opened.push_back(streams_[id] = hub_->open(me_, id));
        peers.push_back(link.peer);
      }
    }
  }
  while (true) {
    const auto turn = Deadline::in(GroupLinks::kCheckPeriod);
    const std::uint64_t seen = hub_->state(me_).data.events();
    std::vector<Rank> missing;
    for (std::size_t i = 0; i < opened.size(); ++i) {
      if (!opened[i]->peer_opened()) missing.push_back(peers[i]);
    }
    if (missing.empty()) return {};
    const bool dead = aborted_.load() || hub_->state(me_).killed.load();
    if (dead || deadline.expired()) {
      close_group(links.group);
      if (dead) return fail(transport_aborted("transport.open"));
      return fail(timed_out("transport.open", name_ranks(missing) + " did not connect", missing));
    }
    if (auto checked = links.check ? links.check() : Result<void>(); !checked) {
      close_group(links.group);
      return checked;
    }
    hub_->state(me_).data.wait_past(seen, links.check ? deadline.earlier(turn) : deadline);
  }
}

Result<std::size_t> LoopbackTransport::wait_readable(std::span<const StreamId> streams, std::size_t bytes,
                                                     Deadline deadline) {
  const char* stage = "transport.wait";
  SR_CHECK(bytes <= kWaitBytesMax, bytes);
  std::vector<std::shared_ptr<LoopStream>> ends;
  for (const StreamId& id : streams) {
    ends.push_back(find(id));
    if (!ends.back())
      return fail(Code::invalid_argument, stage, "a stream is not open", "open the group first");
  }
  while (true) {
    const std::uint64_t seen = hub_->state(me_).data.events();
    if (aborted_.load()) return fail(transport_aborted(stage));
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const bool over = ends[i]->peer_closed();
      if (ends[i]->arm_read(bytes) && ends[i]->readable() >= bytes) return i;
      if (ends[i]->closed_here()) return fail(transport_aborted(stage));
      if (over) return fail(peer_lost(streams[i].peer, stage, "its stream has ended"));
    }
    if (deadline.expired()) {
      std::vector<Rank> peers;
      for (const StreamId& id : streams) peers.push_back(id.peer);
      return fail(timed_out(stage, "nothing came from " + name_ranks(peers), peers));
    }
    hub_->state(me_).data.wait_past(seen, deadline);
  }
}

Result<std::unique_ptr<ControlStreams>> LoopbackTransport::control_streams() {
  const std::lock_guard lock(mutex_);
  SR_CHECK(!control_taken_);
  control_taken_ = true;
  std::map<Rank, std::shared_ptr<LoopStream>> streams;
  for (const auto& [id, stream] : streams_) {
    if (id.kind == Kind::ctl) streams[id.peer] = stream;
  }
  return std::make_unique<LoopControl>(hub_, me_, std::move(streams));
}

std::unique_ptr<Transport> Hub::transport(Rank rank) {
  SR_CHECK(rank < ranks_.size(), rank);
  return std::make_unique<LoopbackTransport>(shared_from_this(), rank);
}

void Hub::kill(Rank rank) {
  SR_CHECK(rank < ranks_.size(), rank);
  ranks_[rank].killed.store(true);
  {
    const std::lock_guard lock(mutex_);
    for (auto& [key, link] : links_) {
      if (std::get<1>(key) == rank) link->closed[0].store(true);
      if (std::get<2>(key) == rank) link->closed[1].store(true);
    }
  }
  for (RankState& state : ranks_) state.raise();
}

}  // namespace

std::shared_ptr<LoopbackHub> LoopbackHub::make(std::uint16_t world) { return std::make_shared<Hub>(world); }

}  // namespace sealring
