#include "sealring/transport/tcp_control.h"

#include <poll.h>

namespace sealring {

TcpControl::TcpControl(Fd wake, const std::map<Rank, std::shared_ptr<TcpStream>>& streams)
    : wake_(std::move(wake)) {
  for (const auto& [rank, stream] : streams) peers_[rank].stream = stream;
}

std::vector<ControlEvent> TcpControl::wait(Deadline deadline) {
  std::vector<ControlEvent> events;
  std::vector<pollfd> polled;
  while (true) {
    polled.clear();
    {
      const std::lock_guard lock(mutex_);
      for (auto& [rank, peer] : peers_) {
        const short wanted = static_cast<short>(POLLIN | (peer.queued.empty() ? 0 : POLLOUT));
        polled.push_back({peer.ended ? -1 : peer.stream->fd().get(), wanted, 0});
      }
    }
    polled.push_back({wake_.get(), POLLIN, 0});
    if (woken_.exchange(false) || closed_.load()) return events;
    const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(deadline.left().count()));
    if (ready > 0) {
      if (polled.back().revents != 0) clear_event(wake_);
      const std::lock_guard lock(mutex_);
      std::size_t i = 0;
      for (auto& [rank, peer] : peers_) {
        const short got = polled[i++].revents;
        if ((got & POLLOUT) != 0) flush(peer);
        if ((got & ~POLLOUT) != 0) read(rank, peer, events);
      }
    }
    if (!events.empty() || deadline.expired()) return events;
  }
}

Result<void> TcpControl::send(Rank peer, ByteView bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(peer);
  if (found == peers_.end())
    return fail(Code::invalid_argument, "control.send", "no control stream to that rank");
  Peer& to = found->second;
  if (closed_.load() || to.stream->closed_here()) return fail(transport_aborted("control.send"));
  if (to.ended) return fail(peer_lost(peer, "control.send", "its control stream has ended"));
  if (to.queued.size() + bytes.size() > kQueuedBytesMax) {
    return fail(peer_lost(peer, "control.send", "it takes no control messages: 1 MiB is waiting for it"));
  }
  to.queued.insert(to.queued.end(), bytes.begin(), bytes.end());
  flush(to);
  // The thread in wait() must learn that it has something to write; woken_ stays false, so it goes on
  // waiting.
  if (!to.queued.empty()) raise_event(wake_);
  return {};
}

void TcpControl::wake() noexcept {
  woken_.store(true);
  raise_event(wake_);
}

void TcpControl::close() noexcept {
  closed_.store(true);
  for (auto& [rank, peer] : peers_) peer.stream->shut();
  raise_event(wake_);
}

/// Writes what the socket takes. A broken stream is reported by the next read, in order with its last bytes.
void TcpControl::flush(Peer& peer) {
  while (!peer.queued.empty()) {
    const PipeStep step = peer.stream->write_some(peer.queued);
    if (step.state == PipeStep::State::would_block) return;
    if (step.state != PipeStep::State::moved) return peer.queued.clear();
    peer.queued.erase(peer.queued.begin(), peer.queued.begin() + static_cast<std::ptrdiff_t>(step.bytes));
  }
}

void TcpControl::read(Rank rank, Peer& peer, std::vector<ControlEvent>& events) {
  ControlEvent event;
  event.peer = rank;
  std::array<std::byte, 16384> chunk;
  PipeStep step{PipeStep::State::moved, 0};
  while (event.bytes.size() < kQueuedBytesMax) {
    step = peer.stream->read_some(chunk);
    if (step.state != PipeStep::State::moved) break;
    event.bytes.insert(event.bytes.end(), chunk.begin(),
                       chunk.begin() + static_cast<std::ptrdiff_t>(step.bytes));
    if (step.bytes < chunk.size()) break;
  }
  event.closed = peer.ended =
      step.state == PipeStep::State::ended || step.state == PipeStep::State::closed_here;
  if (!event.bytes.empty() || event.closed) events.push_back(std::move(event));
}

}  // namespace sealring
