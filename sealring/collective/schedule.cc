#include "sealring/collective/schedule.h"

#include <algorithm>

#include "sealring/base/result.h"
#include "sealring/collective/generators.h"
#include "sealring/wire/record.h"

namespace sealring {
namespace {

// Above this world size an owner would hear from too many peers at once for large pieces; ring spreads the
// load.
constexpr std::uint16_t kOneHopWorldMax = 16;
// Up to this size the number of rounds is what costs, whatever the world.
constexpr std::uint64_t kOneHopBytesMax = 1u << 20;

// Whether there are two levels: else two_level is one_hop.
bool has_levels(std::uint16_t world, std::uint16_t node_ranks) {
  return node_ranks >= 2 && node_ranks < world && world % node_ranks == 0;
}

// Whether two_level beats one_hop by the bytes and the steps that generators.h counts.
bool two_levels_pay(Op op, std::uint16_t world, std::uint64_t bytes, std::uint16_t node_ranks,
                    std::uint64_t step_bytes) {
  if (!algorithm_supported(op, Algorithm::two_level) || !has_levels(world, node_ranks)) return false;
  const std::uint64_t nodes = world / node_ranks;
  if (std::max<std::uint64_t>(nodes, node_ranks) > kOneHopWorldMax) return false;
  const std::uint64_t kept_off = bytes / world * (nodes - 1) * (node_ranks - 1);
  switch (op) {
    case Op::all_reduce:  // both ways
      return kept_off > (nodes == 2 ? 1 : 2) * step_bytes / 2;
    case Op::reduce_scatter:
      return kept_off > nodes * step_bytes;
    default:
      return kept_off > (nodes - 1) * step_bytes;
  }
}

bool reduces(Op op) { return op == Op::all_reduce || op == Op::reduce_scatter || op == Op::reduce; }

void generate(const ScheduleRequest& request, Schedule& schedule) {
  using namespace generators;
  const bool ring = request.algorithm == Algorithm::ring;
  const bool levels =
      request.algorithm == Algorithm::two_level && has_levels(request.world, request.node_ranks);
  switch (request.op) {
    case Op::all_reduce:
      if (request.algorithm == Algorithm::one_shot) return one_shot_all_reduce(request, schedule);
      if (levels) return two_level_all_reduce(request, schedule);
      return ring ? ring_all_reduce(request, schedule) : one_hop_all_reduce(request, schedule);
    case Op::reduce_scatter:
      if (levels) return two_level_reduce_scatter(request, schedule);
      return ring ? ring_reduce_scatter(request, schedule) : one_hop_reduce_scatter(request, schedule);
    case Op::all_gather:
      if (levels) return two_level_all_gather(request, schedule);
      return ring ? ring_all_gather(request, schedule) : one_hop_all_gather(request, schedule);
    case Op::broadcast:
      return direct_broadcast(request, schedule);
    case Op::reduce:
      return direct_reduce(request, schedule);
    case Op::gather:
      return direct_gather(request, schedule);
    case Op::scatter:
      return direct_scatter(request, schedule);
    case Op::all_to_all:
      return direct_all_to_all(request, schedule);
    case Op::barrier:
      return direct_barrier(request, schedule);
    case Op::send:
      break;
  }
  SR_CHECK(false, "no schedule for op", static_cast<int>(request.op));
}

}  // namespace

Schedule make_schedule(const ScheduleRequest& request) {
  SR_CHECK(request.world >= 1 && request.rank < request.world, "rank", request.rank, "world", request.world);
  SR_CHECK(request.root < request.world, "root", request.root, "world", request.world);
  SR_CHECK(algorithm_supported(request.op, request.algorithm), to_string(request.op),
           to_string(request.algorithm));
  SR_CHECK(request.node_ranks == 0 || request.world % request.node_ranks == 0, "node_ranks",
           request.node_ranks, "world", request.world);
  Schedule schedule;
  schedule.rank = request.rank;
  schedule.world = request.world;
  schedule.elements = request.elements;
  schedule.algorithm = request.algorithm;
  if (request.world > 1) {
    generate(request, schedule);
  } else if (request.op != Op::barrier) {
    const Range from{Buffer::input, 0, request.elements};
    const Range to{Buffer::output, 0, request.elements};
    schedule.before.push_back(Copy{from, to, reduces(request.op)});
  }
  return schedule;
}

bool algorithm_supported(Op op, Algorithm algorithm) {
  switch (op) {
    case Op::all_reduce:
      if (algorithm == Algorithm::one_shot) return true;
      [[fallthrough]];
    case Op::reduce_scatter:
    case Op::all_gather:
      return algorithm == Algorithm::ring || algorithm == Algorithm::one_hop ||
             algorithm == Algorithm::two_level;
    case Op::send:
      return false;
    default:
      return algorithm == Algorithm::direct;
  }
}

Algorithm default_algorithm(Op op, std::uint16_t world, std::uint64_t bytes, std::uint16_t node_ranks) {
  if (two_levels_pay(op, world, bytes, node_ranks, kStepBytes)) return Algorithm::two_level;
  if (!algorithm_supported(op, Algorithm::one_hop)) return Algorithm::direct;
  if (op == Op::all_reduce && world == 2) return Algorithm::one_shot;
  return world <= kOneHopWorldMax || bytes <= kOneHopBytesMax ? Algorithm::one_hop : Algorithm::ring;
}

Algorithm default_device_algorithm(Op op, std::uint16_t world, std::uint64_t bytes,
                                   std::uint16_t node_ranks) {
  if (two_levels_pay(op, world, bytes, node_ranks, kDeviceStepBytes)) return Algorithm::two_level;
  if (op == Op::all_reduce && (world <= 2 || bytes <= kDeviceOneShotBytesMax)) return Algorithm::one_shot;
  return algorithm_supported(op, Algorithm::one_hop) ? Algorithm::one_hop : Algorithm::direct;
}

std::uint16_t node_ranks_of(std::span<const Rank> members, std::uint16_t node_ranks) {
  if (node_ranks == 0 || members.empty()) return 0;
  const auto node_at = [&](std::size_t i) { return members[i] / node_ranks; };
  std::size_t share = 1;  // of the first node
  while (share < members.size() && node_at(share) == node_at(0)) ++share;
  if (members.size() % share != 0) return 0;
  for (std::size_t i = share; i < members.size(); ++i) {
    const bool begins = i % share == 0;
    if (begins ? node_at(i) <= node_at(i - 1) : node_at(i) != node_at(i - 1)) return 0;
  }
  return static_cast<std::uint16_t>(share);
}

ScheduleCost cost_of(const Schedule& schedule, std::uint32_t element_bytes, std::uint32_t segment_bytes) {
  ScheduleCost cost;
  for (const Step& step : schedule.steps) {
    const Move* previous = nullptr;
    for (const Move& send : step.sends) {
      // The further sends of a multicast repeat a record that has been sealed.
      const bool repeated = send.multicast && previous != nullptr && previous->multicast;
      previous = &send;
      if (repeated) continue;
      const RecordLayout layout = RecordLayout::of(send.data.elements * element_bytes, segment_bytes);
      ++cost.seals;
      cost.sealed_bytes += layout.payload_bytes;
      cost.sealed_segments += layout.segments();
    }
    for (const Move& recv : step.recvs) {
      const RecordLayout layout = RecordLayout::of(recv.data.elements * element_bytes, segment_bytes);
      ++cost.opens;
      cost.opened_bytes += layout.payload_bytes;
      cost.opened_segments += layout.segments();
    }
  }
  return cost;
}

}  // namespace sealring
