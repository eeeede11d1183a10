#include "sealring/collective/device_communicator.h"

#include <fmt/format.h>

#include <utility>

#include "sealring/base/boundary.h"
#include "sealring/base/log.h"

namespace sealring {
namespace {

/// How long a rank that gives up its device waits for the others to do the same.
constexpr std::chrono::milliseconds kLeaveMax{5000};

}  // namespace

DeviceCommunicator::DeviceCommunicator(std::shared_ptr<SessionCore> core, std::shared_ptr<DeviceQueue> queue,
                                       DeviceParts parts)
    : CheckedCommunicator(parts.members, core->config.rank, core->config.node_ranks),
      core_(std::move(core)),
      queue_(std::move(queue)),
      parts_(std::move(parts)),
      executor_(*parts_.channel, false, node_ranks()),
      watched_(std::make_shared<WatchedGroup>(parts_.channel->group(), parts_.group_id, parts_.members)),
      timeout_ns_(core_->config.timeout / std::chrono::nanoseconds(1)),
      death_hook_(core_->add_death_hook([this] { on_death(); })) {
  queue_->add(watched_);
  if (core_->verdict.dead()) on_death();  // it may have come before the hook
}

DeviceCommunicator::~DeviceCommunicator() {
  if (core_->forked()) {  // the device belongs to the parent
    core_->remove_death_hook(death_hook_);
    (void)parts_.channel.release();
    (void)parts_.rounds.release();
    return;
  }
  // A group that ends with operations under way cannot finish them: they fail, and with them the session.
  if (!drain(Deadline::in(std::chrono::seconds(1)))) {
    Error error;
    error.code = Code::aborted;
    error.stage = "communicator.destroy";
    error.what = "a communicator was destroyed while its operations were running";
    core_->die(std::move(error));
    (void)drain(Deadline::in(SessionCore::kTeardownMax * 3));
  }
  leave(Deadline::in(kLeaveMax));
  queue_->remove(*watched_);
  core_->remove_death_hook(death_hook_);
  if (core_->control) core_->control->forget_group(parts_.group_id);
}

void DeviceCommunicator::on_death() {
  parts_.channel->group().abort();
  parts_.keys->wipe();
  parts_.rounds->wipe();
  queue_->wake();
}

void DeviceCommunicator::leave(Deadline deadline) {
  if (core_->verdict.dead() || left_.exchange(true)) return;
  const SetupRecord record{parts_.place.wire, parts_.place.fallback, parts_.place.columns, Code::ok, {}};
  const auto met = parts_.rounds->share(record, deadline);
  if (met || core_->verdict.dead()) return;
  const Error& error = met.error();
  if (error.code == Code::data_tag || error.code == Code::malformed) return core_->die(error);
  parts_.channel->group().abort();  // a member may still write into this one's window
  log(LogLevel::warning, "a group on a device ended before all its members had given it up",
      {{"group", to_hex(ByteView(parts_.group_id).first(4))}, {"reason", error.message()}});
}

Algorithm DeviceCommunicator::algorithm_for(Op op, std::uint64_t bytes) const {
  const auto& wanted = core_->config.algorithm;
  if (wanted && algorithm_supported(op, *wanted)) return *wanted;
  return default_device_algorithm(op, size(), bytes, node_ranks());
}

Result<Ticket> DeviceCommunicator::enqueue(const OpInfo& op, std::span<std::byte> output, Stream stream,
                                           const std::function<Result<void>()>& body) {
  DeviceChannel& channel = *parts_.channel;
  QueuedOps one(1);  // before anything is enqueued: memory may be short
  QueuedOp& queued = one.front();
  queued.group = watched_;
  queued.context = {parts_.group_id, op.seq, op.op, op.redop, op.dtype, op.algorithm, op.root, op.elements};
  queued.timeout = std::chrono::nanoseconds(timeout_ns_.load());
  queued.ticket = std::make_shared<TicketState>();
  channel.set_stream(stream);
  if (!core_->verdict.dead()) {
    auto enqueued = without_exceptions("communicator.call", body);
    const bool nothing = !enqueued && !channel.in_op();
    if (nothing &&
        (enqueued.error().code == Code::invalid_argument || enqueued.error().code == Code::unsupported)) {
      return tl::unexpected(std::move(enqueued).error());  // a mistake of the caller, which harms nobody
    }
    if (!enqueued) core_->die(std::move(enqueued).error());
  }
  if (core_->verdict.dead()) {
    // [protocol A.5] Nothing is sealed any more, and the device poisons the output in the stream's order.
    channel.group().abort();
    if (!channel.in_op()) (void)channel.begin(op, {});
  }
  if (channel.in_op()) {
    auto serial = channel.end(op.dtype, output);
    if (!serial) core_->die(std::move(serial).error());
    if (serial) queued.serial = *serial;
  }
  Ticket ticket = TicketState::ticket_of(queued.ticket);
  if (queued.serial == 0 && !core_->verdict.dead()) {
    watched_->captured = true;
    queued.ticket->complete({});
    queue_->wake();
    return ticket;
  }
  if (op.op != Op::send) ++next_seq_;
  queue_->push(std::move(one));
  return ticket;
}

Result<Ticket> DeviceCommunicator::issue(CollectiveCall call, std::span<std::byte> output, Stream stream) {
  SR_TRY(core_->check_process());
  return without_exceptions("communicator.call", [&]() -> Result<Ticket> {
    const auto order = queue_->order();
    call.seq = next_seq_;
    const OpInfo op{call.seq, call.op, call.redop, call.dtype, call.algorithm, call.root, call.elements, 0};
    return enqueue(op, output, stream, [&] { return executor_.run(call, Deadline::never()); });
  });
}

Result<Ticket> DeviceCommunicator::message(const OpInfo& op, std::span<const OutgoingMove> out,
                                           std::span<const IncomingMove> in, std::span<std::byte> output,
                                           Stream stream) {
  SR_TRY(core_->check_process());
  return without_exceptions("communicator.call", [&]() -> Result<Ticket> {
    const auto order = queue_->order();
    return enqueue(op, output, stream, [&]() -> Result<void> {
      SR_TRY(parts_.channel->begin(op, {}));
      return parts_.channel->exchange(out, in, {}, Deadline::never());
    });
  });
}

Result<Ticket> DeviceCommunicator::send(Tensor data, Rank peer, std::uint32_t tag, Stream stream) {
  SR_TRY(check_tensor(data, "tensor"));
  SR_TRY(check_peer(peer));
  const OpInfo op{0, Op::send, RedOp::none, data.dtype, Algorithm::direct, kNoRoot, data.elements, tag};
  const OutgoingMove move{{peer}, false, 0, static_cast<const std::byte*>(data.data), data.elements, 0, 1.0};
  return message(op, {&move, 1}, {}, {}, stream);
}

Result<Ticket> DeviceCommunicator::recv(Tensor data, Rank peer, std::uint32_t tag, Stream stream) {
  SR_TRY(check_tensor(data, "tensor"));
  SR_TRY(check_peer(peer));
  const OpInfo op{0, Op::send, RedOp::none, data.dtype, Algorithm::direct, kNoRoot, data.elements, tag};
  IncomingMove move;
  move.peer = peer;
  move.dst = static_cast<std::byte*>(data.data);
  move.elements = data.elements;
  return message(op, {}, {&move, 1}, memory_of(data), stream);
}

Result<Ticket> DeviceCommunicator::recv_any(Tensor, std::uint32_t, std::shared_ptr<Rank>, Stream) {
  return fail(Code::unsupported, "communicator.call", "recv_any does not exist for tensors on a device",
              "receive from a rank by its number, or use tensors in host memory");
}

Counters DeviceCommunicator::counters() const {
  std::unique_lock<std::mutex> order;  // an op may be counted meanwhile
  if (!core_->forked()) order = queue_->order();
  const DeviceGroupCounters from = parts_.channel->group().counters();
  Counters out;
  out.ops = watched_->ops.load(std::memory_order_relaxed);
  out.seals = from.seals;
  out.opens = from.opens;
  out.sealed_segments = from.sealed_segments;
  out.opened_segments = from.opened_segments;
  out.sealed_bytes = from.sealed_bytes;
  out.opened_bytes = from.opened_bytes;
  return out;
}

std::string DeviceCommunicator::describe() const {
  const Counters totals = counters();
  std::string ranks;
  for (const Rank global : global_ranks()) ranks += (ranks.empty() ? "" : ",") + std::to_string(global);
  return fmt::format(
      "ranks [{}] suite {} identity \"{}\" device {} \"{}\" ops {} sealed {} bytes in {} operations opened "
      "{} "
      "bytes in {} operations timeout {} ms",
      ranks, to_string(core_->config.suite), core_->identity, parts_.place.device,
      parts_.channel->group().describe(), totals.ops, totals.sealed_bytes, totals.seals, totals.opened_bytes,
      totals.opens, timeout_ns_.load() / 1'000'000);
}

}  // namespace sealring
