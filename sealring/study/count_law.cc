#include "sealring/study/count_law.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "sealring/collective/communicator.h"
#include "sealring/collective/schedule.h"
#include "sealring/study/bench_values.h"

namespace sealring {
namespace {

constexpr auto kTimeout = std::chrono::seconds(60);

/// `ranks` threads, each with a session of its own made by `transport_of(rank)`; gives the first error.
template <class TransportOf, class Body>
Result<void> with_sessions(const CommConfig& shape, TransportOf transport_of, Body body) {
  const JobKey key = JobKey::generate();
  const std::shared_ptr<Store> store = make_memory_store();
  std::vector<Result<void>> results(shape.world);
  std::vector<std::thread> threads;
  const auto run = [&](Rank rank) -> Result<void> {
    CommConfig config = shape;
    config.rank = rank;
    config.timeout = kTimeout;
    config.connect_timeout = kTimeout;
    SR_TRY(auto transport, transport_of(rank));
    SR_TRY(auto session,
           Session::connect(config, make_job_key_identity(key), std::move(transport), store, "study"));
    SR_TRY(body(rank, *session));
    return session->close(Deadline::in(kTimeout));
  };
  for (Rank rank = 0; rank < shape.world; ++rank) {
    threads.emplace_back([&, rank] { results[rank] = run(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  for (Result<void>& result : results) {
    if (!result) return std::move(result);
  }
  return {};
}

/// One rank's all-reduces: sums are checked, the last counters kept.
Result<Counters> reduce_and_count(Session& session, std::uint32_t all_reduces, std::uint64_t elements) {
  const std::shared_ptr<Communicator> world = session.world();
  const ValueSpec values{1, world->size(), DType::f32, RedOp::sum};
  Bytes data(elements * 4);
  for (std::uint32_t i = 0; i < all_reduces; ++i) {
    fill_input(values, world->rank(), i, data);
    const Tensor tensor{data.data(), elements, DType::f32};
    SR_TRY(const Ticket ticket, world->all_reduce(tensor, tensor, Reduction{}));
    SR_TRY(ticket.wait(Deadline::in(kTimeout)));
    if (count_wrong_reduced(values, i, data) != 0)
      return fail(Code::results, "study.count", "an all-reduce gave a wrong sum");
  }
  return world->counters();
}

}  // namespace

Result<CountRecord> count_operations(std::uint16_t ranks, std::uint32_t all_reduces,
                                     const std::string& algorithm, std::uint64_t elements) {
  CommConfig shape;
  shape.world = ranks;
  shape.algorithm = parse_algorithm(algorithm);
  if (!shape.algorithm) return fail(Code::invalid_argument, "study.count", "unknown algorithm " + algorithm);
  const auto hub = LoopbackHub::make(ranks);
  std::vector<Counters> counters(ranks);
  SR_TRY(with_sessions(
      shape, [&](Rank rank) -> Result<std::unique_ptr<Transport>> { return hub->transport(rank); },
      [&](Rank rank, Session& session) -> Result<void> {
        SR_TRY(counters[rank], reduce_and_count(session, all_reduces, elements));
        return {};
      }));
  CountRecord out;
  out.ranks = ranks;
  out.all_reduces = all_reduces;
  out.suite = std::string(to_string(shape.suite));
  out.algorithm = algorithm;
  for (Rank rank = 0; rank < ranks; ++rank) {
    const ScheduleRequest request{Op::all_reduce,   *shape.algorithm, rank, ranks, elements, 0,
                                  shape.sender_keys};
    const ScheduleCost cost = cost_of(make_schedule(request), 4, shape.segment_bytes);
    const std::uint64_t counted = counters[rank].seals + counters[rank].opens;
    out.counted_cluster += counted;
    out.counted_per_rank = std::max(out.counted_per_rank, counted);
    out.predicted_per_rank = std::max(out.predicted_per_rank, all_reduces * (cost.seals + cost.opens));
    out.sealed_bytes_per_rank = std::max(out.sealed_bytes_per_rank, counters[rank].sealed_bytes);
    out.predicted_sealed_bytes = std::max(out.predicted_sealed_bytes, all_reduces * cost.sealed_bytes);
  }
  return out;
}

Result<std::vector<CountRecord>> count_law() {
  constexpr std::uint64_t kElements = 840 * 8;  // whole chunks for every world below
  std::vector<CountRecord> out;
  for (const char* algorithm : {"ring", "one-hop", "one-shot"}) {
    for (const std::uint16_t ranks :
         {std::uint16_t{2}, std::uint16_t{3}, std::uint16_t{4}, std::uint16_t{8}}) {
      SR_TRY(CountRecord record, count_operations(ranks, 5, algorithm, kElements));
      out.push_back(record);
    }
  }
  SR_TRY(CountRecord study, count_operations(4, 142, "ring", kElements));
  out.push_back(study);
  return out;
}

Result<std::vector<SetupRecord>> measure_setups(std::uint32_t repetitions) {
  std::vector<SetupRecord> out;
  for (const std::uint16_t ranks : {std::uint16_t{2}, std::uint16_t{3}, std::uint16_t{4}, std::uint16_t{8}}) {
    SetupRecord record;
    record.ranks = ranks;
    for (std::uint32_t i = 0; i < repetitions; ++i) {
      CommConfig shape;
      shape.world = ranks;
      std::vector<std::uint64_t> setup_ns(ranks);
      SR_TRY(with_sessions(
          shape,
          [](Rank) {
            TcpConfig config;
            config.interface_name = "lo";
            return make_tcp_transport(config);
          },
          [&](Rank rank, Session& session) -> Result<void> {
            setup_ns[rank] = session.setup_ns();
            return {};
          }));
      record.setup_ms.push_back(static_cast<double>(*std::max_element(setup_ns.begin(), setup_ns.end())) /
                                1e6);
    }
    out.push_back(std::move(record));
  }
  return out;
}

}  // namespace sealring
