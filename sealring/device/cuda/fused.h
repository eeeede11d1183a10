// One rank's end of the fused steps of a group: its state, and steps enqueued on a stream. What it promises
// stands in fused_window.h.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "sealring/base/result.h"
#include "sealring/device/cuda/copy_stream.h"
#include "sealring/device/cuda/fused_job.h"
#include "sealring/device/cuda/group_shape.h"
#include "sealring/device/cuda/launch.h"
#include "sealring/device/device_group.h"

namespace sealring::cuda {

struct FusedEntry {
  CombineKind combine = CombineKind::any;
  std::uint32_t links = 1;  ///< records each way at most
  bool small = false;       ///< through lines
  unsigned threads = 0;     ///< of a team
  unsigned teams = 1;       ///< of a block: each has columns of its own
  std::size_t shared_bytes = 0;
  const void* kernel = nullptr;
};
// One function a source file, so that the files compile side by side.
void add_fused_f32(std::vector<FusedEntry>& list);
void add_fused_bf16(std::vector<FusedEntry>& list);
void add_fused_f16(std::vector<FusedEntry>& list);
void add_fused_replace(std::vector<FusedEntry>& list);
void add_fused_many_f32(std::vector<FusedEntry>& list);
void add_fused_many_bf16(std::vector<FusedEntry>& list);
void add_fused_many_f16(std::vector<FusedEntry>& list);
void add_fused_many_replace(std::vector<FusedEntry>& list);
void add_fused_many_any(std::vector<FusedEntry>& list);
void add_fused_small_sums(std::vector<FusedEntry>& list);
void add_fused_small_others(std::vector<FusedEntry>& list);
void add_fused_teams_sums(std::vector<FusedEntry>& list);
void add_fused_teams_replace(std::vector<FusedEntry>& list);
void add_fused_gcm_f32(std::vector<FusedEntry>& list);
void add_fused_gcm_bf16(std::vector<FusedEntry>& list);
void add_fused_gcm_f16(std::vector<FusedEntry>& list);
void add_fused_gcm_replace(std::vector<FusedEntry>& list);
void add_fused_gcm_any(std::vector<FusedEntry>& list);

/// Steps follow one another in stream order, one at a time, in the same order on all ranks. Not thread-safe,
/// but for verdict_so_far() and abort(). A failed rank stays failed. Its verdict and those of the key rings
/// are one: whichever fails first, nothing more is sealed or opened by either.
class FusedRank {
 public:
  FusedRank(const FusedRank&) = delete;
  FusedRank& operator=(const FusedRank&) = delete;
  ~FusedRank();  ///< waits for the device; clears what it frees

  /// Of the window of each rank of a group.
  static std::uint64_t window_bytes(std::uint32_t ranks, std::uint32_t columns) {
    return fused_window_bytes(ranks, columns);
  }
  /// Of `group`: device, suite, rank, members, group_id, th3, timeout. `grid`: every rank must be able to
  /// have a block of its own running. `small_bytes_max`: see FusedTuning. It and the columns are the same on
  /// all ranks. Errors: INVALID_ARGUMENT, UNSUPPORTED (suite, ranks), GPU_UNSUPPORTED, OUT_OF_MEMORY, CUDA.
  static Result<std::unique_ptr<FusedRank>> make(const DeviceGroupConfig& group, FusedGrid grid,
                                                 std::uint64_t small_bytes_max = 0);

  struct Peer {
    std::byte* window = nullptr;  ///< the whole of the peer's, as this process reaches it
    DeviceKeyRing* out = nullptr;
    DeviceKeyRing* in = nullptr;
  };
  /// Before the first step. `my_window`: window_bytes() of zeroed memory that the peers write. `peers`: by
  /// group rank, mine unused. `told`: in device memory, gets the first error, and no step begins under one;
  /// null: nobody. All of it is the caller's and outlives this. Errors: INVALID_ARGUMENT, CUDA.
  Result<void> connect(std::byte* my_window, std::span<const Peer> peers, GroupVerdict* told = nullptr);

  FusedTuning tuning() const {
    return {grid_.columns, small_bytes_max_, 0, grid_.alone, grid_.each > 1 ? grid_.blocks : 0};
  }
  /// The prologue and the step's one kernel; nothing for a step without records. What the moves may be:
  /// fused_job_of() (fused_job.h). `output`: of the op whose last step this is, all of which a failure
  /// poisons (see has_launch()); empty: what the step receives. After an error of this function nothing is
  /// poisoned: the op is the caller's to end. Returns before the step runs. Errors:
  /// INVALID_ARGUMENT, UNSUPPORTED, CUDA.
  Result<void> enqueue(const DeviceOp& op, std::span<const DeviceSend> sends,
                       std::span<const DeviceRecv> recvs, DeviceStepRules rules, void* stream,
                       std::span<std::byte> output = {});
  /// Whether the next step's last column can end its op; not so of captured ones when too many have been.
  bool has_launch(bool captured) const { return !captured || next_launch_ < kSharedLaunch; }
  /// The device's verdict, behind everything enqueued on `stream` (a cudaStream_t) so far, for which it
  /// waits.
  Result<void> verdict(void* stream) const;
  /// The same of the steps that have ended by now: waits for none.
  Result<void> verdict_so_far() const;
  /// Whoever waits leaves with ABORTED, now and later; does not wait for the steps.
  Result<void> abort();
  /// Tests: the state behind the product's back.
  FusedState* state() const { return state_; }
  WindowShape region() const { return fused_region(ranks(), grid_.columns); }

 private:
  FusedRank() = default;
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(group_.members.size()); }
  const FusedEntry* entry_for(const FusedJob& job) const;
  Result<void> launch(const FusedEntry& entry, const FusedJob& job, const DeviceOp& op, void* stream);
  Result<void> told(const std::uint32_t (&words)[3]) const;

  DeviceGroupConfig group_;
  FusedGrid grid_;
  std::uint64_t small_bytes_max_ = 0;
  bool overlapped_ = false;  ///< a kernel may begin while the one before it ends
  std::vector<FusedEntry> entries_;
  FusedState* state_ = nullptr;
  std::byte* private_tiles_ = nullptr;  ///< AES-GCM: what was decrypted and waits for its tag
  std::uint64_t private_bytes_ = 0;
  FusedPeers peers_;
  std::shared_ptr<const CopyStream> copies_;
  std::uint32_t next_descriptor_ = 0;
  std::uint32_t next_launch_ = kEagerLaunches;  ///< of captured steps
};

}  // namespace sealring::cuda
