#include "sealring/device/cuda/nccl_comm.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

namespace sealring::cuda {
namespace {

constexpr const char* kStage = "device.nccl";
/// NCCL's own thread takes some tens of microseconds to enqueue an exchange, and a sleep is never shorter
/// than the kernel's timer slack (50 us): who slept between looks would wait longer than the exchange runs.
constexpr std::chrono::microseconds kSpin{300}, kPauseMin{50}, kPauseMax{1000};

Error ended_by_abort() {
  Error out;
  out.code = Code::aborted;
  out.stage = kStage;
  out.what = "NCCL's communicator was aborted";
  return out;
}

}  // namespace

Result<std::unique_ptr<NcclComm>> NcclComm::make(const NcclApi& api, const NcclUniqueId& id, Rank rank,
                                                 std::uint16_t world, Deadline deadline) {
  SR_CHECK(rank < world, "rank", rank, "world", world);
  SR_TRY(check_nccl_environment());
  std::unique_ptr<NcclComm> out(new NcclComm(api));
  NcclConfig config;
  config.blocking = 0;
  config.min_ctas = config.max_ctas = kBlocks;
  const NcclStatus begun = api.comm_init(&out->comm_, world, id, rank, &config);
  if (auto ok = nccl_checked(api, begun, "making a communicator"); !ok) {
    const std::lock_guard lock(out->mutex_);
    SR_TRY(out->end_with(std::move(ok).error()));
  }
  SR_TRY(out->settle(deadline, "making a communicator"));
  return out;
}

NcclComm::~NcclComm() {
  if (comm_ != nullptr) api_.comm_destroy(comm_);
}

/// The caller holds mutex_.
Result<void> NcclComm::end_with(Error error) noexcept {
  if (comm_ != nullptr) api_.comm_abort(std::exchange(comm_, nullptr));
  if (!ended_) ended_ = std::move(error);
  return fail(*ended_);
}

void NcclComm::abort() noexcept {
  const std::lock_guard lock(mutex_);
  (void)end_with(ended_by_abort());
}

/// True when NCCL has done what it was told. A communicator that fails is ended.
Result<bool> NcclComm::settled(const char* doing) {
  const std::lock_guard lock(mutex_);
  if (ended_) return fail(*ended_);
  NcclStatus state = NcclStatus::success;
  auto ok = nccl_checked(api_, api_.async_error(comm_, &state), doing);
  if (ok) ok = nccl_checked(api_, state, doing);
  if (!ok) SR_TRY(end_with(std::move(ok).error()));
  return state != NcclStatus::in_progress;
}

Result<void> NcclComm::status() {
  SR_TRY([[maybe_unused]] const bool done, settled("running"));
  return {};
}

Result<void> NcclComm::settle(Deadline deadline, const char* doing) {
  const Clock::time_point begun = Clock::now();
  auto pause = kPauseMin;
  while (true) {
    SR_TRY(const bool done, settled(doing));
    if (done) return {};
    if (deadline.expired()) {
      Error error;
      error.code = Code::timeout;
      error.stage = kStage;
      error.what = std::string("NCCL: ") + doing + " took longer than the deadline allows";
      error.next = "look at the other ranks: one of them did not take part";
      const std::lock_guard lock(mutex_);
      return end_with(std::move(error));
    }
    if (Clock::now() - begun < kSpin) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kPauseMax);
  }
}

Result<void> NcclComm::exchange(std::span<const NcclSend> sends, std::span<const NcclRecv> recvs,
                                NcclStream stream, Deadline deadline) {
  SR_TRY(enqueue(sends, recvs, stream));
  return settle(deadline, "enqueuing an exchange");
}

/// A group that was begun is ended in any case: it belongs to the thread.
Result<void> NcclComm::enqueue(std::span<const NcclSend> sends, std::span<const NcclRecv> recvs,
                               NcclStream stream) {
  const std::lock_guard lock(mutex_);
  if (ended_) return fail(*ended_);
  auto ok = nccl_checked(api_, api_.group_start(), "beginning a group");
  if (!ok) return end_with(std::move(ok).error());
  for (const NcclSend& send : sends) {
    if (!ok) break;
    ok = nccl_checked(api_, api_.send(send.data, send.bytes, NcclType::uint8, send.peer, comm_, stream),
                      "sending");
  }
  for (const NcclRecv& recv : recvs) {
    if (!ok) break;
    ok = nccl_checked(api_, api_.recv(recv.data, recv.bytes, NcclType::uint8, recv.peer, comm_, stream),
                      "receiving");
  }
  auto closed = nccl_checked(api_, api_.group_end(), "ending a group");
  if (ok) ok = std::move(closed);
  if (!ok) return end_with(std::move(ok).error());
  return {};
}

}  // namespace sealring::cuda
