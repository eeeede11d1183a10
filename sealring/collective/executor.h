// Executor: walks a schedule, step by step, over an Exchange: the channel on CPUs, the device channel on a
// GPU. It runs every schedule there is.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "sealring/channel/exchange.h"
#include "sealring/collective/config.h"
#include "sealring/collective/schedule.h"

namespace sealring {

/// One collective as a rank called it. Memory is the caller's, valid until run() returns.
struct CollectiveCall {
  Op op = Op::barrier;
  Algorithm algorithm = Algorithm::direct;
  RedOp redop = RedOp::none;
  DType dtype = DType::u8;
  Rank root = kNoRoot;         ///< group rank
  std::uint64_t elements = 0;  ///< as ScheduleRequest::elements
  std::uint64_t seq = 0;
  double factor = 1.0;  ///< premul_sum
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
};

/// Keeps the schedules it has made. Used by the one thread of a communicator.
class Executor {
 public:
  /// `node_ranks`: as ScheduleRequest, of the exchange's group.
  Executor(Exchange& exchange, bool sender_keys, std::uint16_t node_ranks)
      : exchange_(exchange), sender_keys_(sender_keys), node_ranks_(node_ranks) {}
  /// Errors: those of the exchange. On an error the output is undefined: the caller poisons it.
  Result<void> run(const CollectiveCall& call, Deadline deadline);

 private:
  /// A schedule with what follows from it: the totals under every key, and where multicast records begin.
  struct Plan {
    Schedule schedule;
    OpTotals totals;
    /// [step][receive]: position of a multicast record among its sender's.
    std::vector<std::vector<std::uint64_t>> positions;
  };
  using PlanKey = std::tuple<Op, Algorithm, std::uint64_t, Rank, std::uint32_t>;
  static constexpr std::size_t kPlansMax = 256;

  struct Memory;

  const Plan& plan_for(const CollectiveCall& call);
  Plan make_plan(const CollectiveCall& call) const;
  Result<void> run_copy(const CollectiveCall& call, const Copy& copy, const Memory& memory);
  Result<void> run_step(const CollectiveCall& call, const Plan& plan, std::size_t step, const Memory& memory,
                        Deadline deadline);

  Exchange& exchange_;
  bool sender_keys_;
  std::uint16_t node_ranks_;
  std::map<PlanKey, std::unique_ptr<Plan>> plans_;
  std::list<PlanKey> order_;  ///< oldest first
};

}  // namespace sealring
