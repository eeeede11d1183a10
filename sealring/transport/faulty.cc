// The seeded adversary: every exchange passes through it, and the told ones are harmed on their way out.
#include <condition_variable>
#include <mutex>

#include "sealring/transport/exchange_loop.h"
#include "sealring/transport/faulty_source.h"

namespace sealring {
namespace {

struct NamedFault {
  FaultKind kind;
  std::string_view name;
};
constexpr NamedFault kFaults[] = {
    {FaultKind::flip_bit, "flip_bit"},
    {FaultKind::flip_tag_bit, "flip_tag_bit"},
    {FaultKind::drop, "drop"},
    {FaultKind::duplicate, "duplicate"},
    {FaultKind::reorder, "reorder"},
    {FaultKind::replay_previous, "replay_previous"},
    {FaultKind::truncate, "truncate"},
    {FaultKind::inject, "inject"},
    {FaultKind::splice_stream, "splice_stream"},
    {FaultKind::reflect, "reflect"},
    {FaultKind::stall, "stall"},
    {FaultKind::close, "close"},
};
constexpr FaultKind kKinds[] = {FaultKind::flip_bit,  FaultKind::flip_tag_bit, FaultKind::drop,
                                FaultKind::duplicate, FaultKind::reorder,      FaultKind::replay_previous,
                                FaultKind::truncate,  FaultKind::inject,       FaultKind::splice_stream,
                                FaultKind::reflect,   FaultKind::stall,        FaultKind::close};
static_assert(std::size(kKinds) == std::size(kFaults));

constexpr std::size_t kReceivedMax = 64;  ///< buffers a stream that a reflection may choose from

/// Keeps a copy of what comes, before the receiver may open it in place.
class RecordingSink final : public WireSink {
 public:
  RecordingSink(WireSink& inner, std::deque<Bytes>& log) : inner_(inner), log_(log) {}
  Result<std::optional<std::span<std::byte>>> buffer() override {
    SR_TRY(const auto offered, inner_.buffer());
    if (offered) buffer_ = *offered;
    return offered;
  }
  Result<void> filled() override {
    log_.push_back(to_bytes(buffer_));
    if (log_.size() > kReceivedMax) log_.pop_front();
    return inner_.filled();
  }

 private:
  WireSink& inner_;
  std::deque<Bytes>& log_;
  std::span<std::byte> buffer_;
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, std::vector<Fault> faults,
                  std::shared_ptr<std::atomic<std::uint32_t>> struck)
      : inner_(std::move(inner)), faults_(std::move(faults)), struck_(std::move(struck)) {}

  std::string address() const override { return inner_->address(); }
  Result<void> open_group(const GroupLinks& links, Deadline deadline) override {
    return inner_->open_group(links, deadline);
  }
  void close_group(const std::array<std::byte, 8>& group) noexcept override { inner_->close_group(group); }
  Result<void> exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream& stream,
                        Deadline deadline) override;
  Result<std::size_t> wait_readable(std::span<const StreamId> streams, std::size_t bytes,
                                    Deadline deadline) override {
    return inner_->wait_readable(streams, bytes, deadline);
  }
  Result<std::unique_ptr<ControlStreams>> control_streams() override { return inner_->control_streams(); }
  void abort() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      aborted_ = true;
    }
    aborted_changed_.notify_all();
    inner_->abort();
  }
  std::string describe() const override { return inner_->describe() + " (with faults)"; }

 private:
  std::vector<Fault> faults_of(std::uint64_t op, std::size_t move) const {
    std::vector<Fault> out;
    for (const Fault& fault : faults_) {
      if (fault.op_index == op && fault.move_index == move) out.push_back(fault);
    }
    return out;
  }
  Result<void> run(FaultyExchange& exchange, std::uint64_t op, std::span<const Send> sends,
                   std::span<const Recv> recvs, Stream& stream, Deadline deadline);
  Error wait_stalled(const FaultyExchange& exchange, Deadline deadline);

  const std::unique_ptr<Transport> inner_;
  const std::vector<Fault> faults_;
  const std::shared_ptr<std::atomic<std::uint32_t>> struck_;
  std::mutex mutex_;
  std::condition_variable aborted_changed_;
  bool aborted_ = false;
  std::uint64_t next_op_ = 0;
  std::map<StreamId, PieceLog> previous_;
  std::map<StreamId, std::deque<Bytes>> received_;
};

Result<void> FaultyTransport::exchange(std::span<const Send> sends, std::span<const Recv> recvs,
                                       Stream& stream, Deadline deadline) {
  FaultyExchange exchange;
  std::map<StreamId, PieceLog> previous;
  std::map<StreamId, std::deque<Bytes>> received;
  std::uint64_t op = 0;
  {
    // Other exchanges may run at the same time on other streams: each works on its streams' histories.
    const std::lock_guard lock(mutex_);
    op = next_op_++;
    for (const Send& send : sends) {
      previous[send.stream] = std::move(previous_[send.stream]);
      received.try_emplace(send.stream, received_[send.stream]);
    }
    for (const Recv& recv : recvs) received.try_emplace(recv.stream, received_[recv.stream]);
  }
  exchange.previous = &previous;
  exchange.received = &received;
  exchange.inner = inner_.get();
  exchange.struck = struck_.get();
  std::map<StreamId, std::size_t> moves;
  for (std::size_t i = 0; i < sends.size(); ++i) {
    exchange.sources.push_back(std::make_unique<FaultySource>(
        *sends[i].source, sends[i].stream, moves[sends[i].stream]++, faults_of(op, i), exchange));
  }
  std::vector<std::unique_ptr<RecordingSink>> sinks;
  std::vector<Recv> recorded;
  for (const Recv& recv : recvs) {
    sinks.push_back(std::make_unique<RecordingSink>(*recv.sink, received[recv.stream]));
    recorded.push_back({recv.stream, sinks.back().get()});
  }
  Result<void> result = run(exchange, op, sends, recorded, stream, deadline);
  const std::lock_guard lock(mutex_);
  for (auto& [id, log] : exchange.sent) previous_[id] = std::move(log);
  for (const Recv& recv : recvs) received_[recv.stream] = received[recv.stream];
  return result;
}

Result<void> FaultyTransport::run(FaultyExchange& exchange, std::uint64_t op, std::span<const Send> sends,
                                  std::span<const Recv> recvs, Stream& stream, Deadline deadline) {
  std::vector<Send> harmed;
  for (std::size_t i = 0; i < sends.size(); ++i)
    harmed.push_back({sends[i].stream, exchange.sources[i].get()});
  for (const Fault& fault : faults_) {
    const bool here = fault.op_index == op && fault.move_index < sends.size();
    if (here && fault.kind == FaultKind::splice_stream) {
      SR_TRY(exchange.sources[fault.move_index]->prepare(fault.piece_index));
    }
  }
  SR_TRY(inner_->exchange(harmed, recvs, stream, deadline));
  if (!exchange.stalled.empty()) return fail(wait_stalled(exchange, deadline));
  return {};
}

/// All but the stalled streams is done; a rank whose wire is stuck waits as any other does.
Error FaultyTransport::wait_stalled(const FaultyExchange& exchange, Deadline deadline) {
  std::unique_lock lock(mutex_);
  aborted_changed_.wait_until(lock, Clock::now() + deadline.left(), [&] { return aborted_; });
  if (aborted_) return transport_aborted("transport.exchange");
  std::vector<Rank> peers;
  for (const StreamId& id : exchange.stalled) peers.push_back(id.peer);
  return timed_out("transport.exchange", name_ranks(peers) + " took no more bytes", peers);
}

}  // namespace

std::span<const FaultKind> all_fault_kinds() { return kKinds; }

std::string_view to_string(FaultKind kind) {
  for (const NamedFault& fault : kFaults) {
    if (fault.kind == kind) return fault.name;
  }
  return "?";
}

std::unique_ptr<Transport> make_faulty_transport(std::unique_ptr<Transport> inner, std::vector<Fault> faults,
                                                 std::shared_ptr<std::atomic<std::uint32_t>> struck) {
  SR_CHECK(inner != nullptr && struck != nullptr);
  return std::make_unique<FaultyTransport>(std::move(inner), std::move(faults), std::move(struck));
}

}  // namespace sealring
