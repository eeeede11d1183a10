#include "sealring/device/cuda/nccl_wire.h"

#include <cuda_runtime.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "sealring/device/cuda/capture.h"
#include "sealring/device/cuda/errors.h"
#include "sealring/device/cuda/gate.h"
#include "sealring/device/cuda/nccl_marks.h"

namespace sealring::cuda {
namespace {

constexpr const char* kStage = "device.nccl";
constexpr std::chrono::milliseconds kLookPeriod{50};
constexpr std::chrono::seconds kVerdictWait{1};
constexpr std::uint64_t kFirstBytes = 128;

/// Until `stream` has ended what was enqueued, or the deadline.
Result<bool> ends_before(cudaStream_t stream, Deadline deadline) {
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return true;
    if (state != cudaErrorNotReady) SR_TRY(checked(state, "NCCL"));
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

/// Streams and events of eager rounds, and others of captured ones: a capture may be open while eager
/// operations are enqueued beside it.
class NcclWire::CudaStreams final : public RoundStreams {
 public:
  explicit CudaStreams(GroupState* state) : state_(state) {}
  ~CudaStreams() override {
    for (auto& of_mode : events_) {
      for (auto& of_slot : of_mode) {
        for (const cudaEvent_t event : of_slot) {
          if (event != nullptr) cudaEventDestroy(event);
        }
      }
    }
    for (const cudaStream_t stream : {nccl_[0], nccl_[1], look_}) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
    if (marks_ != nullptr) cudaFree(marks_);
  }
  Result<void> set_up() {
    int lowest = 0, highest = 0;
    SR_TRY(checked(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "query"));
    for (cudaStream_t* const stream : {&nccl_[0], &nccl_[1], &look_})
      SR_TRY(checked(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, highest), "stream"));
    for (auto& of_mode : events_) {
      for (auto& of_slot : of_mode) {
        for (cudaEvent_t& event : of_slot)
          SR_TRY(checked(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event"));
      }
    }
    SR_TRY(checked(cudaMalloc(&marks_, sizeof *marks_), "NCCL marks", sizeof *marks_));
    SR_TRY(checked(cudaMemsetAsync(marks_, 0, sizeof *marks_, look_), "NCCL marks"));
    return checked(cudaStreamSynchronize(look_), "NCCL marks");
  }

  Result<std::uint64_t> capture_of(void* stream) override {
    SR_TRY(const unsigned long long id, cuda::capture_of(static_cast<cudaStream_t>(stream)));
    captured_ = id != 0;
    return std::uint64_t{id};
  }
  void* nccl_stream(bool captured) override { return nccl_[captured ? 1 : 0]; }
  Result<void> record(RoundEvent event, std::uint8_t slot, void* stream) override {
    return checked(cudaEventRecord(at(event, slot), static_cast<cudaStream_t>(stream)), "order");
  }
  Result<void> wait(void* stream, RoundEvent event, std::uint8_t slot) override {
    return checked(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), at(event, slot), 0), "order");
  }
  Result<void> mark(NcclMark which, void* stream) override { return enqueue_mark(marks_, which, stream); }
  Result<void> gate(void* stream) override { return enqueue_gate(state_, GateJob::of(), stream); }

  cudaStream_t look_stream() const { return look_; }
  Result<NcclMarks> look() const {
    NcclMarks out;
    SR_TRY(checked(cudaMemcpyAsync(&out, marks_, sizeof out, cudaMemcpyDeviceToHost, look_), "NCCL marks"));
    SR_TRY(checked(cudaStreamSynchronize(look_), "NCCL marks"));
    return out;
  }

 private:
  cudaEvent_t at(RoundEvent event, std::uint8_t slot) const {
    return events_[captured_ ? 1 : 0][slot][static_cast<std::size_t>(event)];
  }

  GroupState* const state_;
  NcclMarks* marks_ = nullptr;
  cudaStream_t nccl_[2] = {}, look_ = nullptr;
  cudaEvent_t events_[2][kWireSlots][kRoundEvents] = {};
  bool captured_ = false;  ///< the round in progress
};

NcclWire::NcclWire(const DeviceGroupConfig& config, GroupState* state, const NcclApi& api)
    : device_(config.device),
      rank_(config.rank),
      world_(static_cast<std::uint16_t>(config.members.size())),
      timeout_(config.timeout),
      state_(state),
      api_(api) {}

Result<std::unique_ptr<NcclWire>> NcclWire::make(const DeviceGroupConfig& config, GroupState* state) {
  SR_CHECK(config.members.size() >= 2 && config.rank < config.members.size());
  SR_TRY(check_nccl_environment());
  SR_TRY(const NcclApi* const api, nccl_api());
  const DeviceGuard guard(config.device);
  std::unique_ptr<NcclWire> out(new NcclWire(config, state, *api));
  SR_TRY(out->set_up());
  return out;
}

Result<void> NcclWire::set_up() {
  SR_TRY(load_nccl_marks());
  streams_ = std::make_unique<CudaStreams>(state_);
  SR_TRY(streams_->set_up());
  staging_.slot_bytes = slot_bytes_of(world_, SlotPlace::nccl);
  staging_.rank = rank_;
  const std::uint64_t bytes = NcclStaging::bytes(world_, staging_.slot_bytes);
  SR_TRY(checked(cudaMalloc(&staging_.data, bytes), "NCCL buffers", bytes));
  const cudaStream_t stream = streams_->look_stream();
  SR_TRY(checked(cudaMemsetAsync(staging_.data, 0, bytes, stream), "NCCL buffers"));
  return checked(cudaStreamSynchronize(stream), "NCCL buffers");
}

NcclWire::~NcclWire() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  const DeviceGuard guard(device_);
  if (leaked_ && comm_) comm_->abort();  // its peers may never come
  rounds_.reset();
  comm_.reset();
  streams_.reset();
  if (staging_.data != nullptr && !leaked_) cudaFree(staging_.data);
}

Result<Bytes> NcclWire::offer() {
  const DeviceGuard guard(device_);
  if (rank_ == 0) SR_TRY(nccl_checked(api_, api_.get_unique_id(&id_), "making a unique id"));
  return nccl_offer(api_.version, rank_, id_);
}

Result<void> NcclWire::connect(std::span<const Bytes> offers, Deadline deadline) {
  SR_CHECK(offers.size() == world_ && !comm_);
  const DeviceGuard guard(device_);
  SR_TRY(id_, accept_nccl_offers(offers, api_.version));
  SR_TRY(comm_, NcclComm::make(api_, id_, rank_, world_, deadline));
  rounds_ = std::make_unique<NcclRounds>(*comm_, *streams_, staging_, timeout_);
  SR_TRY(first_exchange(deadline));
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::exception& problem) {
    return fail(Code::out_of_memory, kStage, std::string("no thread could be started: ") + problem.what());
  }
  return {};
}

/// NCCL connects a pair when it first moves something: not in a capture, and not beside kernels that wait.
Result<void> NcclWire::first_exchange(Deadline deadline) {
  std::vector<NcclSend> sends;
  std::vector<NcclRecv> recvs;
  for (Rank peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    sends.push_back({peer, staging_.out(peer, 0), kFirstBytes});
    recvs.push_back({peer, staging_.in(peer, 0), kFirstBytes});
  }
  const auto stream = static_cast<cudaStream_t>(streams_->nccl_stream(false));
  SR_TRY(comm_->exchange(sends, recvs, stream, deadline));
  SR_TRY(const bool ended, ends_before(stream, deadline));
  if (ended) return {};
  comm_->abort();
  return fail(Code::timeout, kStage, "NCCL moved nothing between the ranks before the deadline",
              "look at the other ranks; run again with NCCL_DEBUG=INFO");
}

Result<void> NcclWire::ready(const WireRound& round, void* stream) { return rounds_->ready(round, stream); }
Result<void> NcclWire::sent(const WireRound& round, void* stream) { return rounds_->sent(round, stream); }
Result<void> NcclWire::arrived(const WireRound& round, void* stream) {
  return rounds_->arrived(round, stream);
}
Result<void> NcclWire::taken(const WireRound& round, void* stream) { return rounds_->taken(round, stream); }

void NcclWire::abort() noexcept {
  {
    const std::lock_guard lock(mutex_);
    abort_ = true;
  }
  wake_.notify_all();
}

/// The verdict first, so that nothing behind the exchange is taken for what was sent.
void NcclWire::give_up(Code code) noexcept {
  const RelaxedCapture relaxed;
  if (enqueue_verdict(state_, code, streams_->look_stream()))
    (void)ends_before(streams_->look_stream(), Deadline::in(kVerdictWait));
  comm_->abort();
}

void NcclWire::watch() noexcept {
  const DeviceGuard guard(device_);
  const RelaxedCapture relaxed;
  NcclWatch watch(timeout_);
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kLookPeriod, [this] { return stop_ || abort_; });
      if (abort_) {
        lock.unlock();
        return give_up(Code::aborted);
      }
      if (stop_) return;
    }
    if (const auto state = comm_->status(); !state) return give_up(state.error().code);
    const auto marks = streams_->look();
    if (!marks) return give_up(marks.error().code);
    if (watch.expired(*marks, Clock::now())) return give_up(Code::timeout);
  }
}

std::string NcclWire::describe() const { return "NCCL " + nccl_version_text(api_.version); }

}  // namespace sealring::cuda
