#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "sealring/device/bulk_cipher.h"
#include "sealring/device/cuda/capture.h"
#include "sealring/device/cuda/errors.h"
#include "sealring/device/cuda/fused.h"
#include "sealring/device/cuda/fused_kernel.h"
#include "sealring/device/cuda/launched.h"

namespace sealring::cuda {
namespace {

constexpr const char* kStage = "device.cuda.fused";

// [protocol A.3] The prologue: its own launch; one thread a ring. It may be launched while the kernel before
// it in the stream ends, and waits for that end before it reads anything. The step's kernel may be launched
// behind that only: so no large kernel takes room of the device before the step before it has ended, which
// may have other ranks on this device to wait for.
__global__ void fused_prologue(FusedState* const state, const __grid_constant__ FusedReservation step) {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  __shared__ StepStart start;
  const std::uint32_t thread = threadIdx.x;
  const RingStart found = take_ring(step, thread);
  if (thread == kLanes - 1) begin_step(*state, step, DeviceFabric::now_ns(), start);
  __syncthreads();
  if (thread < kFusedRings) reserve_ring(*state, step, thread, found, start);
  __syncthreads();
  if (thread == 0) settle_step(*state, step, start);
}
static_assert(kFusedRings < kLanes);

// Everything is loaded and allocated before the first op: a kernel that waits for another rank must not meet
// a hidden wait of the host.
Result<std::vector<FusedEntry>> loaded_entries(unsigned device, Suite suite, const FusedGrid& grid) {
  std::vector<FusedEntry> list;
  if (suite == Suite::chacha20_poly1305) {
    add_fused_f32(list);
    add_fused_bf16(list);
    add_fused_f16(list);
    add_fused_replace(list);
    add_fused_many_f32(list);
    add_fused_many_bf16(list);
    add_fused_many_f16(list);
    add_fused_many_replace(list);
    add_fused_many_any(list);
    add_fused_small_sums(list);
    add_fused_small_others(list);
  } else {
    add_fused_gcm_f32(list);
    add_fused_gcm_bf16(list);
    add_fused_gcm_f16(list);
    add_fused_gcm_replace(list);
    add_fused_gcm_any(list);
  }
  int shared_max = 0;
  SR_TRY(checked(
      cudaDeviceGetAttribute(&shared_max, cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(device)),
      "query"));
  SR_TRY(load_kernel(reinterpret_cast<const void*>(&fused_prologue)));
  if (grid.has_teams()) {
    std::vector<FusedEntry> teams;
    add_fused_teams_sums(teams);
    add_fused_teams_replace(teams);
    const auto fits = [&](const FusedEntry& entry) {
      return entry.shared_bytes <= static_cast<std::size_t>(shared_max);
    };
    if (std::ranges::all_of(teams, fits)) list.insert(list.end(), teams.begin(), teams.end());
  }
  for (const FusedEntry& entry : list) {
    SR_TRY(load_kernel(entry.kernel));
    if (entry.shared_bytes > static_cast<std::size_t>(shared_max))
      return fail(
          Code::gpu_unsupported, kStage,
          "a fused kernel needs " + std::to_string(entry.shared_bytes) + " bytes of shared memory a block");
    SR_TRY(checked(cudaFuncSetAttribute(entry.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(entry.shared_bytes)),
                   "load"));
  }
  return list;
}

Result<void> check_group(const DeviceGroupConfig& group, FusedGrid grid) {
  const std::size_t ranks = group.members.size();
  if (grid.columns == 0 || grid.columns > kFusedColumnsMax)
    return fail(
        Code::invalid_argument, kStage,
        "columns must be 1 to " + std::to_string(kFusedColumnsMax) + ", not " + std::to_string(grid.columns));
  if (grid.blocks == 0 || grid.blocks > grid.columns || grid.alone == 0 || grid.alone > grid.columns)
    return fail(Code::invalid_argument, kStage, "a step has 1 block to a block a column");
  const bool gcm = group.suite == Suite::aes_256_gcm || group.suite == Suite::aes_128_gcm;
  if (group.suite != Suite::chacha20_poly1305 && !gcm)
    return fail(Code::unsupported, kStage, "there are no fused kernels of this suite");
  if (gcm ? grid.each != kGcmColumns || grid.columns != grid.each * grid.blocks : grid.each != 1)
    return fail(Code::invalid_argument, kStage,
                "a block of AES-GCM's kernels has " + std::to_string(kGcmColumns) + " columns, no other has");
  const std::uint32_t ranks_max = gcm ? 2 : kFusedRanksMax;
  if (ranks < 2 || ranks > ranks_max)
    return fail(Code::unsupported, kStage,
                "the fused kernels of this suite are for 2 to " + std::to_string(ranks_max) + " ranks, not " +
                    std::to_string(ranks));
  if (group.rank >= ranks) return fail(Code::invalid_argument, kStage, "no such rank in the group");
  return {};
}

}  // namespace

FusedRank::~FusedRank() {
  const DeviceGuard guard(group_.device);
  cudaDeviceSynchronize();
  if (state_ != nullptr) {
    cudaMemset(state_, 0, sizeof(FusedState));
    cudaFree(state_);
  }
  if (private_tiles_ != nullptr) {  // [protocol A.6] plaintext
    cudaMemset(private_tiles_, 0, private_bytes_);
    cudaFree(private_tiles_);
  }
}

Result<std::unique_ptr<FusedRank>> FusedRank::make(const DeviceGroupConfig& group, FusedGrid grid,
                                                   std::uint64_t small_bytes_max) {
  SR_TRY(check_group(group, grid));
  if (small_bytes_max > kSmallBytesMax)
    return fail(Code::invalid_argument, kStage,
                "small steps are at most " + std::to_string(kSmallBytesMax) + " bytes");
  const DeviceGuard guard(group.device);
  std::unique_ptr<FusedRank> out(new FusedRank);
  out->group_ = group;
  out->grid_ = grid;
  out->small_bytes_max_ = small_bytes_max;
  SR_TRY(out->entries_, loaded_entries(group.device, group.suite, out->grid_));
  if (grid.each > 1) {
    using Open = AesParts<AesConfig<Direction::open, CombineKind::replace>>;
    out->private_bytes_ = grid.columns * Open::private_bytes(kFusedSegmentMax);
    SR_TRY(
        checked(cudaMalloc(&out->private_tiles_, out->private_bytes_), "open memory", out->private_bytes_));
  }
  SR_TRY(checked(cudaMalloc(&out->state_, sizeof(FusedState)), "fused state", sizeof(FusedState)));
  const auto state = std::make_unique<FusedState>();
  state->timeout_ns = wait_ns_of(group);
  state->rank = group.rank;
  SR_TRY(checked(cudaMemcpy(out->state_, state.get(), sizeof(FusedState), cudaMemcpyHostToDevice),
                 "fused state"));
  SR_TRY(out->overlapped_, can_overlap(group.device));
  SR_TRY(out->copies_, CopyStream::of(group.device));
  SR_TRY(checked(cudaDeviceSynchronize(), "fused state"));
  return out;
}

Result<void> FusedRank::connect(std::byte* my_window, std::span<const Peer> peers, GroupVerdict* told) {
  if (my_window == nullptr || peers.size() != ranks())
    return fail(Code::invalid_argument, kStage, "every rank of the group has a window");
  const std::uint64_t region_bytes = fused_region_bytes(ranks(), grid_.columns);
  FusedPeers table;
  table.count = ranks() - 1;
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    if (rank == group_.rank) continue;
    const Peer& peer = peers[rank];
    if (peer.window == nullptr || peer.out == nullptr || peer.in == nullptr)
      return fail(Code::invalid_argument, kStage, "a peer has no window or no keys");
    if (peer.out->suite() != group_.suite || peer.in->suite() != group_.suite)
      return fail(Code::invalid_argument, kStage, "a peer's keys are of another suite");
    const std::uint32_t at = peer_index(group_.rank, rank);
    table.mine[at] = my_window + at * region_bytes;
    table.theirs[at] = peer.window + peer_index(rank, group_.rank) * region_bytes;
    table.out[at] = peer.out->state();
    table.in[at] = peer.in->state();
  }
  const DeviceGuard guard(group_.device);
  SR_TRY(checked(cudaMemcpy(&state_->group, &told, sizeof told, cudaMemcpyHostToDevice), "fused state"));
  peers_ = table;
  return {};
}

const FusedEntry* FusedRank::entry_for(const FusedJob& job) const {
  const FusedChoice choice = fused_choice(job);
  const auto found = [&](bool many, bool teams) -> const FusedEntry* {
    for (const FusedEntry& entry : entries_) {
      if (entry.combine == choice.combine && (entry.links > 1) == many && entry.small == choice.small &&
          (entry.teams > 1) == teams)
        return &entry;
    }
    return nullptr;
  };
  if (!grid_.has_teams() || choice.many || choice.small) return found(choice.many, false);
  const FusedEntry* const teams = found(false, true);
  // A multiprocessor without room for three columns: the kernel that has its columns in turn.
  return teams != nullptr ? teams : found(true, false);
}

Result<void> FusedRank::launch(const FusedEntry& entry, const FusedJob& job, const DeviceOp& op,
                               void* stream) {
  const auto native = static_cast<cudaStream_t>(stream);
  FusedReservation reservation = FusedReservation::of(job);
  void* prologue_arguments[] = {&state_, &reservation};
  SR_TRY(launched(reinterpret_cast<const void*>(&fused_prologue), 1, kLanes, 0, native, overlapped_,
                  prologue_arguments));
  const std::uint32_t blocks = std::min(grid_.blocks, job.units());
  Chunk pattern;
  poison(op.dtype, {reinterpret_cast<std::byte*>(&pattern), sizeof pattern});
  FusedStep<1> narrow = narrowed<1>(job);
  FusedJob whole = job;
  void* const told = entry.links == 1 ? static_cast<void*>(&narrow) : static_cast<void*>(&whole);
  void* arguments[] = {told, &state_, &pattern};
  return launched(entry.kernel, blocks, dim3(entry.threads, entry.teams), entry.shared_bytes, native,
                  overlapped_, arguments);
}

Result<void> FusedRank::enqueue(const DeviceOp& op, std::span<const DeviceSend> sends,
                                std::span<const DeviceRecv> recvs, DeviceStepRules rules, void* stream,
                                std::span<std::byte> output) {
  if (peers_.count == 0) return fail(Code::invalid_argument, kStage, "the peers are not connected");
  if (sends.empty() && recvs.empty()) return {};
  SR_TRY(FusedJob job, fused_job_of(group_, op, sends, recvs, rules, peers_, tuning()));
  const FusedEntry* const entry = entry_for(job);
  if (entry == nullptr) return fail(Code::unsupported, kStage, "no fused kernel for such a step");
  const DeviceGuard guard(group_.device);
  SR_TRY(const unsigned long long capture, capture_of(static_cast<cudaStream_t>(stream)));
  job.descriptor = next_descriptor_++ % kDescriptors;
  job.launch = capture == 0 ? job.descriptor : has_launch(true) ? next_launch_++ : kSharedLaunch;
  job.output = output.data();
  job.output_bytes = output.size();
  for (std::uint32_t i = 0; i < job.pulls; ++i) job.pull[i].job.private_tiles = private_tiles_;
  return launch(*entry, job, op, stream);
}

Result<void> FusedRank::told(const std::uint32_t (&words)[3]) const {
  if (words[0] == 0) return {};
  Error error;
  error.code = static_cast<Code>(words[0]);
  error.stage = kStage;
  if (error.code == Code::data_tag) {
    const std::uint32_t peer = rank_of_peer(group_.rank, words[2] - 1);
    error.what = "a record from rank " + std::to_string(peer < ranks() ? group_.members[peer] : 0) +
                 " is not authentic (segment " + std::to_string(words[1]) + ")";
  } else {
    error.what = error.code == Code::timeout   ? "a peer did not take part in time"
                 : error.code == Code::aborted ? "the op was aborted here, or a peer gave up"
                                               : "the device refused an operation before it sealed anything";
  }
  return fail(std::move(error));
}

Result<void> FusedRank::verdict(void* stream) const {
  const DeviceGuard guard(group_.device);
  const auto native = static_cast<cudaStream_t>(stream);
  std::uint32_t words[3] = {};
  static_assert(offsetof(FusedState, bad_segment) == offsetof(FusedState, verdict) + 4 &&
                offsetof(FusedState, bad_peer) == offsetof(FusedState, verdict) + 8);
  SR_TRY(checked(cudaMemcpyAsync(words, &state_->verdict, sizeof words, cudaMemcpyDeviceToHost, native),
                 "verdict"));
  SR_TRY(checked(cudaStreamSynchronize(native), "verdict"));
  return told(words);
}

Result<void> FusedRank::verdict_so_far() const {
  const RelaxedCapture relaxed;
  return verdict(copies_->stream());
}

Result<void> FusedRank::abort() {
  const DeviceGuard guard(group_.device);
  const RelaxedCapture relaxed;
  const cudaStream_t native = copies_->stream();
  static const std::uint32_t one = 1;
  SR_TRY(checked(cudaMemcpyAsync(&state_->abort, &one, sizeof one, cudaMemcpyHostToDevice, native), "abort"));
  return checked(cudaStreamSynchronize(native), "abort");
}

}  // namespace sealring::cuda
