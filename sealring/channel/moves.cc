#include "sealring/channel/moves.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace sealring {
namespace {

/// Adds the time of a scope to a counter.
class ScopeTimer {
 public:
  explicit ScopeTimer(std::atomic<std::uint64_t>& total) : total_(total), start_ns_(now_ns()) {}
  ~ScopeTimer() { total_.fetch_add(now_ns() - start_ns_, std::memory_order_relaxed); }
  ScopeTimer(const ScopeTimer&) = delete;
  ScopeTimer& operator=(const ScopeTimer&) = delete;

 private:
  std::atomic<std::uint64_t>& total_;
  std::uint64_t start_ns_;
};

/// The emulated cost of one segment's share of a crypto operation: `a` once a record, `b` for each byte.
void emulate(const std::optional<ChannelEmulation>& emulation, std::uint32_t segment,
             std::uint32_t payload_bytes) {
  if (!emulation) return;
  const double cost_ns = (segment == 0 ? emulation->a_ns : 0.0) + emulation->b_ns_per_byte * payload_bytes;
  if (emulation->offload) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<std::int64_t>(cost_ns)));
    return;
  }
  const std::uint64_t end_ns = now_ns() + static_cast<std::uint64_t>(cost_ns);
  while (now_ns() < end_ns) {
  }
}

Result<void> scale_elements(DType dtype, const std::byte* from, Bytes& to, std::uint32_t bytes,
                            double factor) {
  to.resize(bytes);
  ReduceJob job;
  job.dtype = dtype;
  job.redop = RedOp::premul_sum;
  job.sources = std::span<const std::byte* const>(&from, 1);
  job.dst = to.data();
  job.elements = bytes / dtype_bytes(dtype);
  job.scale = factor;
  return reduce_cpu(job);
}

/// The context of segment `index`, given that of segment 0.
RecordContext at_segment(RecordContext context, const RecordLayout& layout, std::uint32_t index) {
  context.segment = index;
  context.segments = layout.segments();
  context.payload_bytes = layout.payload_of(index);
  context.element_offset += layout.payload_offset(index) / dtype_bytes(context.dtype);
  return context;
}

tl::unexpected<Error> at_place(Error error, const RecordContext& context, std::uint32_t segment,
                               Rank reporter) {
  if (error.code == Code::data_tag) {
    error.rank = reporter;
    error.peer = context.sender;
    error.stage = "data.open";
    error.what =
        fmt::format("the authentication tag of {} was not accepted", describe_segment(context, segment));
    if (context.op == Op::send) {
      error.next =
          "it was changed, replayed or lost on its way, or the two ranks named different sizes, types or "
          "p2p tags: messages between two ranks are received in the order in which they were sent";
    }
  }
  return fail(std::move(error));
}

Result<void> refuse_if_dead(const Verdict& verdict) {
  if (!verdict.dead()) return {};
  return fail(*verdict.error());
}

}  // namespace

std::string describe_segment(const RecordContext& context, std::uint32_t segment) {
  const std::string op = context.op == Op::send ? fmt::format("send (p2p tag {})", context.tag)
                                                : std::string(to_string(context.op));
  return fmt::format("{} seq={} step={} segment={}/{} {} x {} from rank {} to {}", op, context.seq,
                     context.step, segment, context.segments, to_string(context.dtype), context.elements,
                     context.sender,
                     context.receiver == kMulticast ? std::string("all") : std::to_string(context.receiver));
}

// ---- SealSource

SealSource::SealSource(MoveTools tools, SealedMove move)
    : tools_(tools),
      move_(std::move(move)),
      slots_(tools.workers.workers() + 2),
      limit_(move_.layout.segments()) {
  tools_.counters.seals.fetch_add(1, std::memory_order_relaxed);
}

SealSource::~SealSource() {
  for (Slot& slot : slots_) {
    if (slot.task) (void)tools_.workers.wait(slot.task);
  }
}

Result<void> SealSource::seal(Slot& slot, std::uint32_t segment, SealPermit permit) {
  const ScopeTimer timer(tools_.counters.seal_ns);
  const std::uint32_t payload_bytes = move_.layout.payload_of(segment);
  const std::byte* data = move_.data == nullptr ? nullptr : move_.data + move_.layout.payload_offset(segment);
  if (move_.scale != 1.0 && payload_bytes > 0) {
    SR_TRY(scale_elements(move_.context.dtype, data, slot.scaled, payload_bytes, move_.scale));
    data = slot.scaled.data();
  }
  emulate(tools_.config.emulation, segment, payload_bytes);
  SealJob job{move_.key, std::move(permit), at_segment(move_.context, move_.layout, segment), move_.layout, 1,
              data,      slot.wire.data()};
  Stream cpu;
  SR_TRY(tools_.cipher.seal(std::move(job), cpu));
  tools_.counters.sealed_segments.fetch_add(1, std::memory_order_relaxed);
  tools_.counters.sealed_bytes.fetch_add(payload_bytes, std::memory_order_relaxed);
  return {};
}

Result<void> SealSource::start_next() {
  SR_TRY(refuse_if_dead(tools_.verdict));  // a failed rank seals nothing more
  Slot& slot = slots_[started_ % slots_.size()];
  slot.wire_bytes = move_.layout.payload_of(started_) + static_cast<std::uint32_t>(kTagBytes);
  if (slot.wire.size() < slot.wire_bytes) slot.wire.resize(slot.wire_bytes);
  // The numbers are split off here, in segment order, whichever worker then spends them. [protocol A.3]
  auto permit = std::make_shared<SealPermit>(move_.permit.split(1));
  slot.task = tools_.workers.run(
      [this, &slot, segment = started_, permit] { return seal(slot, segment, std::move(*permit)); });
  ++started_;
  return {};
}

Result<ByteView> SealSource::next() {
  if (handed_ >= limit_) return ByteView{};
  // One slot stays with the transport until the following call, the others may be sealing.
  const std::uint32_t ahead = std::min<std::uint32_t>(limit_, handed_ + tools_.workers.workers() + 1);
  while (started_ < ahead) SR_TRY(start_next());
  Slot& slot = slots_[handed_ % slots_.size()];
  SR_TRY(tools_.workers.wait(std::exchange(slot.task, nullptr)));
  ++handed_;
  return ByteView(slot.wire.data(), slot.wire_bytes);
}

// ---- Multicast

MulticastRecord::MulticastRecord(MoveTools tools, SealedMove move, std::uint32_t round_segments)
    : source_(tools, std::move(move)), segments_(source_.segments()), round_segments_(round_segments) {
  sealed_.reserve(round_segments_);
}

void MulticastRecord::next_round() {
  round_first_ += static_cast<std::uint32_t>(sealed_.size());
  sealed_.clear();
}

std::uint32_t MulticastRecord::round_end() const {
  return std::min(segments_, round_first_ + round_segments_);
}

Result<ByteView> MulticastRecord::segment(std::uint32_t index) {
  SR_CHECK(index >= round_first_ && index < round_end());
  while (round_first_ + sealed_.size() <= index) {
    SR_TRY(const ByteView wire, source_.next());
    sealed_.push_back(to_bytes(wire));
  }
  return ByteView(sealed_[index - round_first_]);
}

Result<ByteView> MulticastSource::next() {
  if (handed_ >= record_.round_end()) return ByteView{};
  return record_.segment(handed_++);
}

// ---- OpenSink

OpenSink::OpenSink(MoveTools tools, OpenedMove move)
    : tools_(tools),
      move_(std::move(move)),
      slots_(tools.workers.workers() + 1),
      limit_(move_.layout.segments()) {
  tools_.counters.opens.fetch_add(1, std::memory_order_relaxed);
}

OpenSink::~OpenSink() {
  for (Slot& slot : slots_) (void)settle(slot);
}

Result<void> OpenSink::settle(Slot& slot) {
  if (!slot.task) return {};
  return tools_.workers.wait(std::exchange(slot.task, nullptr));
}

Result<std::optional<std::span<std::byte>>> OpenSink::buffer() {
  SR_TRY(start_open());
  if (started_ < filled_) return std::optional<std::span<std::byte>>{};  // hold
  if (filled_ >= limit_) {
    for (Slot& slot : slots_) SR_TRY(settle(slot));
    return std::optional(std::span<std::byte>{});
  }
  Slot& slot = slots_[filled_ % slots_.size()];
  SR_TRY(settle(slot));
  const std::size_t wire_bytes = move_.layout.payload_of(filled_) + kTagBytes;
  if (slot.wire.size() < wire_bytes) slot.wire.resize(wire_bytes);
  return std::optional(std::span<std::byte>(slot.wire.data(), wire_bytes));
}

Result<void> OpenSink::open(Slot& slot, std::uint32_t segment) {
  const ScopeTimer timer(tools_.counters.open_ns);
  const std::uint64_t offset = move_.layout.payload_offset(segment);
  const std::uint32_t payload_bytes = move_.layout.payload_of(segment);
  OpenJob job{move_.key,
              move_.first_number + segment,
              at_segment(move_.context, move_.layout, segment),
              move_.layout,
              1,
              slot.wire.data(),
              move_.combine};
  if (job.combine.dst != nullptr) job.combine.dst += offset;
  if (job.combine.local != nullptr) {
    job.combine.local += offset;
    if (move_.local_scale != 1.0 && payload_bytes > 0) {
      SR_TRY(scale_elements(move_.context.dtype, job.combine.local, slot.scaled, payload_bytes,
                            move_.local_scale));
      job.combine.local = slot.scaled.data();
    }
  }
  emulate(tools_.config.emulation, segment, payload_bytes);
  Stream cpu;
  if (auto opened = tools_.cipher.open(job, cpu); !opened) {
    return at_place(std::move(opened).error(), job.context, segment, move_.reporter);
  }
  tools_.counters.opened_segments.fetch_add(1, std::memory_order_relaxed);
  tools_.counters.opened_bytes.fetch_add(payload_bytes, std::memory_order_relaxed);
  return {};
}

Result<void> OpenSink::filled() {
  ++filled_;
  return start_open();
}

Result<void> OpenSink::start_open() {
  if (started_ == filled_ || !move_.may_write(started_)) return {};
  Slot& slot = slots_[started_ % slots_.size()];
  slot.task = tools_.workers.run([this, &slot, segment = started_] { return open(slot, segment); });
  ++started_;
  if (tools_.workers.workers() == 0) return settle(slot);  // an error ends the exchange at once
  return {};
}

// ---- OrderedReduction

/// One contribution: opens its segment into private plaintext, then holds until the others have theirs.
class OrderedReduction::Sink final : public WireSink {
 public:
  Sink(OrderedReduction& owner, Source source)
      : owner_(owner), source_(std::move(source)), limit_(source_.move.layout.segments()) {
    owner_.tools_.counters.opens.fetch_add(1, std::memory_order_relaxed);
  }
  Result<std::optional<std::span<std::byte>>> buffer() override {
    SR_TRY(owner_.combine());
    if (filled_ >= limit_ && filled_ == owner_.segment_) return std::optional(std::span<std::byte>{});
    if (filled_ > owner_.segment_) return std::optional<std::span<std::byte>>{};  // hold
    const std::size_t wire_bytes = source_.move.layout.payload_of(filled_) + kTagBytes;
    if (wire_.size() < wire_bytes) wire_.resize(wire_bytes);
    return std::optional(std::span<std::byte>(wire_.data(), wire_bytes));
  }
  Result<void> filled() override {
    task_ = owner_.tools_.workers.run([this, segment = filled_] { return open(segment); });
    if (owner_.tools_.workers.workers() == 0) SR_TRY(settle());
    ++filled_;
    ++owner_.waiting_;
    return owner_.combine();
  }
  Result<void> settle() {
    if (!task_) return {};
    return owner_.tools_.workers.wait(std::exchange(task_, nullptr));
  }
  const std::byte* plaintext() const { return plaintext_.data(); }
  const Source& source() const { return source_; }
  void set_limit(std::uint32_t segments) { limit_ = std::min(segments, source_.move.layout.segments()); }

 private:
  Result<void> open(std::uint32_t segment) {
    const OpenedMove& move = source_.move;
    const ScopeTimer timer(owner_.tools_.counters.open_ns);
    const std::uint32_t payload_bytes = move.layout.payload_of(segment);
    plaintext_.resize(std::max<std::size_t>(payload_bytes, 1));
    CombineSpec replace;
    replace.dtype = move.context.dtype;
    replace.dst = plaintext_.data();
    const OpenJob job{move.key,
                      move.first_number + segment,
                      at_segment(move.context, move.layout, segment),
                      move.layout,
                      1,
                      wire_.data(),
                      replace};
    emulate(owner_.tools_.config.emulation, segment, payload_bytes);
    Stream cpu;
    if (auto opened = owner_.tools_.cipher.open(job, cpu); !opened) {
      return at_place(std::move(opened).error(), job.context, segment, move.reporter);
    }
    owner_.tools_.counters.opened_segments.fetch_add(1, std::memory_order_relaxed);
    owner_.tools_.counters.opened_bytes.fetch_add(payload_bytes, std::memory_order_relaxed);
    return {};
  }

  OrderedReduction& owner_;
  Source source_;
  Bytes wire_, plaintext_;
  std::shared_ptr<WorkerPool::Task> task_;
  std::uint32_t filled_ = 0, limit_ = 0;
};

OrderedReduction::OrderedReduction(MoveTools tools, Rank own_rank, std::vector<Source> sources)
    : tools_(tools), own_rank_(own_rank) {
  SR_CHECK(!sources.empty());
  std::sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) { return a.rank < b.rank; });
  for (Source& source : sources) sinks_.push_back(std::make_unique<Sink>(*this, std::move(source)));
}

OrderedReduction::~OrderedReduction() {
  for (auto& sink : sinks_) (void)sink->settle();
}

WireSink& OrderedReduction::sink(std::size_t index) { return *sinks_[index]; }

void OrderedReduction::set_limit(std::uint32_t segments) {
  for (auto& sink : sinks_) sink->set_limit(segments);
}

std::uint32_t OrderedReduction::segments() const { return sinks_[0]->source().move.layout.segments(); }

/// The sum of one segment, once all contributions to it are there.
Result<void> OrderedReduction::combine() {
  const OpenedMove& shape = sinks_[0]->source().move;
  if (waiting_ < sinks_.size() || !shape.may_write(segment_)) return {};
  for (auto& sink : sinks_) SR_TRY(sink->settle());
  const ScopeTimer timer(tools_.counters.open_ns);
  const std::uint64_t offset = shape.layout.payload_offset(segment_);
  const std::uint32_t payload_bytes = shape.layout.payload_of(segment_);
  if (payload_bytes > 0) {
    const std::byte* own = shape.combine.local + offset;
    if (shape.local_scale != 1.0) {
      SR_TRY(scale_elements(shape.context.dtype, own, own_scaled_, payload_bytes, shape.local_scale));
      own = own_scaled_.data();
    }
    std::vector<const std::byte*> sources;
    bool own_placed = false;
    for (const auto& sink : sinks_) {
      if (!own_placed && sink->source().rank > own_rank_) {
        sources.push_back(own);
        own_placed = true;
      }
      sources.push_back(sink->plaintext());
    }
    if (!own_placed) sources.push_back(own);
    ReduceJob job;
    job.dtype = shape.context.dtype;
    job.redop = shape.combine.redop;
    job.sources = sources;
    job.dst = shape.combine.dst + offset;
    job.elements = payload_bytes / dtype_bytes(job.dtype);
    job.divisor = shape.combine.divisor;
    SR_TRY(reduce_cpu(job));
  }
  waiting_ = 0;
  ++segment_;
  return {};
}

}  // namespace sealring
