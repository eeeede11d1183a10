#include "sealring/transport/tcp_streams.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sealring {

PipeStep TcpStream::write_some(ByteView bytes) {
  const std::ptrdiff_t sent = send_some(fd_, bytes);
  if (sent > 0) return {PipeStep::State::moved, static_cast<std::size_t>(sent)};
  return {sent == 0 ? PipeStep::State::would_block : end_state(), 0};
}

PipeStep TcpStream::read_some(std::span<std::byte> buffer) {
  if (ahead_at_ < ahead_.size()) {
    const std::size_t count = std::min(buffer.size(), ahead_.size() - ahead_at_);
    std::memcpy(buffer.data(), ahead_.data() + ahead_at_, count);
    ahead_at_ += count;
    if (ahead_at_ == ahead_.size()) {
      ahead_ = {};
      ahead_at_ = 0;
    }
    return {PipeStep::State::moved, count};
  }
  const std::ptrdiff_t received = recv_some(fd_, buffer);
  if (received > 0) return {PipeStep::State::moved, static_cast<std::size_t>(received)};
  return {received == 0 ? PipeStep::State::would_block : end_state(), 0};
}

std::size_t TcpStream::read_ahead(std::size_t bytes, bool& ended) {
  ended = false;
  std::size_t there = ahead_.size() - ahead_at_;
  while (there < bytes) {
    const std::size_t old_bytes = ahead_.size();
    ahead_.resize(old_bytes + bytes - there);
    const std::ptrdiff_t received = recv_some(fd_, std::span(ahead_).subspan(old_bytes));
    ahead_.resize(old_bytes + static_cast<std::size_t>(std::max<std::ptrdiff_t>(received, 0)));
    ended = received < 0;
    if (received <= 0) break;
    there += static_cast<std::size_t>(received);
  }
  return there;
}

void TcpStream::shut() noexcept {
  // Only shut down: another thread may be inside a system call on the descriptor.
  if (!closed_.exchange(true)) ::shutdown(fd_.get(), SHUT_RDWR);
}

void TcpStreams::add_group(const GroupLinks& links, const Fd& filled_event) {
  const std::lock_guard lock(mutex_);
  SR_CHECK(!groups_.contains(links.group), "this group is open already");
  Group& group = groups_[links.group];
  group.me = links.me;
  group.filled_event = &filled_event;
  for (const PeerLink& link : links.peers) {
    group.keys[link.peer] = {link.mac_to_peer.clone(), link.mac_from_peer.clone()};
    for (const Kind kind : links.kinds) {
      const Lane lanes = kind == Kind::pair ? links.lanes : Lane{1};
      for (Lane lane = 0; lane < lanes; ++lane) group.slots[{link.peer, kind, lane}] = nullptr;
    }
  }
}

void TcpStreams::keys_done(const std::array<std::byte, 8>& group) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(group);
  if (found == groups_.end()) return;
  found->second.keys.clear();
  found->second.filled_event = nullptr;
}

TcpStreams::Offer TcpStreams::offer(Fd& fd, const ProofAnswer& answer, const ProofFields& fields,
                                    const ProofChallenge& challenge) {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(fields.group);
  if (found == groups_.end()) return Offer::unknown_group;
  Group& group = found->second;
  const auto keys = group.keys.find(fields.from);
  // The higher rank connects; so each slot has one side that may fill it from outside.
  if (keys == group.keys.end() || fields.to != group.me || fields.from < group.me) return Offer::refused;
  if (!check_answer(answer, challenge, keys->second.from_peer.view())) return Offer::refused;
  const auto slot = group.slots.find({fields.from, fields.kind, fields.lane});
  if (slot == group.slots.end() || slot->second) return Offer::refused;  // a filled slot is never replaced
  const Hash256 reply = make_reply(answer, challenge, keys->second.to_peer.view());
  // A fresh socket has room for 32 bytes; one that has not is no loss.
  if (send_some(fd, reply) != static_cast<std::ptrdiff_t>(reply.size())) return Offer::refused;
  slot->second = std::make_shared<TcpStream>(std::move(fd));
  if (group.filled_event != nullptr) raise_event(*group.filled_event);
  return Offer::filled;
}

void TcpStreams::fill(const StreamId& id, Fd fd) {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(id.group);
  if (found == groups_.end()) return;  // closed while it was opened
  const auto slot = found->second.slots.find({id.peer, id.kind, id.lane});
  SR_CHECK(slot != found->second.slots.end() && !slot->second, id.peer);
  slot->second = std::make_shared<TcpStream>(std::move(fd));
}

std::vector<Rank> TcpStreams::missing(const std::array<std::byte, 8>& group) const {
  const std::lock_guard lock(mutex_);
  std::vector<Rank> ranks;
  const auto found = groups_.find(group);
  if (found == groups_.end()) return ranks;
  for (const auto& [key, stream] : found->second.slots) {
    if (!stream && (ranks.empty() || ranks.back() != std::get<0>(key))) ranks.push_back(std::get<0>(key));
  }
  return ranks;
}

std::shared_ptr<TcpStream> TcpStreams::find(const StreamId& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(id.group);
  if (found == groups_.end()) return nullptr;
  const auto slot = found->second.slots.find({id.peer, id.kind, id.lane});
  return slot == found->second.slots.end() ? nullptr : slot->second;
}

std::map<Rank, std::shared_ptr<TcpStream>> TcpStreams::control_streams() const {
  const std::lock_guard lock(mutex_);
  std::map<Rank, std::shared_ptr<TcpStream>> streams;
  for (const auto& [id, group] : groups_) {
    for (const auto& [key, stream] : group.slots) {
      if (std::get<1>(key) == Kind::ctl && stream) streams[std::get<0>(key)] = stream;
    }
  }
  return streams;
}

void TcpStreams::close_group(const std::array<std::byte, 8>& group) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(group);
  if (found == groups_.end()) return;
  for (auto& [key, stream] : found->second.slots) {
    if (stream) stream->shut();
  }
  groups_.erase(found);
}

void TcpStreams::close_all() noexcept {
  const std::lock_guard lock(mutex_);
  for (auto& [id, group] : groups_) {
    for (auto& [key, stream] : group.slots) {
      if (stream) stream->shut();
    }
  }
  groups_.clear();
}

Result<void> TcpWaiter::wait(std::span<Interest> interests, Deadline deadline) {
  // Few streams take part in one exchange; the buffer is kept between the waits of a thread.
  thread_local std::vector<pollfd> polled;
  polled.clear();
  for (const Interest& interest : interests) {
    const short events =
        static_cast<short>((interest.want_read ? POLLIN : 0) | (interest.want_write ? POLLOUT : 0));
    // Unwanted streams are left out by fd -1: a hang-up on one would end every poll at once.
    const int fd = static_cast<TcpStream*>(interest.stream)->fd().get();
    polled.push_back({events == 0 ? -1 : fd, events, 0});
  }
  polled.push_back({abort_event_.get(), POLLIN, 0});
  const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(deadline.left().count()));
  if (ready < 0 && errno != EINTR) {
    return fail(socket_error(errno, Code::out_of_memory, "transport.exchange", "waiting for sockets"));
  }
  for (std::size_t i = 0; i < interests.size(); ++i) {
    const short got = ready > 0 ? polled[i].revents : short{0};
    const bool broken = (got & (POLLERR | POLLHUP | POLLNVAL)) != 0;
    interests[i].can_read = broken || (got & POLLIN) != 0;
    interests[i].can_write = broken || (got & POLLOUT) != 0;
  }
  return {};
}

}  // namespace sealring
