// DeviceGroup on a CUDA device. A step is fused where there is a kernel for it (fused.h: ranks that have
// windows, up to eight with chacha20-poly1305, two with AES-GCM); all else is staged: seal into a wire, open
// out of it, and nothing that is large ever waits. Which of the two is decided by what all ranks know alike,
// and by how much shared memory a block of this GPU may have: ranks whose GPUs differ in that have windows of
// different sizes, and refuse each other's.
//
// Staged:
//
// A step is cut into rounds (move_plan.h). Of each round the seals run on a private stream and the opens on
// the caller's, so that round r+1 is sealed while round r is opened; a step of one round runs on the caller's
// stream alone. An open waits for the seals of its own round, so what is received may take the place of what
// is sent.
//
// Numbers: each chunk is one operation of its pair's key, whose device state counts numbers, bytes and
// operations and enters epochs by itself [protocol A.3]. `seq` in a segment's authenticated data is that
// state's count of chunks, as it is the device that knows it (docs/wire-format.md).
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "sealring/device/cuda/copy_stream.h"
#include "sealring/device/cuda/fused.h"
#include "sealring/device/cuda/group_shape.h"
#include "sealring/device/cuda/group_state.h"
#include "sealring/device/cuda/launch.h"
#include "sealring/device/cuda/launch_chain.h"
#include "sealring/device/cuda/lent_stream.h"
#include "sealring/device/cuda/make_job.h"
#include "sealring/device/cuda/window_wire.h"
#include "sealring/device/cuda/wire.h"
#include "sealring/device/device_group.h"

namespace sealring::cuda {

class CudaGroup final : public DeviceGroup {
 public:
  static Result<std::unique_ptr<CudaGroup>> make(const DeviceGroupConfig& config, DeviceGroupKeys keys);
  CudaGroup(const CudaGroup&) = delete;
  CudaGroup& operator=(const CudaGroup&) = delete;
  ~CudaGroup() override;

  Result<Bytes> offer() override;
  Result<void> connect(std::span<const Bytes> offers, Deadline deadline) override;
  Result<void> begin(const DeviceOp& op, Stream& stream) override;
  Result<void> exchange(std::span<const DeviceSend> sends, std::span<const DeviceRecv> recvs,
                        DeviceStepRules rules) override;
  Result<std::byte*> scratch(std::uint64_t bytes) override;
  Result<void> copy(DType dtype, const std::byte* from, std::byte* to, std::uint64_t elements,
                    double scale) override;
  Result<std::uint64_t> end(DType dtype, std::span<std::byte> output) override;
  Result<DeviceProgress> progress() override;
  Result<void> verdict() override;
  void abort() noexcept override;
  DeviceGroupCounters counters() const override { return counters_; }
  std::string describe() const override;
  Stream own_stream() const override { return Stream{seal_streams_[0].get()}; }

  /// Tests: what lies behind the product's back.
  GroupState* state() const { return state_; }
  DeviceWire* wire() const { return wire_.get(); }
  DeviceKeyRing* ring_to(Rank peer) const { return to_[peer].get(); }

 private:
  struct Step;
  /// A fused step is enqueued when it is known whether it is its op's last, which ends the op.
  struct FusedPending {
    std::vector<DeviceSend> sends;
    std::vector<DeviceRecv> recvs;
    DeviceStepRules rules;
  };
  /// Device memory of this group alone, cleared when it is freed.
  struct Memory {
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
  };

  explicit CudaGroup(const DeviceGroupConfig& config) : config_(config) {}
  Result<void> set_up(DeviceGroupKeys keys);
  Result<void> make_rings(DeviceGroupKeys keys);
  Result<void> make_memory();
  Result<void> make_wire();
  /// Zeroed in the order of `stream`.
  static Result<Memory> allocate(std::uint64_t bytes, const char* what, cudaStream_t stream = nullptr);
  static void release(Memory& memory);
  /// Of ranks that share a device: waits until this one has its part of kLaunchRoom free, or no op under way.
  static constexpr std::uint64_t kLaunchRoom = 768;
  Result<void> wait_for_room();
  bool busy();
  bool wait_until_idle(Deadline deadline);

  std::uint32_t world() const { return static_cast<std::uint32_t>(config_.members.size()); }
  unsigned blocks_max() const;
  template <class Move>
  SegmentJob chunk_job(const Move& move, RecordEnds ends, const MoveCut& cut, std::uint32_t chunk) const;
  bool is_fused() const;
  void count_fused(std::span<const DeviceSend> sends, std::span<const DeviceRecv> recvs);
  /// Enqueues the fused step that exchange() was given last, if any. `output`: see FusedRank::enqueue().
  Result<void> enqueue_pending(std::span<std::byte> output = {});
  Result<void> run_round(const Step& step, std::size_t round, cudaStream_t seal_stream);
  Result<void> seal_chunk(const DeviceSend& send, const MoveCut& cut, std::uint32_t chunk, unsigned share,
                          cudaStream_t stream);
  Result<void> open_chunk(const DeviceRecv& recv, const MoveCut& cut, std::uint32_t chunk,
                          const CombineOp& combine, unsigned share);
  Result<void> open_round(const Step& step, std::size_t round);
  Result<void> open_ordered(const Step& step, std::size_t round);
  Result<void> open_single(const Step& step, const ChunkOfMove& at);
  Result<const std::byte*> scaled_local(const DeviceRecv& recv, const MoveCut& cut, std::uint32_t chunk);

  const DeviceGroupConfig config_;
  unsigned multiprocessors_ = 1;
  GroupState* state_ = nullptr;
  std::unique_ptr<DeviceWire> wire_;
  WindowWire* windows_ = nullptr;     ///< the wire, where it has windows
  std::unique_ptr<FusedRank> fused_;  ///< null: every step is staged
  std::vector<std::unique_ptr<DeviceKeyRing>> to_, from_;
  Memory open_memory_;               ///< of the rings' opens, which follow one another
  Memory landing_;                   ///< a slot a peer: opened, not yet summed
  Memory sealed_from_, local_from_;  ///< a slot each: what is sealed, or taken as local, with its factor
  std::vector<Memory> scratches_;    ///< the last is in use; captured graphs may hold the others
  LentStream seal_streams_[2];       ///< of eager ops, of captured ones
  std::shared_ptr<const CopyStream> copies_;
  cudaEvent_t fork_ = nullptr, sealed_ = nullptr;
  std::shared_ptr<LaunchChain> chain_;
  bool connected_ = false;
  bool captured_ = false;              ///< graphs may hold ops of this group
  std::atomic<bool> aborted_ = false;  ///< by abort()

  // The op in progress:
  DeviceOp op_;
  cudaStream_t stream_ = nullptr;
  bool in_op_ = false;
  std::optional<FusedPending> pending_;
  unsigned long long capture_ = 0;  ///< 0: not captured
  std::uint64_t serial_ = 0;
  std::uint64_t launches_ = 0;  ///< kernels and copies of it so far, about
  DeviceGroupCounters counters_;

  std::mutex ends_mutex_;
  struct End {
    std::uint64_t serial;
    cudaEvent_t event;
    std::uint64_t launches;
  };
  std::deque<End> ends_;              ///< of ops that may be unfinished
  std::uint64_t launches_ahead_ = 0;  ///< of all of them
  std::vector<cudaEvent_t> free_events_;
  std::uint64_t finished_ = 0;
  std::mutex look_mutex_;
};

}  // namespace sealring::cuda
