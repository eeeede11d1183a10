#include "sealring/study/bench_engine.h"

#include <fmt/format.h>

#include "sealring/study/bench_values.h"
#include "sealring/study/machine.h"

namespace sealring {
namespace {

std::chrono::milliseconds timeout_of(const BenchSpec& spec) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(spec.timeout_s * 1000));
}

void add_difference(Counters& total, const Counters& after, const Counters& before) {
  total.seals += after.seals - before.seals;
  total.opens += after.opens - before.opens;
  total.sealed_bytes += after.sealed_bytes - before.sealed_bytes;
  total.opened_bytes += after.opened_bytes - before.opened_bytes;
  total.seal_ns += after.seal_ns - before.seal_ns;
  total.open_ns += after.open_ns - before.open_ns;
  total.wire_ns += after.wire_ns - before.wire_ns;
}

/// Issues one operation as the benchmark defines it.
Result<std::vector<Ticket>> issue(Communicator& communicator, const BenchSpec& spec, const BenchCall& call) {
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
      SR_TRY(add(communicator.all_reduce(from, to, reduction)));
      break;
    case Op::reduce_scatter:
      SR_TRY(add(communicator.reduce_scatter(from, to, reduction)));
      break;
    case Op::all_gather:
      SR_TRY(add(communicator.all_gather(from, to)));
      break;
    case Op::broadcast:
      SR_TRY(add(communicator.broadcast(to, spec.root)));
      break;
    case Op::reduce:
      SR_TRY(add(communicator.reduce(from, to, reduction, spec.root)));
      break;
    case Op::all_to_all:
      SR_TRY(add(communicator.all_to_all(from, to)));
      break;
    case Op::send: {
      const std::uint32_t ranks = communicator.size();
      const auto right = static_cast<Rank>((communicator.rank() + 1u) % ranks);
      const auto left = static_cast<Rank>((communicator.rank() + ranks - 1u) % ranks);
      SR_TRY(add(communicator.send(from, right, 0)));
      SR_TRY(add(communicator.recv(to, left, 0)));
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
                                                             const JobKey& key) {
  CommConfig config;
  config.rank = place.rank;
  config.world = spec.ranks;
  config.suite = bench_case.suite;
  config.algorithm = bench_case.algorithm;
  config.segment_bytes = spec.segment_bytes;
  config.lanes = static_cast<Lane>(spec.lanes);
  config.workers = spec.workers;
  config.timeout = timeout_of(spec);
  config.connect_timeout = timeout_of(spec);
  Identity identity =
      suite_is_study(bench_case.suite) ? make_study_identity(key) : make_job_key_identity(key);
  SR_TRY(auto transport, place.make_transport());
  auto engine = std::make_unique<SealringEngine>();
  engine->spec = spec;
  SR_TRY(engine->session, Session::connect(config, std::move(identity), std::move(transport), place.store,
                                           fmt::format("{}/{}", place.prefix, case_index)));
  engine->communicator = engine->session->world();
  return engine;
}

Result<void> SealringEngine::wait(Result<Ticket> ticket) {
  if (!ticket) return tl::unexpected(std::move(ticket).error());
  return ticket->wait(Deadline::in(timeout_of(spec)));
}

Result<std::uint64_t> SealringEngine::run(const BenchCall& call, unsigned calls) {
  SR_TRY(wait(communicator->barrier()));
  const Counters before = communicator->counters();
  const std::uint64_t cpu_before = process_cpu_ns();
  const std::uint64_t start = now_ns();
  for (unsigned i = 0; i < calls; ++i) {
    SR_TRY(const std::vector<Ticket> tickets, issue(*communicator, spec, call));
    for (const Ticket& ticket : tickets) SR_TRY(ticket.wait(Deadline::in(timeout_of(spec))));
  }
  const std::uint64_t elapsed_ns = now_ns() - start;
  cpu_ns_ += process_cpu_ns() - cpu_before;
  add_difference(spent_, communicator->counters(), before);
  return elapsed_ns;
}

Result<std::vector<double>> SealringEngine::gather(const std::vector<double>& values) {
  std::vector<double> mine = values, all(communicator->rank() == 0 ? values.size() * spec.ranks : 0);
  SR_TRY(wait(
      communicator->gather({mine.data(), mine.size(), DType::f64}, {all.data(), all.size(), DType::f64}, 0)));
  return all;
}

Result<double> SealringEngine::from_rank_0(double value) {
  SR_TRY(wait(communicator->broadcast({&value, 1, DType::f64}, 0)));
  return value;
}

}  // namespace sealring
