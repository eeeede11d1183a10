// One rank's end of the fused all_reduce of two ranks: its window, its state, and ops enqueued on a stream.
// What it promises stands in fused_window.h.
#pragma once

#include <chrono>
#include <memory>

#include "sealring/base/result.h"
#include "sealring/device/cuda/fused_state.h"
#include "sealring/device/cuda/launch.h"

namespace sealring::cuda {

struct FusedEntry {
  CombineKind combine = CombineKind::any;
  unsigned threads = 0;
  unsigned blocks = 1;  ///< resident on a multiprocessor
  std::size_t shared_bytes = 0;
  const void* kernel = nullptr;
};
// One function a source file, so that the files compile side by side.
void add_fused_f32(std::vector<FusedEntry>& list);
void add_fused_bf16(std::vector<FusedEntry>& list);
void add_fused_f16(std::vector<FusedEntry>& list);
void add_fused_any(std::vector<FusedEntry>& list);

/// Ops follow one another on one stream at a time. Not thread-safe. A failed rank stays failed.
class FusedRank {
 public:
  FusedRank(const FusedRank&) = delete;
  FusedRank& operator=(const FusedRank&) = delete;
  ~FusedRank();  ///< waits for the device; clears what it frees

  /// `columns`: blocks of an op at most; both ranks must be able to have one of theirs running. The same on
  /// both ranks. Errors: INVALID_ARGUMENT, GPU_UNSUPPORTED, OUT_OF_MEMORY, CUDA.
  static Result<std::unique_ptr<FusedRank>> make(unsigned device, std::uint32_t columns,
                                                 std::chrono::nanoseconds timeout);
  /// What the peer writes into. `peer_window`: the peer's, as this process reaches it.
  std::byte* window() const { return window_; }
  void connect(std::byte* peer_window) { peer_window_ = peer_window; }

  std::uint32_t columns() const { return shape_.columns; }
  /// The prologue and the op's one kernel. `job` as fused_job_of (make_job.h) makes it, with plaintext, local
  /// and dst set; cut by fused_cut(bytes, dtype, columns()). `out`, `in`: the keys to and from the peer.
  /// Returns before the op runs: see verdict(). Errors: INVALID_ARGUMENT, CUDA.
  Result<void> enqueue(FusedJob job, DeviceKeyRing& out, DeviceKeyRing& in, void* stream);
  /// The device's verdict, behind everything enqueued on `stream` (a cudaStream_t) so far.
  Result<void> verdict(void* stream) const;
  /// Whoever waits leaves with ABORTED, now and later; does not wait for the ops.
  Result<void> abort();
  /// Tests: the state behind the product's back.
  FusedState* state() const { return state_; }
  const WindowShape& shape() const { return shape_; }

 private:
  FusedRank() = default;

  unsigned device_ = 0;
  WindowShape shape_;
  std::vector<FusedEntry> entries_;
  FusedState* state_ = nullptr;
  std::byte* window_ = nullptr;
  std::byte* peer_window_ = nullptr;
  void* private_stream_ = nullptr;
  std::uint32_t next_descriptor_ = 0;
};

}  // namespace sealring::cuda
