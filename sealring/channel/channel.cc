#include "sealring/channel/channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sealring/channel/moves.h"
#include "sealring/channel/plain_moves.h"

namespace sealring {
namespace {

RedOp combine_op(RedOp redop) {
  // premul_sum was applied to the inputs, avg divides on the last hop: both combine as a sum.
  return redop == RedOp::premul_sum || redop == RedOp::avg ? RedOp::sum : redop;
}

}  // namespace

/// Builds the sources and sinks of one exchange and keeps them until it is over.
class MoveBuilder {
 public:
  MoveBuilder(Channel& channel, const OpInfo& op, StepRules rules, Deadline deadline)
      : channel_(channel),
        op_(op),
        rules_(rules),
        deadline_(deadline),
        tools_{channel.cipher_, channel.verdict_, channel.counters_, *channel.workers_, channel.config_} {}

  void add(const OutgoingMove& move, Kind kind, KeyLine& line, SealPermit permit) {
    if (zero_copy() && move.peers.size() == 1 && move.scale == 1.0) {
      plain_sources_.push_back(std::make_unique<PlainSource>(tools_, layout(move.elements), move.data));
      lockstep_.add(*plain_sources_.back());
      sends_.push_back({channel_.stream(move.peers[0], kind), plain_sources_.back().get()});
      return;
    }
    SealedMove sealed{&line.key(),
                      std::move(permit),
                      first_context(move.step, move.elements, move.element_offset, kind),
                      layout(move.elements),
                      move.data,
                      move.scale};
    sealed.context.epoch = line.key().epoch();
    sealed.context.sender = channel_.members_[channel_.rank_];
    sealed.context.receiver = move.multicast ? kMulticast : channel_.members_[move.peers[0]];
    if (move.peers.size() == 1) {
      sources_.push_back(std::make_unique<SealSource>(tools_, std::move(sealed)));
      lockstep_.add(*sources_.back());
      sends_.push_back({channel_.stream(move.peers[0], kind), sources_.back().get()});
      return;
    }
    const std::uint64_t wire_bytes = channel_.config_.segment_bytes + kTagBytes;
    round_segments_ =
        static_cast<std::uint32_t>(std::max<std::uint64_t>(1, MulticastRecord::kRoundBytesMax / wire_bytes));
    records_.push_back(std::make_unique<MulticastRecord>(tools_, std::move(sealed), round_segments_));
    lockstep_.add(*records_.back());
    for (const Rank peer : move.peers) {
      multicasts_.push_back(std::make_unique<MulticastSource>(*records_.back()));
      sends_.push_back({channel_.stream(peer, kind), multicasts_.back().get()});
    }
  }

  void add(const IncomingMove& move, Kind kind, const KeyLine& line, std::uint64_t first_number) {
    if (zero_copy() && move.local == nullptr) {
      plain_sinks_.push_back(std::make_unique<PlainSink>(tools_, layout(move.elements), move.dst));
      recvs_.push_back({channel_.stream(move.peer, kind), plain_sinks_.back().get()});
      return;
    }
    sinks_.push_back(std::make_unique<OpenSink>(tools_, opened(move, kind, line, first_number)));
    recvs_.push_back({channel_.stream(move.peer, kind), sinks_.back().get()});
  }

  /// Receives of one dst: reduced in rank order.
  void add_ordered(std::vector<OrderedReduction::Source> sources) {
    std::sort(sources.begin(), sources.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    std::vector<Rank> ranks;
    for (const auto& source : sources) ranks.push_back(source.rank);
    reductions_.push_back(std::make_unique<OrderedReduction>(tools_, channel_.rank_, std::move(sources)));
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      recvs_.push_back({channel_.stream(ranks[i], Kind::pair), &reductions_.back()->sink(i)});
    }
  }

  OpenedMove opened(const IncomingMove& move, Kind kind, const KeyLine& line,
                    std::uint64_t first_number) const {
    OpenedMove out;
    out.key = &line.key();
    out.first_number = first_number;
    out.context = first_context(move.step, move.elements, move.element_offset, kind);
    out.context.epoch = line.key().epoch();
    out.context.sender = channel_.members_[move.peer];
    out.context.receiver = move.multicast ? kMulticast : channel_.members_[channel_.rank_];
    out.layout = layout(move.elements);
    out.combine.dtype = op_.dtype;
    out.combine.dst = move.dst;
    out.combine.local = move.local;
    out.combine.redop = move.local == nullptr ? RedOp::none : combine_op(op_.redop);
    out.combine.divisor = move.divisor;
    out.combine.received_first = rules_.ordered && move.peer < channel_.rank_;
    out.lockstep = rules_.lockstep ? &lockstep_ : nullptr;
    out.local_scale = move.local_scale;
    out.reporter = channel_.members_[channel_.rank_];
    return out;
  }

  /// Runs to the end; in rounds where a record goes to several peers, so that its ciphertext need not be kept
  /// whole.
  Result<void> run() {
    const std::uint64_t start_ns = now_ns();
    const std::uint64_t crypto_before_ns = crypto_ns();
    Stream cpu;
    for (std::uint32_t end = round_segments_;; end += round_segments_) {
      const bool last = set_limits(end);
      SR_TRY(channel_.transport_.exchange(sends_, recvs_, cpu, deadline_));
      if (last) break;
      for (auto& record : records_) record->next_round();
    }
    const std::uint64_t total_ns = now_ns() - start_ns, crypto = crypto_ns() - crypto_before_ns;
    channel_.counters_.wire_ns.fetch_add(total_ns > crypto ? total_ns - crypto : 0,
                                         std::memory_order_relaxed);
    return {};
  }

 private:
  bool zero_copy() const { return channel_.suite_ == Suite::plain && !channel_.config_.emulation; }

  std::uint64_t crypto_ns() const {
    return channel_.counters_.seal_ns.load(std::memory_order_relaxed) +
           channel_.counters_.open_ns.load(std::memory_order_relaxed);
  }

  /// True when after this round everything is done.
  bool set_limits(std::uint32_t end) {
    if (round_segments_ == 0) return true;
    bool last = true;
    const auto limit = [&](std::uint32_t segments) {
      last = last && segments <= end;
      return std::min(segments, end);
    };
    for (auto& source : sources_) source->set_limit(limit(source->segments()));
    for (auto& source : plain_sources_) source->set_limit(limit(source->segments()));
    for (auto& record : records_) (void)limit(record->segments());
    for (auto& sink : sinks_) sink->set_limit(limit(sink->segments()));
    for (auto& sink : plain_sinks_) sink->set_limit(limit(sink->segments()));
    for (auto& reduction : reductions_) reduction->set_limit(limit(reduction->segments()));
    return last;
  }

  RecordLayout layout(std::uint64_t elements) const {
    return RecordLayout::of(elements * dtype_bytes(op_.dtype), channel_.config_.segment_bytes);
  }

  RecordContext first_context(std::uint16_t step, std::uint64_t elements, std::uint64_t offset,
                              Kind kind) const {
    RecordContext context = channel_.context(op_);
    context.step = step;
    context.segments = layout(elements).segments();
    context.elements = kind == Kind::p2p ? elements : op_.elements;
    context.element_offset = offset;
    return context;
  }

  Channel& channel_;
  const OpInfo& op_;
  StepRules rules_;
  Deadline deadline_;
  MoveTools tools_;
  std::uint32_t round_segments_ = 0;  ///< 0: one round
  Lockstep lockstep_;
  std::vector<std::unique_ptr<SealSource>> sources_;
  std::vector<std::unique_ptr<MulticastRecord>> records_;
  std::vector<std::unique_ptr<MulticastSource>> multicasts_;
  std::vector<std::unique_ptr<OpenSink>> sinks_;
  std::vector<std::unique_ptr<PlainSource>> plain_sources_;
  std::vector<std::unique_ptr<PlainSink>> plain_sinks_;
  std::vector<std::unique_ptr<OrderedReduction>> reductions_;
  std::vector<Send> sends_;
  std::vector<Recv> recvs_;
};

Channel::Channel(ChannelConfig config, GroupKeys& keys, BulkCipher& cipher, Transport& transport,
                 Verdict& verdict)
    : config_(config),
      cipher_(cipher),
      transport_(transport),
      verdict_(verdict),
      members_(keys.members()),
      suite_(keys.suite()),
      group_id_(keys.group_id()),
      th3_(keys.th3()),
      peers_(members_.size()),
      senders_(members_.size()),
      to_(members_.size()),
      from_(members_.size()),
      sender_(members_.size()),
      workers_(std::make_unique<WorkerPool>(config.workers)) {
  SR_CHECK(!config.emulation || suite_ == Suite::plain, "an emulated cost needs suite plain");
  const Rank me = keys.me();
  const auto line = [&](KeyChain chain) {
    return std::make_unique<KeyLine>(std::move(chain), suite_, config_.budget, cipher_);
  };
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Rank peer = members_[i];
    if (config_.collectives) senders_[i] = line(keys.take_sender_chain(peer));
    if (peer == me) {
      rank_ = static_cast<Rank>(i);
      continue;
    }
    if (config_.collectives) {
      peers_[i].pair_out = line(keys.take_chain(Kind::pair, me, peer));
      peers_[i].pair_in = line(keys.take_chain(Kind::pair, peer, me));
    }
    peers_[i].p2p_out = line(keys.take_chain(Kind::p2p, me, peer));
    peers_[i].p2p_in = line(keys.take_chain(Kind::p2p, peer, me));
  }
}

RecordContext Channel::context(const OpInfo& op) const {
  RecordContext context;
  context.suite = suite_;
  std::memcpy(context.th3.data(), th3_.data(), context.th3.size());
  std::memcpy(context.group_id.data(), group_id_.data(), context.group_id.size());
  context.seq = op.seq;
  context.op = op.op;
  context.redop = op.redop;
  context.dtype = op.dtype;
  context.algorithm = op.algorithm;
  context.root = op.root;
  context.tag = op.tag;
  context.group_size = size();
  return context;
}

StreamId Channel::stream(Rank peer, Kind kind) const {
  StreamId id;
  std::memcpy(id.group.data(), group_id_.data(), id.group.size());
  id.peer = members_[peer];
  id.kind = kind;
  return id;
}

Result<void> Channel::begin(const OpInfo& op, const OpTotals& totals) {
  SR_CHECK(config_.collectives, "a collective on a point-to-point channel");
  if (verdict_.dead()) return fail(*verdict_.error());
  op_ = op;
  const auto note_epoch = [this](const KeyLine& line) {
    if (line.epoch() > counters_.epoch.load(std::memory_order_relaxed)) {
      counters_.epoch.store(line.epoch(), std::memory_order_relaxed);
    }
  };
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (totals.sender[i].segments > 0) {
      if (i == rank_) {
        SR_TRY(sender_[i].permit, senders_[i]->take(totals.sender[i].segments, totals.sender[i].bytes));
      } else {
        SR_TRY(sender_[i].next_number,
               senders_[i]->advance(totals.sender[i].segments, totals.sender[i].bytes));
      }
      note_epoch(*senders_[i]);
    }
    if (i == rank_) continue;
    if (totals.to[i].segments > 0) {
      SR_TRY(to_[i].permit, peers_[i].pair_out->take(totals.to[i].segments, totals.to[i].bytes));
      note_epoch(*peers_[i].pair_out);
    }
    if (totals.from[i].segments > 0) {
      SR_TRY(from_[i].next_number, peers_[i].pair_in->advance(totals.from[i].segments, totals.from[i].bytes));
    }
  }
  return {};
}

Result<void> Channel::exchange(std::span<const OutgoingMove> out, std::span<const IncomingMove> in,
                               StepRules rules, Deadline deadline) {
  MoveBuilder builder(*this, op_, rules, deadline);
  const auto segments_of = [this](std::uint64_t elements) {
    return RecordLayout::of(elements * dtype_bytes(op_.dtype), config_.segment_bytes).segments();
  };
  for (const OutgoingMove& move : out) {
    const std::uint32_t segments = segments_of(move.elements);
    if (move.multicast) {
      builder.add(move, Kind::pair, *senders_[rank_], sender_[rank_].permit->split(segments));
    } else {
      const Rank peer = move.peers[0];
      builder.add(move, Kind::pair, *peers_[peer].pair_out, to_[peer].permit->split(segments));
    }
  }
  std::vector<OrderedReduction::Source> sources;
  for (const IncomingMove& move : in) {
    SR_CHECK(!rules.lockstep || move.local != nullptr || move.elements == 0, "lockstep without a reduction");
    const KeyLine& line = move.multicast ? *senders_[move.peer] : *peers_[move.peer].pair_in;
    std::uint64_t number = 0;
    if (move.multicast) {
      number = sender_[move.peer].next_number + move.position;
    } else {
      number = from_[move.peer].next_number;
      from_[move.peer].next_number += segments_of(move.elements);
    }
    // One peer's contribution needs no waiting room.
    if (rules.ordered && in.size() > 1) {
      sources.push_back({move.peer, builder.opened(move, Kind::pair, line, number)});
    } else {
      builder.add(move, Kind::pair, line, number);
    }
  }
  if (!sources.empty()) builder.add_ordered(std::move(sources));
  return builder.run();
}

Result<std::byte*> Channel::scratch(std::uint64_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

Result<void> Channel::copy(DType dtype, const std::byte* from, std::byte* to, std::uint64_t elements,
                           double scale) {
  if (elements == 0) return {};
  if (scale != 1.0) {
    ReduceJob job;
    job.dtype = dtype;
    job.redop = RedOp::premul_sum;
    job.sources = std::span<const std::byte* const>(&from, 1);
    job.dst = to;
    job.elements = elements;
    job.scale = scale;
    return reduce_cpu(job);
  }
  if (from != to) std::memmove(to, from, elements * dtype_bytes(dtype));
  return {};
}

Result<void> Channel::messages(const OpInfo& op, std::span<const OutgoingMove> out,
                               std::span<const IncomingMove> in, Deadline deadline) {
  if (verdict_.dead()) return fail(*verdict_.error());
  MoveBuilder builder(*this, op, {}, deadline);
  const auto bytes_of = [&op](const auto& move) { return move.elements * dtype_bytes(op.dtype); };
  const auto segments_of = [this](std::uint64_t bytes) -> std::uint64_t {
    return RecordLayout::of(bytes, config_.segment_bytes).segments();
  };
  for (const OutgoingMove& move : out) {
    KeyLine& line = *peers_[move.peers[0]].p2p_out;
    SR_TRY(SealPermit permit, line.take(segments_of(bytes_of(move)), bytes_of(move)));
    builder.add(move, Kind::p2p, line, std::move(permit));
  }
  for (const IncomingMove& move : in) {
    KeyLine& line = *peers_[move.peer].p2p_in;
    SR_TRY(const std::uint64_t first, line.advance(segments_of(bytes_of(move)), bytes_of(move)));
    builder.add(move, Kind::p2p, line, first);
  }
  return builder.run();
}

Result<void> Channel::send(const OpInfo& op, const OutgoingMove& move, Deadline deadline) {
  return messages(op, {&move, 1}, {}, deadline);
}

Result<void> Channel::recv(const OpInfo& op, const IncomingMove& move, Deadline deadline) {
  return messages(op, {}, {&move, 1}, deadline);
}

Result<Rank> Channel::wait_any(std::span<const Rank> from, std::uint64_t payload_bytes, Deadline deadline) {
  std::vector<StreamId> streams;
  for (const Rank peer : from) streams.push_back(stream(peer, Kind::p2p));
  // [protocol A.4] from the first pair whose p2p stream has a whole first segment.
  const std::uint64_t first = std::min<std::uint64_t>(payload_bytes, config_.segment_bytes) + kTagBytes;
  SR_TRY(const std::size_t index,
         transport_.wait_readable(streams, static_cast<std::size_t>(first), deadline));
  return from[index];
}

void Channel::wipe_collective() noexcept {
  for (auto& line : senders_) {
    if (line) line->wipe();
  }
  for (PeerLines& lines : peers_) {
    if (lines.pair_out) lines.pair_out->wipe();
    if (lines.pair_in) lines.pair_in->wipe();
  }
}

void Channel::wipe_direction(Rank peer, bool outgoing) noexcept {
  auto& line = outgoing ? peers_[peer].p2p_out : peers_[peer].p2p_in;
  if (line) line->wipe();
}

}  // namespace sealring
