#include "sealring/collective/schedule.h"

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

bool reduces(Op op) { return op == Op::all_reduce || op == Op::reduce_scatter || op == Op::reduce; }

void generate(const ScheduleRequest& request, Schedule& schedule) {
  using namespace generators;
  const bool ring = request.algorithm == Algorithm::ring;
  switch (request.op) {
    case Op::all_reduce:
      if (request.algorithm == Algorithm::one_shot) return one_shot_all_reduce(request, schedule);
      return ring ? ring_all_reduce(request, schedule) : one_hop_all_reduce(request, schedule);
    case Op::reduce_scatter:
      return ring ? ring_reduce_scatter(request, schedule) : one_hop_reduce_scatter(request, schedule);
    case Op::all_gather:
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
      return algorithm == Algorithm::ring || algorithm == Algorithm::one_hop;
    case Op::send:
      return false;
    default:
      return algorithm == Algorithm::direct;
  }
}

Algorithm default_algorithm(Op op, std::uint16_t world, std::uint64_t bytes) {
  if (!algorithm_supported(op, Algorithm::one_hop)) return Algorithm::direct;
  if (op == Op::all_reduce && world == 2) return Algorithm::one_shot;
  return world <= kOneHopWorldMax || bytes <= kOneHopBytesMax ? Algorithm::one_hop : Algorithm::ring;
}

Algorithm default_device_algorithm(Op op, std::uint16_t world, std::uint64_t bytes) {
  if (op == Op::all_reduce && (world <= 2 || bytes <= kDeviceOneShotBytesMax)) return Algorithm::one_shot;
  return algorithm_supported(op, Algorithm::one_hop) ? Algorithm::one_hop : Algorithm::direct;
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
