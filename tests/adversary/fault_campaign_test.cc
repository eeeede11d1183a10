// Claim: whatever is done to the bytes on the wire, a rank gets the exact sum or an error, never a wrong sum.
// How: every fault kind x step x rank x algorithm, seeded, on loopback sessions of three ranks; exact sums,
// poisoned
//      outputs, dead sessions and the time to them are asserted.
#include <atomic>
#include <cmath>

#include "sealring/base/deadline.h"
#include "tests/collective/local_job.h"

namespace sealring::testing {
namespace {

//   rank 0 ---- rank 1      the struck rank's outgoing bytes are harmed in one step of the third of five
//   operations
//       \      /
//        rank 2
constexpr std::uint16_t kWorld = 3;
constexpr int kOps = 5, kStruckOp = 2;
constexpr std::uint64_t kElements = 3000;
constexpr auto kOpTimeout = std::chrono::milliseconds(1200);

/// The faults that leave the receiver waiting end at the operation's deadline; all others at the first bad
/// tag.
bool waits_for_deadline(FaultKind kind) {
  return kind == FaultKind::drop || kind == FaultKind::truncate || kind == FaultKind::stall;
}

struct Outcome {
  std::vector<Result<void>> results;
  std::vector<std::vector<float>> outputs;
};

std::vector<float> expected_sum(int op) {
  std::vector<float> out(kElements);
  for (std::uint64_t i = 0; i < kElements; ++i) {
    int sum = 0;
    for (Rank rank = 0; rank < kWorld; ++rank) sum += value_at(rank, i + static_cast<std::uint64_t>(op));
    out[i] = static_cast<float>(sum);
  }
  return out;
}

Outcome run_ops(Communicator& comm, Rank rank) {
  Outcome outcome;
  for (int op = 0; op < kOps; ++op) {
    std::vector<float> data(kElements);
    for (std::uint64_t i = 0; i < kElements; ++i) {
      data[i] = static_cast<float>(value_at(rank, i + static_cast<std::uint64_t>(op)));
    }
    const Tensor tensor{data.data(), kElements, DType::f32};
    auto ticket = comm.all_reduce(tensor, tensor, {});
    if (ticket) {
      outcome.results.push_back(ticket->wait(Deadline::in(std::chrono::minutes(1))));
      outcome.outputs.push_back(std::move(data));
    } else {
      outcome.results.push_back(tl::unexpected(ticket.error()));
      outcome.outputs.emplace_back();  // refused at once: the tensor was not taken
    }
  }
  return outcome;
}

void check_outcome(const Outcome& outcome) {
  for (int op = 0; op < kOps; ++op) {
    const auto& result = outcome.results[static_cast<std::size_t>(op)];
    const auto& output = outcome.outputs[static_cast<std::size_t>(op)];
    if (result) {
      ASSERT_EQ(output, expected_sum(op)) << "a wrong sum was returned as right in operation " << op;
      continue;
    }
    for (const float value : output)
      ASSERT_TRUE(std::isnan(value)) << "an output of a failed operation is not poisoned";
    for (int later = op; later < kOps; ++later) {
      ASSERT_FALSE(outcome.results[static_cast<std::size_t>(later)])
          << "an operation succeeded after a failure";
    }
  }
}

struct Strike {
  Algorithm algorithm;
  Rank rank;
  std::uint32_t step;
  std::uint32_t steps;
};

void strike(FaultKind kind, const Strike& where, std::uint64_t seed) {
  SCOPED_TRACE(std::string(to_string(kind)) + " " + std::string(to_string(where.algorithm)) + " rank " +
               std::to_string(where.rank) + " step " + std::to_string(where.step) + " seed " +
               std::to_string(seed));
  auto struck = std::make_shared<std::atomic<std::uint32_t>>(0);
  JobOptions options;
  options.world = kWorld;
  options.config.algorithm = where.algorithm;
  options.config.segment_bytes = 1024;
  options.config.timeout = kOpTimeout * slow_factor();
  options.wrap = [&](Rank rank, std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
    if (rank != where.rank) return inner;
    Fault fault;
    fault.kind = kind;
    fault.op_index = static_cast<std::uint64_t>(kStruckOp) * where.steps + where.step;
    fault.piece_index = static_cast<std::uint32_t>(seed % 2);
    fault.seed = seed;
    return make_faulty_transport(std::move(inner), {fault}, struck);
  };
  LocalJob job(std::move(options));
  ASSERT_TRUE(job.connected()) << job.first_error();
  std::vector<Outcome> outcomes(kWorld);
  const auto start = Clock::now();
  job.each([&](Rank rank) { outcomes[rank] = run_ops(job.comm(rank), rank); });
  const auto took = Clock::now() - start;
  EXPECT_EQ(struck->load(), 1u) << "the fault did not strike";
  int failed_ranks = 0;
  for (const Outcome& outcome : outcomes) {
    check_outcome(outcome);
    failed_ranks += outcome.results.back() ? 0 : 1;
    // A rank that strikes in an operation has finished the one before, for which all others have finished the
    // one before that; in between, the death of the session may overtake them.
    for (int op = 0; op < kStruckOp - 1; ++op) EXPECT_TRUE(outcome.results[static_cast<std::size_t>(op)]);
  }
  EXPECT_TRUE(outcomes[where.rank].results[kStruckOp - 1]);
  EXPECT_EQ(failed_ranks, kWorld) << "the session must be dead on every reachable rank";
  const auto promised =
      std::chrono::seconds(2) * slow_factor() +
      (waits_for_deadline(kind) ? kOpTimeout * slow_factor() : std::chrono::milliseconds(0));
  EXPECT_LT(took, promised + std::chrono::milliseconds(500) * slow_factor());
}

/// n = 3: ring has 4 steps, one-hop 2, one-shot 1.
void campaign(FaultKind kind) {
  std::uint64_t seed = 1000 + static_cast<std::uint64_t>(kind) * 100;
  for (const auto& [algorithm, steps] :
       {std::pair{Algorithm::ring, 4u}, {Algorithm::one_hop, 2u}, {Algorithm::one_shot, 1u}}) {
    for (Rank rank = 0; rank < kWorld; ++rank) {
      for (std::uint32_t step = 0; step < steps; ++step) strike(kind, {algorithm, rank, step, steps}, seed++);
    }
  }
}

class FaultCampaign : public ::testing::TestWithParam<FaultKind> {};
TEST_P(FaultCampaign, OneStrike) {
  strike(GetParam(), {Algorithm::ring, 1, 1, 4}, 7);
  strike(GetParam(), {Algorithm::one_hop, 2, 1, 2}, 8);
  strike(GetParam(), {Algorithm::one_shot, 0, 0, 1}, 9);
}
class SlowFaultCampaign : public ::testing::TestWithParam<FaultKind> {};
TEST_P(SlowFaultCampaign, EveryStepAndRank) { campaign(GetParam()); }

const auto kNamed = [](const ::testing::TestParamInfo<FaultKind>& tested) {
  std::string name(to_string(tested.param));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
};
const auto kKinds = ::testing::ValuesIn(all_fault_kinds().begin(), all_fault_kinds().end());
INSTANTIATE_TEST_SUITE_P(Kinds, FaultCampaign, kKinds, kNamed);
INSTANTIATE_TEST_SUITE_P(Slow, SlowFaultCampaign, kKinds, kNamed);

}  // namespace
}  // namespace sealring::testing
