#include "sealring/collective/group_communicator.h"

#include <fmt/format.h>

#include <utility>

#include "sealring/base/boundary.h"
#include "sealring/base/log.h"

namespace sealring {
namespace {

/// A CPU has no streams: work is done when the ticket is.
Result<void> check_no_stream(Stream stream) {
  if (stream.native == nullptr) return {};
  return fail(Code::invalid_argument, "communicator.call",
              "a stream was given to a communicator of tensors in host memory",
              "leave the stream out, or use a communicator on a device");
}

}  // namespace

GroupCommunicator::GroupCommunicator(std::shared_ptr<SessionCore> core, std::unique_ptr<GroupKeys> own_keys,
                                     GroupKeys& keys)
    : CheckedCommunicator(keys.members(), keys.me(), core->config.node_ranks),
      core_(std::move(core)),
      own_keys_(std::move(own_keys)),
      group_id_(keys.group_id()),
      channel_(std::make_unique<Channel>(
          [this] {
            ChannelConfig config;
            config.segment_bytes = core_->config.segment_bytes;
            config.budget = core_->config.budget;
            config.workers = core_->config.workers;
            if (const auto& emulation = core_->config.emulation) {
              config.emulation = {emulation->a_us * 1e3, emulation->b_ns_per_kib / 1024.0,
                                  emulation->offload};
            }
            return config;
          }(),
          keys, *core_->cipher, *core_->transport, core_->verdict)),
      executor_(*channel_, core_->config.sender_keys, node_ranks()),
      timeout_ns_(core_->config.timeout / std::chrono::nanoseconds(1)),
      inbound_(size()),
      collectives_("sr-collective"),
      death_hook_(core_->add_death_hook([this] { wipe_keys(); })) {}

void GroupCommunicator::wipe_keys() {
  const std::lock_guard lock(issue_mutex_);
  collectives_.issue([this] { channel_->wipe_collective(); });
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    for (const bool outgoing : {true, false}) {
      direction(peer, outgoing).thread.issue([this, peer, outgoing] {
        if (!outgoing) inbound_.take(peer);
        channel_->wipe_direction(peer, outgoing);
        if (!outgoing) inbound_.release(peer);
      });
    }
  }
  if (own_keys_) own_keys_->wipe();
}

GroupCommunicator::~GroupCommunicator() {
  if (core_->forked()) {  // the threads live in the parent
    core_->remove_death_hook(death_hook_);
    collectives_.forget();
    for (auto& [key, direction] : directions_) direction->thread.forget();
    if (any_source_) any_source_->forget();
    return;
  }
  // A group that ends with operations under way cannot finish them: they fail, and with them the session. An
  // operation whose ticket is done may still be leaving its thread: it gets a moment.
  const bool idle = drain(Deadline::in(std::chrono::seconds(1)));
  if (!idle) {
    Error error;
    error.code = Code::aborted;
    error.stage = "communicator.destroy";
    error.what = "a communicator was destroyed while its operations were running";
    core_->die(std::move(error));
    (void)drain(Deadline::in(SessionCore::kTeardownMax * 2));
  }
  core_->remove_death_hook(death_hook_);
  if (core_->control) core_->control->forget_group(group_id_);
  std::array<std::byte, 8> label{};
  std::copy_n(group_id_.begin(), label.size(), label.begin());
  core_->transport->close_group(label);
}

Algorithm GroupCommunicator::algorithm_for(Op op, std::uint64_t bytes) const {
  const auto& wanted = core_->config.algorithm;
  if (wanted && algorithm_supported(op, *wanted)) return *wanted;
  return default_algorithm(op, size(), bytes, node_ranks());
}

Result<Ticket> GroupCommunicator::issue(CollectiveCall call, std::span<std::byte> output, Stream stream) {
  SR_TRY(check_no_stream(stream));
  SR_TRY(core_->check_process());
  return without_exceptions("communicator.call", [&]() -> Result<Ticket> {
    auto ticket = std::make_shared<TicketState>();
    const Deadline deadline = op_deadline();
    const std::lock_guard lock(issue_mutex_);
    call.seq = next_seq_++;
    collectives_.issue(
        [this, call, output, deadline, ticket] { run_collective(call, output, deadline, ticket); });
    return TicketState::ticket_of(ticket);
  });
}

void GroupCommunicator::run_collective(const CollectiveCall& call, std::span<std::byte> output,
                                       Deadline deadline, const TicketPtr& ticket) {
  OpContext context;
  context.group_id = group_id_;
  context.seq = call.seq;
  context.op = call.op;
  context.redop = call.redop;
  context.dtype = call.dtype;
  context.algorithm = call.algorithm;
  context.root = call.root;
  context.elements = call.elements;
  if (size() > 1 && !core_->verdict.dead()) core_->control->op_started(context, global_ranks());
  auto result = without_exceptions("communicator.run", [&] { return executor_.run(call, deadline); });
  if (size() > 1) core_->control->op_finished(group_id_, call.seq, result.has_value());
  finish(std::move(result), call.dtype, output, ticket);
}

void GroupCommunicator::finish(Result<void> result, DType dtype, std::span<std::byte> output,
                               const TicketPtr& ticket) {
  if (!result) {
    // [protocol A.5] where an op fails its WHOLE output is poisoned, and the session is dead for all.
    core_->die(std::move(result).error());
    poison(dtype, output);
    result = fail(core_->final_error());
  }
  ops_.fetch_add(1, std::memory_order_relaxed);
  ticket->complete(std::move(result));
}

GroupCommunicator::Direction& GroupCommunicator::direction(Rank peer, bool outgoing) {
  auto& entry = directions_[{peer, outgoing}];
  if (!entry) entry = std::make_unique<Direction>(fmt::format("sr-{}-{}", outgoing ? "send" : "recv", peer));
  return *entry;
}

Result<Ticket> GroupCommunicator::send(Tensor data, Rank peer, std::uint32_t tag, Stream stream) {
  SR_TRY(check_no_stream(stream));
  SR_TRY(core_->check_process());
  SR_TRY(check_tensor(data, "tensor"));
  SR_TRY(check_peer(peer));
  return without_exceptions("communicator.call", [&]() -> Result<Ticket> {
    auto ticket = std::make_shared<TicketState>();
    const Deadline deadline = op_deadline();
    const std::lock_guard lock(issue_mutex_);
    Direction& way = direction(peer, true);
    const OpInfo op{way.seq++,         Op::send, RedOp::none,   data.dtype,
                    Algorithm::direct, kNoRoot,  data.elements, tag};
    way.thread.issue([this, op, data, peer, deadline, ticket] {
      finish(without_exceptions("communicator.run",
                                [&] {
                                  const OutgoingMove move{
                                      {peer},        false, 0,  static_cast<const std::byte*>(data.data),
                                      data.elements, 0,     1.0};
                                  return channel_->send(op, move, deadline);
                                }),
             data.dtype, {}, ticket);
    });
    return TicketState::ticket_of(ticket);
  });
}

Result<void> GroupCommunicator::receive(Tensor data, Rank peer, std::uint32_t tag, Deadline deadline) {
  const OpInfo op{inbound_.next_seq(peer), Op::send, RedOp::none,   data.dtype,
                  Algorithm::direct,       kNoRoot,  data.elements, tag};
  IncomingMove move;
  move.peer = peer;
  move.dst = static_cast<std::byte*>(data.data);
  move.elements = data.elements;
  return channel_->recv(op, move, deadline);
}

Result<Ticket> GroupCommunicator::recv(Tensor data, Rank peer, std::uint32_t tag, Stream stream) {
  SR_TRY(check_no_stream(stream));
  SR_TRY(core_->check_process());
  SR_TRY(check_tensor(data, "tensor"));
  SR_TRY(check_peer(peer));
  return without_exceptions("communicator.call", [&]() -> Result<Ticket> {
    auto ticket = std::make_shared<TicketState>();
    const Deadline deadline = op_deadline();
    const std::lock_guard lock(issue_mutex_);
    Direction& way = direction(peer, false);
    inbound_.announce(peer);
    way.thread.issue([this, data, peer, tag, deadline, ticket] {
      auto result = without_exceptions("communicator.run", [&]() -> Result<void> {
        if (!inbound_.take_announced(peer, deadline)) {
          return fail(Code::timeout, "p2p.recv", "a receive from any source still reads this rank's stream");
        }
        auto received =
            without_exceptions("communicator.run", [&] { return receive(data, peer, tag, deadline); });
        inbound_.release(peer);
        return received;
      });
      finish(std::move(result), data.dtype, memory_of(data), ticket);
    });
    return TicketState::ticket_of(ticket);
  });
}

/// Waits in slices, so that a receive from one peer that is issued meanwhile gets its stream after one of
/// them.
Result<Rank> GroupCommunicator::take_source(std::uint64_t bytes, Deadline deadline) {
  constexpr std::chrono::milliseconds kSlice{2};
  while (true) {
    if (core_->verdict.dead()) return fail(*core_->verdict.error());
    const std::vector<Rank> idle = inbound_.take_idle(rank(), kSlice);
    if (!idle.empty()) {
      auto found = without_exceptions("communicator.run", [&] {
        return channel_->wait_any(idle, bytes, Deadline::in(kSlice).earlier(deadline));
      });
      for (const Rank peer : idle) {
        if (!found || peer != *found) inbound_.release(peer);
      }
      if (found || found.error().code != Code::timeout) return found;
    }
    if (deadline.expired()) return fail(Code::timeout, "p2p.recv", "no rank has sent anything");
  }
}

Result<Ticket> GroupCommunicator::recv_any(Tensor data, std::uint32_t tag, std::shared_ptr<Rank> source,
                                           Stream stream) {
  SR_TRY(check_no_stream(stream));
  SR_TRY(core_->check_process());
  SR_TRY(check_tensor(data, "tensor"));
  if (size() == 1)
    return fail(Code::invalid_argument, "communicator.call",
                "a group of one rank has nobody to receive from");
  return without_exceptions("communicator.call", [&]() -> Result<Ticket> {
    auto ticket = std::make_shared<TicketState>();
    const Deadline deadline = op_deadline();
    const std::lock_guard lock(issue_mutex_);
    if (!any_source_) any_source_ = std::make_unique<OpThread>("sr-recv-any");
    any_source_->issue([this, data, tag, deadline, ticket, source = std::move(source)] {
      auto result = without_exceptions("communicator.run", [&]() -> Result<void> {
        SR_TRY(*source, take_source(memory_of(data).size(), deadline));
        auto received =
            without_exceptions("communicator.run", [&] { return receive(data, *source, tag, deadline); });
        inbound_.release(*source);
        return received;
      });
      finish(std::move(result), data.dtype, memory_of(data), ticket);
    });
    return TicketState::ticket_of(ticket);
  });
}

Counters GroupCommunicator::counters() const {
  const ChannelCounters& from = channel_->counters();
  constexpr auto kOrder = std::memory_order_relaxed;
  return {ops_.load(kOrder),
          from.seals.load(kOrder),
          from.opens.load(kOrder),
          from.sealed_segments.load(kOrder),
          from.opened_segments.load(kOrder),
          from.sealed_bytes.load(kOrder),
          from.opened_bytes.load(kOrder),
          from.seal_ns.load(kOrder),
          from.open_ns.load(kOrder),
          from.wire_ns.load(kOrder),
          from.epoch.load(kOrder)};
}

std::string GroupCommunicator::describe() const {
  const Counters totals = counters();
  std::string ranks;
  for (const Rank global : global_ranks()) ranks += (ranks.empty() ? "" : ",") + std::to_string(global);
  return fmt::format(
      "ranks [{}] suite {} identity \"{}\" transport \"{}\" epoch {} ops {} sealed {} bytes in {} "
      "operations opened {} bytes in {} operations timeout {} ms",
      ranks, to_string(core_->config.suite), core_->identity, core_->transport->describe(), totals.epoch,
      totals.ops, totals.sealed_bytes, totals.seals, totals.opened_bytes, totals.opens,
      timeout_ns_.load() / 1'000'000);
}

bool GroupCommunicator::drain(Deadline deadline) {
  bool drained = collectives_.drain(deadline);
  if (any_source_) drained = any_source_->drain(deadline) && drained;
  std::vector<Direction*> directions;
  {
    const std::lock_guard lock(issue_mutex_);
    for (auto& [key, direction] : directions_) directions.push_back(direction.get());
  }
  for (Direction* direction : directions) drained = direction->thread.drain(deadline) && drained;
  return drained;
}

}  // namespace sealring
