#include "sealring/transport/faulty_source.h"

#include <algorithm>

#include "sealring/transport/exchange_loop.h"
#include "sealring/transport/stream_closer.h"

namespace sealring {
namespace {

Bytes random_of(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace

Result<ByteView> FaultySource::next() {
  while (ready_.empty() && !ended_) SR_TRY(refill());
  if (ready_.empty()) return ByteView();
  current_ = std::move(ready_.front());
  ready_.pop_front();
  return ByteView(current_);
}

Result<void> FaultySource::prepare(std::size_t index) {
  while (pulled_ <= index && !ended_) SR_TRY(refill());
  return {};
}

const Fault* FaultySource::fault_at(std::size_t index) const {
  const auto found = std::find_if(faults_.begin(), faults_.end(), [&](const Fault& fault) {
    return fault.piece_index == index && fault.kind != FaultKind::truncate;
  });
  return found == faults_.end() ? nullptr : &*found;
}

/// An owned copy of the next honest piece: what is swapped or replayed outlives the sealer's buffer.
Result<Bytes> FaultySource::pull() {
  SR_TRY(const ByteView view, inner_.next());
  Bytes piece = to_bytes(view);
  if (!piece.empty()) exchange_.sent[stream_][{ordinal_, pulled_++}] = piece;
  return piece;
}

Result<void> FaultySource::refill() {
  if (exchange_.stalled.contains(stream_)) {
    ended_ = true;
    return {};
  }
  const bool truncated = std::any_of(faults_.begin(), faults_.end(),
                                     [](const Fault& fault) { return fault.kind == FaultKind::truncate; });
  if (truncated) return refill_truncated();
  const Fault* fault = fault_at(pulled_);
  SR_TRY(Bytes piece, pull());
  if (piece.empty()) {
    ended_ = true;
    return {};
  }
  if (fault != nullptr) return strike(*fault, std::move(piece));
  ready_.push_back(std::move(piece));
  return {};
}

/// Every piece waits for its successor; the one that has none is not sent.
Result<void> FaultySource::refill_truncated() {
  SR_TRY(Bytes piece, pull());
  if (piece.empty()) {
    ended_ = true;
    if (!held_.empty()) struck();
    return {};
  }
  if (!held_.empty()) ready_.push_back(std::move(held_));
  held_ = std::move(piece);
  return {};
}

Result<void> FaultySource::strike(const Fault& fault, Bytes piece) {
  switch (fault.kind) {
    case FaultKind::flip_bit:
    case FaultKind::flip_tag_bit:
      flip(fault, piece, fault.kind == FaultKind::flip_tag_bit);
      ready_.push_back(std::move(piece));
      return {};
    case FaultKind::drop:
      struck();
      return {};
    case FaultKind::duplicate:
      struck();
      ready_.push_back(piece);
      ready_.push_back(std::move(piece));
      return {};
    case FaultKind::reorder:
      return swap_with_next(std::move(piece));
    case FaultKind::replay_previous: {
      const auto stream = exchange_.previous->find(stream_);
      Bytes old = piece;  // nothing to replay: the piece goes as it is, and nothing was struck
      if (stream != exchange_.previous->end()) {
        const auto found = stream->second.find({ordinal_, pulled_ - 1});
        if (found != stream->second.end()) old = found->second;
      }
      replace(std::move(piece), std::move(old));
      return {};
    }
    case FaultKind::inject:
      struck();
      ready_.push_back(random_of(fault.seed, 1 + fault.seed % 64));
      ready_.push_back(std::move(piece));
      return {};
    case FaultKind::splice_stream: {
      SR_TRY(const bool swapped, swap_with_other_stream(fault, piece));
      if (!swapped) return swap_with_next(std::move(piece));
      struck();
      ready_.push_back(std::move(piece));
      return {};
    }
    case FaultKind::reflect: {
      Bytes back = reflection(fault, piece.size());
      replace(std::move(piece), std::move(back));
      return {};
    }
    case FaultKind::stall:
      struck();
      exchange_.stalled.insert(stream_);
      ended_ = true;
      return {};
    case FaultKind::close: {
      struck();
      ended_ = true;
      auto* closer = dynamic_cast<StreamCloser*>(exchange_.inner);
      if (closer != nullptr) closer->close_stream(stream_);
      if (closer == nullptr) exchange_.inner->close_group(stream_.group);
      return fail(peer_lost(stream_.peer, "transport.exchange", "the stream to it was closed"));
    }
    case FaultKind::truncate:
      break;  // refill_truncated
  }
  ready_.push_back(std::move(piece));
  return {};
}

void FaultySource::flip(const Fault& fault, Bytes& piece, bool in_tag) {
  const std::size_t tag_at = piece.size() > kTagBytes ? piece.size() - kTagBytes : 0;
  // An empty segment is a tag alone: then that is where the bit is.
  const std::size_t first = in_tag ? tag_at : 0;
  const std::size_t count = in_tag || tag_at == 0 ? piece.size() - first : tag_at;
  const std::uint64_t bit = fault.seed % (count * 8);
  piece[first + bit / 8] ^= std::byte{1} << (bit % 8);
  struck();
}

Result<void> FaultySource::swap_with_next(Bytes piece) {
  SR_TRY(Bytes following, pull());
  if (following.empty()) {  // nobody to swap with: held back for ever
    ended_ = true;
    struck();
    return {};
  }
  if (following != piece) struck();
  ready_.push_back(std::move(following));
  ready_.push_back(std::move(piece));
  return {};
}

/// Swaps with the piece at the same place (else the last before it) of a send on another stream. False when
/// there is none whose bytes differ: a multicast move has the same bytes on every stream.
Result<bool> FaultySource::swap_with_other_stream(const Fault& fault, Bytes& piece) {
  std::vector<FaultySource*> others;
  for (const auto& source : exchange_.sources) {
    if (source->stream_ != stream_ && !source->swapping_) others.push_back(source.get());
  }
  swapping_ = true;
  for (std::size_t i = 0; i < others.size(); ++i) {
    FaultySource& other = *others[(fault.seed + i) % others.size()];
    SR_TRY(other.prepare(fault.piece_index));
    if (other.ready_.empty() || other.ready_.back() == piece) continue;
    std::swap(other.ready_.back(), piece);
    swapping_ = false;
    return true;
  }
  swapping_ = false;
  return false;
}

void FaultySource::replace(Bytes piece, Bytes other) {
  if (other != piece) struck();
  ready_.push_back(std::move(other));
}

/// The newest buffer of this size that came from the peer on the same stream; else its last bytes; else
/// random ones.
Bytes FaultySource::reflection(const Fault& fault, std::size_t bytes) const {
  const auto found = exchange_.received->find(stream_);
  if (found == exchange_.received->end()) return random_of(fault.seed, bytes);
  for (auto buffer = found->second.rbegin(); buffer != found->second.rend(); ++buffer) {
    if (buffer->size() == bytes) return *buffer;
  }
  for (auto buffer = found->second.rbegin(); buffer != found->second.rend(); ++buffer) {
    if (buffer->size() > bytes)
      return Bytes(buffer->end() - static_cast<std::ptrdiff_t>(bytes), buffer->end());
  }
  return random_of(fault.seed, bytes);
}

}  // namespace sealring
