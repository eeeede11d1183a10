#include "sealring/study/bench_engine.h"

#include <fmt/format.h>

#include <utility>

#include "sealring/study/bench_values.h"
#include "sealring/study/machine.h"

namespace sealring {
namespace {

std::chrono::milliseconds timeout_of(const BenchSpec& spec) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(spec.timeout_s * 1000));
}

void add_difference(Counters& total, const Counters& after, const Counters& before, unsigned times = 1) {
  total.seals += times * (after.seals - before.seals);
  total.opens += times * (after.opens - before.opens);
  total.sealed_bytes += times * (after.sealed_bytes - before.sealed_bytes);
  total.opened_bytes += times * (after.opened_bytes - before.opened_bytes);
  total.seal_ns += times * (after.seal_ns - before.seal_ns);
  total.open_ns += times * (after.open_ns - before.open_ns);
  total.wire_ns += times * (after.wire_ns - before.wire_ns);
}

/// Issues one operation as the benchmark defines it.
Result<std::vector<Ticket>> issue(Communicator& communicator, const BenchSpec& spec, const BenchCall& call,
                                  Stream stream) {
  const DType dtype = spec.dtype;
  const std::uint64_t width = dtype_bytes(dtype);
  const BenchSize& size = call.size;
  const std::uint64_t own_offset = communicator.rank() * size.count * width;
  std::byte* in = call.in;
  std::byte* out = call.out;
  // In place as nccl-tests has it: the smaller buffer is this rank's piece of the larger one.
  if (call.in_place) {
    in = spec.op == Op::all_gather ? call.out + own_offset : call.out;
    if (spec.op == Op::reduce_scatter) out = call.out + own_offset;
  }
  const Tensor from{in, size.in_elements, dtype}, to{out, size.out_elements, dtype};
  const Reduction reduction{spec.redop, spec.redop == RedOp::premul_sum ? kPremulFactor : 1.0};
  std::vector<Ticket> tickets;
  const auto add = [&](Result<Ticket> ticket) -> Result<void> {
    if (!ticket) return tl::unexpected(std::move(ticket).error());
    tickets.push_back(*std::move(ticket));
    return {};
  };
  switch (spec.op) {
    case Op::all_reduce:
      SR_TRY(add(communicator.all_reduce(from, to, reduction, stream)));
      break;
    case Op::reduce_scatter:
      SR_TRY(add(communicator.reduce_scatter(from, to, reduction, stream)));
      break;
    case Op::all_gather:
      SR_TRY(add(communicator.all_gather(from, to, stream)));
      break;
    case Op::broadcast:
      SR_TRY(add(communicator.broadcast(to, spec.root, stream)));
      break;
    case Op::reduce:
      SR_TRY(add(communicator.reduce(from, to, reduction, spec.root, stream)));
      break;
    case Op::all_to_all:
      SR_TRY(add(communicator.all_to_all(from, to, stream)));
      break;
    case Op::send: {
      const std::uint32_t ranks = communicator.size();
      const auto right = static_cast<Rank>((communicator.rank() + 1u) % ranks);
      const auto left = static_cast<Rank>((communicator.rank() + ranks - 1u) % ranks);
      // Between GPUs a send may wait for its receive, and both stand in one stream: neighbours take turns.
      const bool receive_first = communicator.rank() % 2 == 1;
      if (receive_first) SR_TRY(add(communicator.recv(to, left, 0, stream)));
      SR_TRY(add(communicator.send(from, right, 0, stream)));
      if (!receive_first) SR_TRY(add(communicator.recv(to, left, 0, stream)));
      break;
    }
    default:
      return fail(Code::unsupported, "bench.issue", fmt::format("no benchmark of {}", to_string(spec.op)));
  }
  return tickets;
}

}  // namespace

Result<std::unique_ptr<SealringEngine>> SealringEngine::make(const BenchSpec& spec,
                                                             const BenchCase& bench_case,
                                                             std::size_t case_index, const RankPlace& place,
                                                             const JobKey& key, DeviceRuntime* runtime) {
  CommConfig config;
  config.rank = place.rank;
  config.world = spec.ranks;
  config.suite = bench_case.suite;
  config.algorithm = bench_case.algorithm;
  config.segment_bytes = spec.segment_bytes;
  config.lanes = static_cast<Lane>(spec.lanes);
  config.workers = spec.workers;
  config.node_ranks = spec.node_ranks;
  config.timeout = timeout_of(spec);
  config.connect_timeout = timeout_of(spec);
  Identity identity =
      suite_is_study(bench_case.suite) ? make_study_identity(key) : make_job_key_identity(key);
  SR_TRY(auto transport, place.make_transport());
  auto engine = std::make_unique<SealringEngine>();
  engine->spec = spec;
  SR_TRY(engine->session, Session::connect(config, std::move(identity), std::move(transport), place.store,
                                           fmt::format("{}/{}", place.prefix, case_index)));
  engine->world = engine->communicator = engine->session->world();
  if (runtime == nullptr) return engine;
  std::vector<Rank> members(spec.ranks);
  for (Rank rank = 0; rank < spec.ranks; ++rank) members[rank] = rank;
  SR_TRY(const Environment environment, Environment::read());
  DevicePlace on;
  on.device = runtime->device();
  on.wire = spec.ranks_per_gpu != 0 ? DeviceWireKind::local : DeviceWireKind::ipc;
  on.columns = bench_case.columns;
  on.fallback = WireFallback::none;  // what is measured is what was asked for
  on = on.under(environment);
  SR_TRY(engine->communicator,
         engine->session->split_on_device(members, on, *place.store,
                                          fmt::format("{}/{}/gpu", place.prefix, case_index)));
  engine->runtime = runtime;
  engine->gpu.emplace(*runtime, spec.graph);
  return engine;
}

SealringEngine::~SealringEngine() {
  gpu.reset();  // its graph uses the communicator's memory
}

Result<std::uint64_t> GpuSamples::run(const BenchCall& call, unsigned calls,
                                      const std::function<Result<void>()>& meet,
                                      const std::function<Result<void>()>& once) {
  const auto all = [&]() -> Result<void> {
    for (unsigned i = 0; i < calls; ++i) SR_TRY(once());
    return {};
  };
  const bool same = replay_ && captured_.in == call.in && captured_.out == call.out &&
                    captured_.in_place == call.in_place && captured_calls_ == calls &&
                    captured_.size.size_bytes == call.size.size_bytes;
  if (graph_ && !same) {
    SR_TRY(once());  // whatever is allocated once is allocated outside of the capture
    SR_TRY(runtime_.begin_capture());
    const auto enqueued = all();
    auto captured = runtime_.end_capture();
    SR_TRY(enqueued);
    SR_TRY(replay_, std::move(captured));
    captured_ = call;
    captured_calls_ = calls;
  }
  SR_TRY(meet());
  SR_TRY(runtime_.start_clock());
  SR_TRY(graph_ ? replay_->launch() : all());
  SR_TRY(runtime_.stop_clock());
  SR_TRY(const double us, runtime_.elapsed_us());
  return static_cast<std::uint64_t>(us * 1e3);
}

Result<void> SealringEngine::wait(Result<Ticket> ticket) {
  if (!ticket) return tl::unexpected(std::move(ticket).error());
  return ticket->wait(Deadline::in(timeout_of(spec)));
}

Result<std::uint64_t> SealringEngine::run(const BenchCall& call, unsigned calls) {
  SR_TRY(wait(world->barrier()));
  if (gpu) return run_on_gpu(call, calls);
  const Counters before = communicator->counters();
  const std::uint64_t cpu_before = process_cpu_ns();
  const std::uint64_t start = now_ns();
  for (unsigned i = 0; i < calls; ++i) {
    SR_TRY(const std::vector<Ticket> tickets, issue(*communicator, spec, call, {}));
    for (const Ticket& ticket : tickets) SR_TRY(ticket.wait(Deadline::in(timeout_of(spec))));
  }
  const std::uint64_t elapsed_ns = now_ns() - start;
  cpu_ns_ += process_cpu_ns() - cpu_before;
  add_difference(spent_, communicator->counters(), before);
  return elapsed_ns;
}

Result<std::uint64_t> SealringEngine::run_on_gpu(const BenchCall& call, unsigned calls) {
  const std::uint64_t cpu_before = process_cpu_ns();
  std::vector<Ticket> tickets;
  bool counted = false;
  const Stream stream = runtime->stream();
  const auto meet = [&]() -> Result<void> {
    SR_TRY(Ticket ticket, communicator->barrier(stream));
    tickets.push_back(std::move(ticket));
    return {};
  };
  const auto once = [&]() -> Result<void> {
    const Counters before = counted ? Counters{} : communicator->counters();
    SR_TRY(tickets, issue(*communicator, spec, call, stream));
    if (!std::exchange(counted, true)) {
      one_on_gpu = {};
      add_difference(one_on_gpu, communicator->counters(), before);
    }
    return {};
  };
  SR_TRY(const std::uint64_t elapsed_ns, gpu->run(call, calls, meet, once));
  for (const Ticket& ticket : tickets) SR_TRY(ticket.wait(Deadline::in(timeout_of(spec))));
  cpu_ns_ += process_cpu_ns() - cpu_before;
  add_difference(spent_, one_on_gpu, {}, calls);
  return elapsed_ns;
}

Result<std::vector<double>> SealringEngine::gather(const std::vector<double>& values) {
  std::vector<double> mine = values, all(world->rank() == 0 ? values.size() * spec.ranks : 0);
  SR_TRY(
      wait(world->gather({mine.data(), mine.size(), DType::f64}, {all.data(), all.size(), DType::f64}, 0)));
  return all;
}

Result<double> SealringEngine::from_rank_0(double value) {
  SR_TRY(wait(world->broadcast({&value, 1, DType::f64}, 0)));
  return value;
}

}  // namespace sealring
