// FaultySource: one move's pieces on their way to the wire, harmed where told. Used by faulty.cc alone.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "sealring/transport/transport.h"

namespace sealring {

/// The place of a piece among those of one exchange on one stream: (the move on the stream, the piece in the
/// move).
using PiecePlace = std::pair<std::size_t, std::size_t>;
using PieceLog = std::map<PiecePlace, Bytes>;

class FaultySource;

/// What the sources of one exchange share. One thread.
struct FaultyExchange {
  std::vector<std::unique_ptr<FaultySource>> sources;      ///< one a send, in the exchange's order
  std::map<StreamId, PieceLog> sent;                       ///< this exchange's honest pieces
  const std::map<StreamId, PieceLog>* previous = nullptr;  ///< each stream's exchange before this one
  const std::map<StreamId, std::deque<Bytes>>* received = nullptr;  ///< filled sink buffers, newest last
  std::set<StreamId> stalled;
  Transport* inner = nullptr;
  std::atomic<std::uint32_t>* struck = nullptr;  ///< counted at once: a stalled exchange may never end
};

class FaultySource final : public WireSource {
 public:
  FaultySource(WireSource& inner, StreamId stream, std::size_t ordinal, std::vector<Fault> faults,
               FaultyExchange& exchange)
      : inner_(inner), stream_(stream), ordinal_(ordinal), faults_(std::move(faults)), exchange_(exchange) {}

  Result<ByteView> next() override;
  /// Takes and harms pieces ahead of the wire until piece `index` is ready: what two streams swap must not
  /// depend on which of them is faster.
  Result<void> prepare(std::size_t index);
  const StreamId& stream() const { return stream_; }

 private:
  Result<void> refill();
  Result<void> refill_truncated();
  Result<void> strike(const Fault& fault, Bytes piece);
  Result<Bytes> pull();  ///< empty: no more pieces
  const Fault* fault_at(std::size_t index) const;
  void flip(const Fault& fault, Bytes& piece, bool in_tag);
  Result<void> swap_with_next(Bytes piece);
  Result<bool> swap_with_other_stream(const Fault& fault, Bytes& piece);
  void replace(Bytes piece, Bytes other);
  Bytes reflection(const Fault& fault, std::size_t bytes) const;
  void struck() { exchange_.struck->fetch_add(1); }

  WireSource& inner_;
  const StreamId stream_;
  const std::size_t ordinal_;
  const std::vector<Fault> faults_;
  FaultyExchange& exchange_;
  std::deque<Bytes> ready_;
  Bytes held_;  ///< truncate: a piece whose successor is not known yet
  std::size_t pulled_ = 0;
  bool ended_ = false, swapping_ = false;
  Bytes current_;
};

}  // namespace sealring
