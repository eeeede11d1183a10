#include "sealring/collective/executor.h"

#include <utility>

#include "sealring/wire/record.h"

namespace sealring {

/// Where the buffers of a schedule lie in one call.
struct Executor::Memory {
  const std::byte* in;
  std::byte* out;
  std::byte* scratch;
  std::uint32_t element_bytes;

  const std::byte* read(const Range& range) const {
    const std::byte* base = range.buffer == Buffer::input    ? in
                            : range.buffer == Buffer::output ? out
                                                             : scratch;
    return base == nullptr ? nullptr : base + range.offset * element_bytes;
  }
  std::byte* write(const Range& range) const {
    SR_CHECK(range.buffer != Buffer::input || in == out || range.elements == 0,
             "a schedule writes its input");
    std::byte* base = range.buffer == Buffer::scratch ? scratch : out;
    return base == nullptr ? nullptr : base + range.offset * element_bytes;
  }
};

Executor::Plan Executor::make_plan(const CollectiveCall& call) const {
  const std::uint16_t world = exchange_.size();
  ScheduleRequest request{call.op,      call.algorithm, exchange_.rank(),
                          world,        call.elements,  call.root == kNoRoot ? Rank{0} : call.root,
                          sender_keys_, node_ranks_};
  Plan plan;
  plan.schedule = make_schedule(request);
  plan.totals.to.resize(world);
  plan.totals.from.resize(world);
  plan.totals.sender.resize(world);
  const std::uint32_t element_bytes = dtype_bytes(call.dtype);
  const auto segments_of = [&](const Range& range) -> std::uint64_t {
    return RecordLayout::of(range.elements * element_bytes, exchange_.segment_bytes()).segments();
  };
  const auto add = [&](OpTotals::Key& key, const Range& range) {
    key.segments += segments_of(range);
    key.bytes += range.elements * element_bytes;
  };
  for (const Step& step : plan.schedule.steps) {
    for (const Move& move : step.sends) {
      if (!move.multicast) add(plan.totals.to[move.peer], move.data);
    }
    for (const Move& move : step.recvs) {
      if (!move.multicast) add(plan.totals.from[move.peer], move.data);
    }
  }
  // [protocol A.3] receivers advance sender keys too, also for segments that they do not receive: so every
  // rank walks every rank's schedule. A step has at most one multicast record a rank.
  std::vector<std::vector<std::uint64_t>> first(world);  // [rank][step]
  for (Rank rank = 0; rank < world; ++rank) {
    request.rank = rank;
    const Schedule schedule = rank == exchange_.rank() ? plan.schedule : make_schedule(request);
    for (const Step& step : schedule.steps) {
      first[rank].push_back(plan.totals.sender[rank].segments);
      for (const Move& move : step.sends) {
        if (!move.multicast) continue;
        add(plan.totals.sender[rank], move.data);
        break;
      }
    }
  }
  for (std::size_t step = 0; step < plan.schedule.steps.size(); ++step) {
    auto& positions = plan.positions.emplace_back();
    for (const Move& move : plan.schedule.steps[step].recvs) {
      positions.push_back(move.multicast ? first[move.peer].at(step) : 0);
    }
  }
  return plan;
}

const Executor::Plan& Executor::plan_for(const CollectiveCall& call) {
  const PlanKey key{call.op, call.algorithm, call.elements, call.root, dtype_bytes(call.dtype)};
  if (const auto found = plans_.find(key); found != plans_.end()) return *found->second;
  if (plans_.size() >= kPlansMax) {
    plans_.erase(order_.front());
    order_.pop_front();
  }
  order_.push_back(key);
  return *plans_.emplace(key, std::make_unique<Plan>(make_plan(call))).first->second;
}

Result<void> Executor::run_copy(const CollectiveCall& call, const Copy& copy, const Memory& memory) {
  const bool scales = copy.scale && call.redop == RedOp::premul_sum;
  return exchange_.copy(call.dtype, memory.read(copy.from), memory.write(copy.to), copy.from.elements,
                        scales ? call.factor : 1.0);
}

Result<void> Executor::run_step(const CollectiveCall& call, const Plan& plan, std::size_t index,
                                const Memory& memory, Deadline deadline) {
  const Step& step = plan.schedule.steps[index];
  const bool premul = call.redop == RedOp::premul_sum;
  std::vector<OutgoingMove> out;
  for (std::size_t i = 0; i < step.sends.size(); ++i) {
    const Move& move = step.sends[i];
    if (move.multicast && i > 0 && step.sends[i - 1].multicast) {  // the same record, one more peer
      out.back().peers.push_back(move.peer);
      continue;
    }
    out.push_back({{move.peer},
                   move.multicast,
                   static_cast<std::uint16_t>(index),
                   memory.read(move.data),
                   move.data.elements,
                   move.element_offset,
                   move.raw && premul ? call.factor : 1.0});
  }
  std::vector<IncomingMove> in;
  for (std::size_t i = 0; i < step.recvs.size(); ++i) {
    const Move& move = step.recvs[i];
    IncomingMove incoming;
    incoming.peer = move.peer;
    incoming.multicast = move.multicast;
    incoming.step = static_cast<std::uint16_t>(index);
    incoming.dst = memory.write(move.data);
    incoming.elements = move.data.elements;
    incoming.element_offset = move.element_offset;
    if (step.combine != Combine::replace) {
      incoming.local = memory.read(move.local);
      incoming.local_scale = move.raw && premul ? call.factor : 1.0;
      incoming.divisor = move.last && call.redop == RedOp::avg ? exchange_.size() : 1;
    }
    incoming.position = plan.positions[index][i];
    in.push_back(incoming);
  }
  return exchange_.exchange(out, in, {step.combine == Combine::ordered, step.lockstep}, deadline);
}

Result<void> Executor::run(const CollectiveCall& call, Deadline deadline) {
  const Plan& plan = plan_for(call);
  const OpInfo op{call.seq, call.op, call.redop, call.dtype, call.algorithm, call.root, call.elements, 0};
  SR_TRY(exchange_.begin(op, plan.totals));
  const std::uint64_t scratch_bytes = plan.schedule.scratch_elements * dtype_bytes(call.dtype);
  SR_TRY(std::byte* const scratch, exchange_.scratch(scratch_bytes));
  const Memory memory{call.in, call.out, scratch, dtype_bytes(call.dtype)};
  for (const Copy& copy : plan.schedule.before) SR_TRY(run_copy(call, copy, memory));
  for (std::size_t step = 0; step < plan.schedule.steps.size(); ++step) {
    SR_TRY(run_step(call, plan, step, memory, deadline));
  }
  return {};
}

}  // namespace sealring
