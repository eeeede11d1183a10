// CudaGroup's data path: what a step becomes on two streams.
#include <algorithm>

#include "sealring/device/cuda/cuda_group.h"
#include "sealring/device/cuda/errors.h"
#include "sealring/device/cuda/fused_job.h"
#include "sealring/device/cuda/make_job.h"
#include "sealring/device/cuda/nccl_comm.h"
#include "sealring/device/cuda/reduce.h"

namespace sealring::cuda {
namespace {

RedOp combine_op(RedOp redop) {
  // premul_sum was applied to the inputs, avg divides on the last hop: both combine as a sum.
  return redop == RedOp::premul_sum || redop == RedOp::avg ? RedOp::sum : redop;
}

const std::byte* behind(const std::byte* base, std::uint64_t offset) {
  return base == nullptr ? nullptr : base + offset;
}
std::byte* behind(std::byte* base, std::uint64_t offset) { return base == nullptr ? nullptr : base + offset; }

template <class Move>
std::vector<MoveEnd> ends_of(std::span<const Move> moves, DType dtype, const DeviceGroupConfig& config) {
  std::vector<MoveEnd> out;
  for (const Move& move : moves) {
    SR_CHECK(move.peer < config.members.size(), "peer", move.peer);
    out.push_back({move.peer, cut_move(move.elements * dtype_bytes(dtype), config.suite,
                                       slot_bytes_of(config), slot_place(config))});
  }
  return out;
}

std::vector<WireChunk> wire_chunks(std::span<const ChunkOfMove> chunks, std::span<const MoveEnd> moves) {
  std::vector<WireChunk> out;
  for (const ChunkOfMove& at : chunks)
    out.push_back({moves[at.move].peer, moves[at.move].cut.wire_bytes_of(at.chunk)});
  return out;
}

}  // namespace

struct CudaGroup::Step {
  std::span<const DeviceSend> sends;
  std::span<const DeviceRecv> recvs;
  DeviceStepRules rules;
  std::vector<MoveEnd> send_ends, recv_ends;
  std::vector<MoveRound> rounds;
  ChipShare share;

  /// One sum of several contributions.
  bool sums() const { return rules.ordered && recvs.size() > 1; }
};

unsigned CudaGroup::blocks_max() const {
  const unsigned nccl = config_.wire == DeviceWireKind::nccl ? NcclComm::multiprocessors(world()) : 0;
  const unsigned all = 4 * (multiprocessors_ - std::min(nccl, multiprocessors_ / 2));
  return config_.columns == 0 ? all : std::min(all, config_.columns);
}

template <class Move>
SegmentJob CudaGroup::chunk_job(const Move& move, RecordEnds ends, const MoveCut& cut,
                                std::uint32_t chunk) const {
  RecordContext context = record_context_of(config_, op_, ends, move);
  context.segment = cut.first_segment(chunk);
  context.element_offset += cut.payload_offset(chunk) / dtype_bytes(op_.dtype);
  return segment_job_of(config_.suite, context, cut.layout, cut.segments_of(chunk));
}

Result<void> CudaGroup::exchange(std::span<const DeviceSend> sends, std::span<const DeviceRecv> recvs,
                                 DeviceStepRules rules) {
  SR_CHECK(in_op_, "exchange outside of an op");
  const DeviceGuard guard(config_.device);
  SR_TRY(enqueue_pending());
  if (is_fused()) {
    if (sends.empty() && recvs.empty()) return {};
    count_fused(sends, recvs);
    pending_ = FusedPending{{sends.begin(), sends.end()}, {recvs.begin(), recvs.end()}, rules};
    return {};
  }
  Step step{sends, recvs, rules, {}, {}, {}, {}};
  step.send_ends = ends_of(sends, op_.dtype, config_);
  step.recv_ends = ends_of(recvs, op_.dtype, config_);
  step.rounds = plan_rounds(step.send_ends, step.recv_ends);
  step.share = chip_share(step.rounds.size(), config_.suite, slot_place(config_));
  // In lockstep chunk c of a receive may lie over chunk c of a send: round c must be the same part of both.
  for (std::size_t i = 0; rules.lockstep && i < sends.size(); ++i)
    SR_CHECK(recvs.empty() || sends[i].elements == recvs[0].elements, "lockstep of different sizes");
  for (std::size_t i = 1; step.sums() && i < recvs.size(); ++i)
    SR_CHECK(recvs[i].dst == recvs[0].dst && recvs[i].elements == recvs[0].elements, "a sum of several");
  cudaStream_t seal_stream = stream_;
  if (step.rounds.size() > 1) {
    seal_stream = seal_streams_[capture_ != 0 ? 1 : 0].get();
    SR_TRY(checked(cudaEventRecord(fork_, stream_), "order"));
    SR_TRY(checked(cudaStreamWaitEvent(seal_stream, fork_, 0), "order"));
  }
  for (std::size_t round = 0; round < step.rounds.size(); ++round)
    SR_TRY(run_round(step, round, seal_stream));
  return {};
}

// Scaled inputs are staged: the fused kernels read what they are given as it is.
bool CudaGroup::is_fused() const { return fused_ != nullptr && op_.redop != RedOp::premul_sum; }

Result<void> CudaGroup::enqueue_pending(std::span<std::byte> output) {
  if (!pending_) return {};
  const FusedPending step = std::move(*pending_);
  pending_.reset();
  launches_ += 2;
  return fused_->enqueue(op_, step.sends, step.recvs, step.rules, stream_, output);
}

void CudaGroup::count_fused(std::span<const DeviceSend> sends, std::span<const DeviceRecv> recvs) {
  const auto width = dtype_bytes(op_.dtype);
  const FusedTuning tuning = fused_->tuning();
  const bool small = is_small(config_, op_.dtype, sends, recvs, tuning.small_bytes_max);
  const auto segments_of = [&](std::uint64_t bytes) {
    return RecordLayout::of(bytes, cut_of(world(), op_, tuning, small, bytes).segment_bytes).segments();
  };
  for (const DeviceSend& send : sends) {
    counters_.seals += 1;
    counters_.sealed_bytes += send.elements * width;
    counters_.sealed_segments += segments_of(send.elements * width);
  }
  for (const DeviceRecv& recv : recvs) {
    counters_.opens += 1;
    counters_.opened_bytes += recv.elements * width;
    counters_.opened_segments += segments_of(recv.elements * width);
  }
}

Result<void> CudaGroup::run_round(const Step& step, std::size_t index, cudaStream_t seal_stream) {
  const MoveRound& round = step.rounds[index];
  const std::vector<WireChunk> out = wire_chunks(round.sends, step.send_ends);
  const std::vector<WireChunk> in = wire_chunks(round.recvs, step.recv_ends);
  const WireRound wire_round{out, in};
  // A prologue and a kernel each, a sum, and what waits for the peers or tells them.
  launches_ += 2 * (round.sends.size() + round.recvs.size()) + 1 + 4;
  SR_TRY(wire_->ready(wire_round, seal_stream));
  for (const ChunkOfMove& at : round.sends)
    SR_TRY(
        seal_chunk(step.sends[at.move], step.send_ends[at.move].cut, at.chunk, step.share.seal, seal_stream));
  if (seal_stream == stream_) {
    SR_TRY(wire_->exchanged(wire_round, stream_));
  } else {
    SR_TRY(wire_->sent(wire_round, seal_stream));
    // Behind the round's seals; in the last round it is also where the seal stream joins.
    SR_TRY(checked(cudaEventRecord(sealed_, seal_stream), "order"));
    SR_TRY(checked(cudaStreamWaitEvent(stream_, sealed_, 0), "order"));
    SR_TRY(wire_->arrived(wire_round, stream_));
  }
  SR_TRY(open_round(step, index));
  return wire_->taken(wire_round, stream_);
}

Result<void> CudaGroup::seal_chunk(const DeviceSend& send, const MoveCut& cut, std::uint32_t chunk,
                                   unsigned share, cudaStream_t stream) {
  const std::uint64_t payload = cut.payload_of(chunk);
  const std::byte* data = behind(send.data, cut.payload_offset(chunk));
  if (send.scale != 1.0 && payload > 0) {
    ++launches_;
    SR_TRY(enqueue_scale(op_.dtype, ScaleArguments{data, sealed_from_.data, payload, send.scale},
                         blocks_max(), stream));
    data = sealed_from_.data;
  }
  SegmentJob job = chunk_job(send, {config_.rank, send.peer}, cut, chunk);
  job.plaintext = data;
  job.wire = wire_->out_place(send.peer);
  job.combine.dtype = op_.dtype;
  counters_.seals += chunk == 0 ? 1 : 0;
  counters_.sealed_segments += job.segments;
  counters_.sealed_bytes += payload;
  if (config_.suite == Suite::plain)
    return enqueue_plain_seal(state_, job, blocks_max() * share / 100, stream);
  DeviceKeyRing& ring = *to_[send.peer];
  ring.limit_share(share);
  OpRequest numbers;
  numbers.numbers = Numbers::seal_next;
  return ring.enqueue(job, Direction::seal, numbers, stream);
}

Result<void> CudaGroup::open_chunk(const DeviceRecv& recv, const MoveCut& cut, std::uint32_t chunk,
                                   const CombineOp& combine, unsigned share) {
  SegmentJob job = chunk_job(recv, {recv.peer, config_.rank}, cut, chunk);
  job.wire = const_cast<std::byte*>(wire_->in_place(recv.peer));  // only read
  job.combine = combine;
  counters_.opens += chunk == 0 ? 1 : 0;
  counters_.opened_segments += job.segments;
  counters_.opened_bytes += cut.payload_of(chunk);
  if (config_.suite == Suite::plain)
    return enqueue_plain_open(state_, job, blocks_max() * share / 100, stream_);
  DeviceKeyRing& ring = *from_[recv.peer];
  ring.limit_share(share);
  OpRequest numbers;
  numbers.numbers = Numbers::open_next;
  return ring.enqueue(job, Direction::open, numbers, stream_);
}

Result<const std::byte*> CudaGroup::scaled_local(const DeviceRecv& recv, const MoveCut& cut,
                                                 std::uint32_t chunk) {
  const std::byte* const local = behind(recv.local, cut.payload_offset(chunk));
  const std::uint64_t payload = cut.payload_of(chunk);
  if (local == nullptr || recv.local_scale == 1.0 || payload == 0) return local;
  SR_TRY(enqueue_scale(op_.dtype, ScaleArguments{local, local_from_.data, payload, recv.local_scale},
                       blocks_max(), stream_));
  return static_cast<const std::byte*>(local_from_.data);
}

Result<void> CudaGroup::open_round(const Step& step, std::size_t round) {
  if (step.sums()) return open_ordered(step, round);
  for (const ChunkOfMove& at : step.rounds[round].recvs) SR_TRY(open_single(step, at));
  return {};
}

Result<void> CudaGroup::open_single(const Step& step, const ChunkOfMove& at) {
  const DeviceRecv& recv = step.recvs[at.move];
  const MoveCut& cut = step.recv_ends[at.move].cut;
  CombineOp combine;
  combine.dtype = op_.dtype;
  combine.dst = behind(recv.dst, cut.payload_offset(at.chunk));
  if (recv.local != nullptr) {
    combine.redop = combine_op(op_.redop);
    combine.divisor = recv.divisor;
    combine.received_first = step.rules.ordered && recv.peer < config_.rank;
    SR_TRY(combine.local, scaled_local(recv, cut, at.chunk));
  }
  return open_chunk(recv, cut, at.chunk, combine, step.share.open);
}

// Each contribution lands in private memory; then one sum in rank order, rounded once.
Result<void> CudaGroup::open_ordered(const Step& step, std::size_t round) {
  const std::vector<ChunkOfMove>& chunks = step.rounds[round].recvs;
  if (chunks.empty()) return {};
  const DeviceRecv& first = step.recvs[chunks[0].move];
  const MoveCut& cut = step.recv_ends[chunks[0].move].cut;
  const std::uint32_t chunk = chunks[0].chunk;
  SR_CHECK(chunks.size() == step.recvs.size() && chunks.size() < world(), "a sum of several");
  const std::uint64_t slot = slot_bytes_of(config_);
  const std::byte* contributions[kGroupRanksMax] = {};  // by group rank
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    CombineOp combine;
    combine.dtype = op_.dtype;
    combine.dst = landing_.data + i * slot;
    const DeviceRecv& recv = step.recvs[chunks[i].move];
    SR_TRY(open_chunk(recv, cut, chunk, combine, step.share.open));
    contributions[recv.peer] = combine.dst;
  }
  ReduceArguments sum;
  sum.bytes = cut.payload_of(chunk);
  if (sum.bytes == 0) return {};
  SR_TRY(contributions[config_.rank], scaled_local(first, cut, chunk));
  sum.count = 0;
  for (const std::byte* const contribution : contributions) {
    if (contribution != nullptr) sum.sources[sum.count++] = contribution;
  }
  sum.dst = behind(first.dst, cut.payload_offset(chunk));
  sum.divisor = first.divisor;
  return enqueue_reduce(state_, op_.dtype, combine_op(op_.redop), sum, blocks_max(), stream_);
}

}  // namespace sealring::cuda
