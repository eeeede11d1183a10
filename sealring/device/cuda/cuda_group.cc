#include "sealring/device/cuda/cuda_group.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "sealring/device/cuda/capture.h"
#include "sealring/device/cuda/gate.h"
#include "sealring/device/cuda/group_verdict.h"
#include "sealring/device/cuda/nccl_wire.h"
#include "sealring/device/cuda/reduce.h"
#include "sealring/device/cuda/window_wire.h"

namespace sealring::cuda {
namespace {

constexpr const char* kStage = "device.cuda.group";
/// What schedules ask for as scratch mostly stays below; see scratch().
constexpr std::uint64_t kScratchBytes = 16ull << 20;
/// How long the end of a group waits beyond the deadlines of its ops.
constexpr std::chrono::seconds kGrace{2};

Result<void> check_config(const DeviceGroupConfig& config, const DeviceGroupKeys& keys) {
  const std::size_t ranks = config.members.size();
  if (ranks == 0 || ranks > kGroupRanksMax)
    return fail(Code::invalid_argument, kStage,
                "a group on GPUs has 1 to " + std::to_string(kGroupRanksMax) + " ranks, not " +
                    std::to_string(ranks));
  if (config.rank >= ranks || !std::ranges::is_sorted(config.members))
    return fail(Code::invalid_argument, kStage, "the group's members are not ascending, or lack this rank");
  if (config.timeout <= std::chrono::nanoseconds::zero())
    return fail(Code::invalid_argument, kStage, "the timeout of the waits on the device is not positive");
  if (config.suite == Suite::chained_gmac)
    return fail(Code::unsupported, kStage, "suite chained-gmac has no group on GPUs",
                "use aes-256-gcm, aes-128-gcm or chacha20-poly1305");
  if (config.suite == Suite::plain) return {};
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    if (peer == config.rank) continue;
    if (keys.to.size() != ranks || keys.from.size() != ranks || !keys.to[peer] || !keys.from[peer])
      return fail(Code::invalid_argument, kStage, "the keys to and from a peer are missing");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<CudaGroup>> CudaGroup::make(const DeviceGroupConfig& config, DeviceGroupKeys keys) {
  SR_TRY(check_config(config, keys));
  SR_TRY(prepare_device(config.device));
  const DeviceGuard guard(config.device);
  SR_TRY(load_gates());
  SR_TRY(load_reductions());
  DeviceGroupConfig mine = config;
  int shared_max = 0;
  SR_TRY(checked(cudaDeviceGetAttribute(&shared_max, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                        static_cast<int>(config.device)),
                 "query"));
  if (takes_multiprocessors(config.suite) && static_cast<std::size_t>(shared_max) < kGcmSharedBytes)
    mine.fused = false;
  std::unique_ptr<CudaGroup> out(new CudaGroup(mine));
  SR_TRY(out->set_up(std::move(keys)));
  return out;
}

Result<void> CudaGroup::set_up(DeviceGroupKeys keys) {
  int value = 0;
  SR_TRY(checked(
      cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, static_cast<int>(config_.device)),
      "query"));
  multiprocessors_ = static_cast<unsigned>(value);
  SR_TRY(copies_, CopyStream::of(config_.device));
  for (LentStream& stream : seal_streams_) {
    SR_TRY(stream, LentStream::of(config_.device));
  }
  for (cudaEvent_t* const event : {&fork_, &sealed_})
    SR_TRY(checked(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "event"));
  SR_TRY(checked(cudaMalloc(&state_, sizeof(GroupState)), "group state", sizeof(GroupState)));
  SR_TRY(make_rings(std::move(keys)));
  SR_TRY(make_memory());
  GroupState state{};
  state.ranks = world();
  state.rank = config_.rank;
  state.timeout_ns = wait_ns_of(config_);
  for (std::size_t peer = 0; peer < world(); ++peer) {
    state.to[peer] = to_[peer] ? to_[peer]->state() : nullptr;
    state.from[peer] = from_[peer] ? from_[peer]->state() : nullptr;
  }
  SR_TRY(checked(cudaMemcpy(state_, &state, sizeof state, cudaMemcpyHostToDevice), "group state"));
  SR_TRY(make_wire());
  return checked(cudaDeviceSynchronize(), "group state");
}

Result<void> CudaGroup::make_wire() {
  SR_TRY(chain_, LaunchChain::of_rank(config_.device, config_.members[config_.rank]));
  if (world() == 1) return {};
  if (config_.wire == DeviceWireKind::nccl) {
    SR_TRY(wire_, NcclWire::make(config_, state_));
    return {};
  }
  std::uint64_t beside_bytes = 0;
  if (has_fused(config_)) {
    const FusedGrid grid = fused_grid(config_, multiprocessors_);
    SR_TRY(fused_, FusedRank::make(config_, grid, grid.each > 1 ? 0 : kSmallBytesMax));
    const FusedState* const state = fused_->state();
    SR_TRY(checked(cudaMemcpy(&state_->fused, &state, sizeof state, cudaMemcpyHostToDevice), "group state"));
    beside_bytes = FusedRank::window_bytes(world(), grid.columns);
  }
  SR_TRY(auto windows, WindowWire::make(config_, state_, beside_bytes));
  windows_ = windows.get();
  wire_ = std::move(windows);
  return {};
}

Result<void> CudaGroup::make_rings(DeviceGroupKeys keys) {
  to_.resize(world());
  from_.resize(world());
  if (config_.suite == Suite::plain) return {};
  const auto make = [&](std::unique_ptr<KeySource> source) -> Result<std::unique_ptr<DeviceKeyRing>> {
    SR_TRY(auto ring, DeviceKeyRing::make(config_.device, config_.suite, 0, config_.budget));
    // A ring a direction a peer: the looks of all of them add up.
    SR_TRY(ring->refill_from(std::move(source), KeyRefill::kPeriodMax));
    ring->limit_columns(config_.wire == DeviceWireKind::nccl ? blocks_max() : config_.columns);
    return ring;
  };
  for (std::size_t peer = 0; peer < world(); ++peer) {
    if (peer == config_.rank) continue;
    SR_TRY(to_[peer], make(std::move(keys.to[peer])));
    SR_TRY(from_[peer], make(std::move(keys.from[peer])));
  }
  return {};
}

// All that exchange() will ever need, so that nothing is allocated while others wait.
Result<void> CudaGroup::make_memory() {
  const std::uint64_t slot = slot_bytes_of(config_);
  if (world() > 1) {
    std::uint64_t open_bytes = 0;
    for (const auto& ring : from_) {
      if (ring)
        open_bytes = std::max(open_bytes, ring->open_memory_bytes(segment_wish(config_.suite).segment_max));
    }
    SR_TRY(open_memory_, allocate(open_bytes, "open memory"));
    for (const auto& ring : from_) {
      if (ring && open_bytes > 0) ring->lend_open_memory(open_memory_.data, open_bytes);
    }
    if (world() > 2) {
      SR_TRY(landing_, allocate((world() - 1) * slot, "landing"));
    }
    SR_TRY(sealed_from_, allocate(slot, "scaled inputs"));
    SR_TRY(local_from_, allocate(slot, "scaled inputs"));
  }
  SR_TRY(const Memory scratch, allocate(kScratchBytes, "scratch"));
  scratches_.push_back(scratch);
  for (int i = 0; i < 64; ++i) {
    cudaEvent_t event = nullptr;
    SR_TRY(checked(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event"));
    free_events_.push_back(event);
  }
  return {};
}

Result<CudaGroup::Memory> CudaGroup::allocate(std::uint64_t bytes, const char* what, cudaStream_t stream) {
  Memory out;
  if (bytes == 0) return out;
  SR_TRY(checked(cudaMalloc(&out.data, bytes), what, bytes));
  out.bytes = bytes;
  // Nobody's leavings are ever sealed.
  const cudaError_t zeroed = cudaMemsetAsync(out.data, 0, bytes, stream);
  if (zeroed == cudaSuccess) return out;
  cudaFree(out.data);
  return fail(error_of(zeroed, what));
}

// [protocol A.6] Plaintext may lie there.
void CudaGroup::release(Memory& memory) {
  if (memory.data == nullptr) return;
  cudaMemset(memory.data, 0, memory.bytes);
  cudaFree(memory.data);
  memory = Memory{};
}

bool CudaGroup::busy() {
  if (cudaStreamQuery(seal_streams_[0].get()) == cudaErrorNotReady) return true;
  // The chain has other groups' ops, too, which are waited for only where replays cannot be told from them.
  if (captured_) return chain_->busy();
  const std::lock_guard lock(ends_mutex_);
  return !ends_.empty() && cudaEventQuery(ends_.back().event) == cudaErrorNotReady;
}

bool CudaGroup::wait_until_idle(Deadline deadline) {
  const RelaxedCapture relaxed;
  while (true) {
    const bool waiting = busy();
    if (!waiting || deadline.expired()) return !waiting;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

CudaGroup::~CudaGroup() {
  const DeviceGuard guard(config_.device);
  bool idle = true;
  if (chain_ && state_ != nullptr && copies_) {
    idle = wait_until_idle(
        Deadline::in(std::min<std::chrono::nanoseconds>(config_.timeout, std::chrono::hours(1)) + kGrace));
    if (!idle) {
      abort();
      idle = wait_until_idle(Deadline::in(kGrace));
    }
    // Who has given up, or has been given up, cannot know that no peer writes any more.
    const auto found = verdict();
    if (wire_ && (!idle || aborted_ || !found)) wire_->leak();
  }
  if (!idle) {  // a device that ends nothing: its memory is not touched any more
    for (auto* const rings : {&to_, &from_}) {
      for (auto& ring : *rings) {
        if (ring) ring->stop_refill();
        (void)ring.release();
      }
    }
    (void)fused_.release();
    (void)wire_.release();
    for (LentStream& stream : seal_streams_) stream.leak();
    return;
  }
  cudaDeviceSynchronize();
  fused_.reset();
  wire_.reset();
  to_.clear();
  from_.clear();
  for (Memory* const memory : {&open_memory_, &landing_, &sealed_from_, &local_from_}) release(*memory);
  for (Memory& memory : scratches_) release(memory);
  if (state_ != nullptr) {
    cudaMemset(state_, 0, sizeof(GroupState));
    cudaFree(state_);
  }
  for (const End& end : ends_) free_events_.push_back(end.event);
  for (const cudaEvent_t event : {fork_, sealed_}) free_events_.push_back(event);
  for (const cudaEvent_t event : free_events_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
}

Result<Bytes> CudaGroup::offer() {
  if (!wire_) return Bytes{};
  return wire_->offer();
}

Result<void> CudaGroup::connect(std::span<const Bytes> offers, Deadline deadline) {
  SR_CHECK(!connected_, "a group was connected twice");
  if (offers.size() != world())
    return fail(Code::invalid_argument, kStage,
                "connect needs the offers of " + std::to_string(world()) + " ranks, not of " +
                    std::to_string(offers.size()));
  if (wire_) SR_TRY(wire_->connect(offers, deadline));
  if (fused_) {
    std::vector<FusedRank::Peer> peers(world());
    for (Rank peer = 0; peer < world(); ++peer) {
      if (peer == config_.rank) continue;
      peers[peer] = {windows_->beside_of(peer), to_[peer].get(), from_[peer].get()};
    }
    SR_TRY(fused_->connect(windows_->beside(), peers, &state_->verdict));
  }
  // Streams that do not wait for the default one begin behind what was copied there.
  SR_TRY(checked(cudaStreamSynchronize(nullptr), "group state"));
  connected_ = true;
  return {};
}

Result<void> CudaGroup::begin(const DeviceOp& op, Stream& stream) {
  if (!connected_) return fail(Code::invalid_argument, kStage, "the group is not connected");
  const DeviceGuard guard(config_.device);
  const auto native = static_cast<cudaStream_t>(stream.native);
  SR_TRY(capture_, capture_of(native));
#if CUDART_VERSION >= 12080
  int device = static_cast<int>(config_.device);
  if (capture_ == 0) SR_TRY(checked(cudaStreamGetDevice(native, &device), "stream"));  // would end a capture
  if (device != static_cast<int>(config_.device))
    return fail(Code::invalid_argument, kStage,
                "the stream is one of CUDA device " + std::to_string(device) + ", the group is on device " +
                    std::to_string(config_.device));
#endif
  captured_ = captured_ || capture_ != 0;
  if (capture_ == 0 && config_.wire == DeviceWireKind::local && !aborted_) SR_TRY(wait_for_room());
  SR_TRY(chain_->wait(native, capture_));
  op_ = op;
  stream_ = native;
  in_op_ = true;
  launches_ = 1;  // its end
  return {};
}

Result<std::byte*> CudaGroup::scratch(std::uint64_t bytes) {
  SR_CHECK(in_op_, "scratch outside of an op");
  if (bytes <= scratches_.back().bytes) return scratches_.back().data;
  if (capture_ != 0)
    return fail(Code::invalid_argument, kStage,
                "an operation needs more scratch than any before it, while it is captured",
                "run it once before the capture");
  const DeviceGuard guard(config_.device);
  const RelaxedCapture relaxed;
  // What was given before may be in use by ops and graphs: it is kept, and twice its size bounds the waste.
  const std::uint64_t wanted = std::max(bytes, 2 * scratches_.back().bytes);
  SR_TRY(const Memory scratch, allocate(wanted, "scratch", stream_));
  scratches_.push_back(scratch);
  return scratch.data;
}

Result<void> CudaGroup::copy(DType dtype, const std::byte* from, std::byte* to, std::uint64_t elements,
                             double scale) {
  SR_CHECK(in_op_, "copy outside of an op");
  const std::uint64_t bytes = elements * dtype_bytes(dtype);
  if (bytes == 0) return {};
  const DeviceGuard guard(config_.device);
  SR_TRY(enqueue_pending());
  ++launches_;
  if (scale != 1.0)
    return enqueue_scale(dtype, ScaleArguments{from, to, bytes, scale}, blocks_max(), stream_);
  if (from == to) return {};
  return checked(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "copy");
}

Result<std::uint64_t> CudaGroup::end(DType dtype, std::span<std::byte> output) {
  SR_CHECK(in_op_, "end without begin");
  in_op_ = false;
  const DeviceGuard guard(config_.device);
  // The last column of an op's last fused step does what enqueue_end() would.
  const bool by_column = pending_.has_value() && fused_->has_launch(capture_ != 0) && !aborted_;
  Result<void> step = enqueue_pending(by_column ? output : std::span<std::byte>{});
  if (!step) abort();
  // What the host has given up is under a verdict by its end, whichever of its steps were enqueued.
  const bool gave_up = aborted_;
  if (gave_up) SR_TRY(enqueue_gate(state_, GateJob::of(), stream_));
  if (gave_up || !by_column) SR_TRY(enqueue_end(state_, dtype, output, stream_));
  SR_TRY(chain_->record(stream_, capture_));
  SR_TRY(std::move(step));
  if (capture_ != 0) return 0;
  const std::lock_guard lock(ends_mutex_);
  cudaEvent_t event = nullptr;
  if (free_events_.empty()) {
    SR_TRY(checked(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event"));
  } else {
    event = free_events_.back();
    free_events_.pop_back();
  }
  ends_.push_back({++serial_, event, launches_});
  launches_ahead_ += launches_;
  SR_TRY(checked(cudaEventRecord(event, stream_), "order"));
  return serial_;
}

// Ranks that share a process and a device share the room that it has for launches, about 1024. A thread that
// finds none waits inside of the CUDA runtime, and so do all others that launch: also that of a rank which is
// late, and for which the ones in front wait on the device. So nobody gets that far ahead, an op like the
// last one included. (Not bounded: an op of more launches than a rank's part, and ranks that use several
// groups at a time.)
Result<void> CudaGroup::wait_for_room() {
  const auto for_one = std::min<std::chrono::nanoseconds>(config_.timeout, std::chrono::hours(1)) + kGrace;
  Deadline deadline = Deadline::in(for_one);  // of each op
  std::uint64_t known = 0;
  while (!aborted_) {  // what is given up is poisoned, not waited for
    SR_TRY(const DeviceProgress now, progress());
    {
      const std::lock_guard lock(ends_mutex_);
      if (launches_ahead_ == 0 || launches_ahead_ + launches_ <= kLaunchRoom / world()) return {};
    }
    if (now.finished != known) deadline = Deadline::in(for_one);
    known = now.finished;
    if (deadline.expired()) {
      Error error;
      error.code = Code::timeout;
      error.stage = kStage;
      error.what = "an operation that was enqueued before did not end in time";
      error.next = "look at the ranks that take part in it; the verdict names the one that did not";
      return fail(std::move(error));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return {};
}

Result<DeviceProgress> CudaGroup::progress() {
  const DeviceGuard guard(config_.device);
  const RelaxedCapture relaxed;
  const std::lock_guard lock(ends_mutex_);
  while (!ends_.empty()) {
    const auto [serial, event, launches] = ends_.front();
    const cudaError_t found = cudaEventQuery(event);
    if (found == cudaErrorNotReady) break;
    SR_TRY(checked(found, "progress"));
    finished_ = serial;
    launches_ahead_ -= launches;
    free_events_.push_back(event);
    ends_.pop_front();
  }
  return DeviceProgress{finished_};
}

Result<void> CudaGroup::verdict() {
  const DeviceGuard guard(config_.device);
  const RelaxedCapture relaxed;
  GroupVerdict found;
  {
    const std::lock_guard lock(look_mutex_);
    SR_TRY(checked(
        cudaMemcpyAsync(&found, &state_->verdict, sizeof found, cudaMemcpyDeviceToHost, copies_->stream()),
        "verdict"));
    SR_TRY(checked(cudaStreamSynchronize(copies_->stream()), "verdict"));
  }
  if (found.code == 0) return {};
  Result<void> refill;
  for (const auto* const rings : {&to_, &from_}) {
    if (found.bad_peer < 1 || found.bad_peer > rings->size()) continue;
    const auto& ring = (*rings)[found.bad_peer - 1];
    if (refill && ring) refill = ring->refill_status();
  }
  return fail(group_error(found, config_.members, config_.rank, refill));
}

void CudaGroup::abort() noexcept {
  aborted_ = true;
  const DeviceGuard guard(config_.device);
  const RelaxedCapture relaxed;
  if (wire_) wire_->abort();
  if (fused_) (void)fused_->abort();  // whoever waits is ended by its deadline then
  static const std::uint32_t one = 1;
  const std::lock_guard lock(look_mutex_);
  cudaMemcpyAsync(&state_->abort, &one, sizeof one, cudaMemcpyHostToDevice, copies_->stream());
  cudaStreamSynchronize(copies_->stream());
  cudaGetLastError();  // whoever waits is ended by its deadline then
}

std::string CudaGroup::describe() const {
  return (wire_ ? wire_->describe() : "one rank") + (fused_ ? ", fused" : ", staged");
}

}  // namespace sealring::cuda

namespace sealring {

Result<std::unique_ptr<DeviceGroup>> make_cuda_group(const DeviceGroupConfig& config, DeviceGroupKeys keys) {
  SR_TRY(auto group, cuda::CudaGroup::make(config, std::move(keys)));
  return std::unique_ptr<DeviceGroup>(std::move(group));
}

}  // namespace sealring
