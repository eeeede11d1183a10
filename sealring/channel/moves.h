// The two ends of one move: SealSource cuts memory into sealed segments, OpenSink verifies and combines them.
//
// They live inside one Channel::exchange and are called by its thread; sealing and opening may run in the
// worker pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "sealring/base/verdict.h"
#include "sealring/channel/channel.h"
#include "sealring/device/bulk_cipher.h"
#include "sealring/transport/transport.h"

namespace sealring {

/// What sources and sinks share: owned by the channel.
struct MoveTools {
  BulkCipher& cipher;
  Verdict& verdict;
  ChannelCounters& counters;
  WorkerPool& workers;
  const ChannelConfig& config;
};

/// How many segments of an outgoing move have been read from user memory, for good.
class SegmentReader {
 public:
  virtual std::uint32_t segments_read() const = 0;

 protected:
  ~SegmentReader() = default;
};

/// The sends of a step in lockstep: what the receives wait for before they write.
class Lockstep {
 public:
  void add(const SegmentReader& reader) { readers_.push_back(&reader); }
  bool may_write(std::uint32_t segment) const {
    return std::all_of(readers_.begin(), readers_.end(),
                       [segment](const SegmentReader* reader) { return reader->segments_read() > segment; });
  }

 private:
  std::vector<const SegmentReader*> readers_;
};

/// One outgoing record: key, numbers, and what its first segment is.
struct SealedMove {
  const DeviceKey* key = nullptr;
  SealPermit permit;
  RecordContext context;  ///< of segment 0
  RecordLayout layout;
  const std::byte* data = nullptr;
  double scale = 1.0;
};

/// Seals segment after segment as the wire asks, up to workers()+1 ahead.
class SealSource final : public WireSource, public SegmentReader {
 public:
  SealSource(MoveTools tools, SealedMove move);
  ~SealSource() override;  ///< waits for its workers
  /// The source ends after this many segments of the move (rounds); raised between exchanges.
  void set_limit(std::uint32_t segments) { limit_ = segments; }
  Result<ByteView> next() override;
  std::uint32_t segments() const { return move_.layout.segments(); }
  std::uint32_t segments_read() const override { return handed_; }

 private:
  struct Slot {
    Bytes wire, scaled;
    std::uint32_t wire_bytes = 0;
    std::shared_ptr<WorkerPool::Task> task;
  };
  Result<void> start_next();
  Result<void> seal(Slot& slot, std::uint32_t segment, SealPermit permit);

  MoveTools tools_;
  SealedMove move_;
  std::vector<Slot> slots_;
  std::uint32_t started_ = 0, handed_ = 0, limit_ = 0;
};

/// One record sealed once and sent to several peers. Round by round: a round's ciphertext is kept until every
/// peer has taken it, and user memory is read once [protocol A.3, sender keys].
class MulticastRecord final : public SegmentReader {
 public:
  static constexpr std::uint64_t kRoundBytesMax = 8ull << 20;
  MulticastRecord(MoveTools tools, SealedMove move, std::uint32_t round_segments);
  /// Starts the next round; the segments of the last one are forgotten.
  void next_round();
  /// Segment `index` of the move, sealed on first demand; must lie in the current round.
  Result<ByteView> segment(std::uint32_t index);
  std::uint32_t round_end() const;
  std::uint32_t segments() const { return segments_; }
  std::uint32_t segments_read() const override { return source_.segments_read(); }

 private:
  SealSource source_;
  std::uint32_t segments_, round_segments_, round_first_ = 0;
  std::vector<Bytes> sealed_;
};

/// One peer's view of a MulticastRecord.
class MulticastSource final : public WireSource {
 public:
  explicit MulticastSource(MulticastRecord& record) : record_(record) {}
  Result<ByteView> next() override;

 private:
  MulticastRecord& record_;
  std::uint32_t handed_ = 0;
};

/// One incoming record.
struct OpenedMove {
  const DeviceKey* key = nullptr;
  std::uint64_t first_number = 0;
  RecordContext context;  ///< of segment 0
  RecordLayout layout;
  CombineSpec combine;  ///< of segment 0; redop none: replace
  double local_scale = 1.0;
  const Lockstep* lockstep = nullptr;  ///< null: writes as soon as it can
  Rank reporter = 0;                   ///< this rank, global, for messages

  bool may_write(std::uint32_t segment) const { return lockstep == nullptr || lockstep->may_write(segment); }
};

/// Opens each segment into private scratch and combines it there; nothing is released before its tag was
/// accepted. In lockstep one received segment may wait, sealed, for the sends.
class OpenSink final : public WireSink {
 public:
  OpenSink(MoveTools tools, OpenedMove move);
  ~OpenSink() override;  ///< waits for its workers
  void set_limit(std::uint32_t segments) { limit_ = segments; }
  Result<std::optional<std::span<std::byte>>> buffer() override;
  Result<void> filled() override;
  std::uint32_t segments() const { return move_.layout.segments(); }

 private:
  struct Slot {
    Bytes wire, scaled;
    std::shared_ptr<WorkerPool::Task> task;
  };
  Result<void> settle(Slot& slot);
  Result<void> start_open();
  Result<void> open(Slot& slot, std::uint32_t segment);

  MoveTools tools_;
  OpenedMove move_;
  std::vector<Slot> slots_;
  std::uint32_t filled_ = 0, started_ = 0, limit_ = 0;
};

/// Receives of one range from several peers, summed with the local contribution in group rank order.
class OrderedReduction {
 public:
  struct Source {
    Rank rank = 0;  ///< group rank of the contribution
    OpenedMove move;
  };
  /// `own_rank`'s contribution is combine.local of the moves (all alike, as are layout, dst and dtype).
  OrderedReduction(MoveTools tools, Rank own_rank, std::vector<Source> sources);
  ~OrderedReduction();
  WireSink& sink(std::size_t index);
  void set_limit(std::uint32_t segments);
  std::uint32_t segments() const;

 private:
  class Sink;
  Result<void> combine();
  MoveTools tools_;
  Rank own_rank_;
  std::vector<std::unique_ptr<Sink>> sinks_;  ///< by rising rank
  std::uint32_t segment_ = 0, waiting_ = 0;
  Bytes own_scaled_;
};

/// What DATA_TAG and its kin say about a segment: op, step, segment, origin.
std::string describe_segment(const RecordContext& context, std::uint32_t segment);

}  // namespace sealring
