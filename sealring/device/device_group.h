// DeviceGroup: one rank's end of a group's sealed moves between GPUs, as Channel is on CPUs.
//
// A caller (channel/device_channel.h) gives it the steps of a schedule one after the other; it enqueues what
// a step does on a stream and returns. Plaintext lies in device memory; what leaves the GPU is
// ciphertext||tag. Keys, numbers, tickets and the verdict live in device memory [protocol A.3, E.5], so that
// what was enqueued may be captured into a graph and replayed.
//
// What it promises: an output is the exact result, or the verdict is set and the whole output is poisoned in
// stream order; after the verdict nothing more is sealed or released, and every later op poisons its output.
// Nothing that it enqueues waits longer than the timeout. Layer rule: knows wire, never session: keys come by
// KeySource, and what peers must be told goes by offer() and connect() through the caller's sealed channel.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sealring/base/bytes.h"
#include "sealring/base/deadline.h"
#include "sealring/base/result.h"
#include "sealring/base/stream.h"
#include "sealring/base/types.h"
#include "sealring/device/key_source.h"
#include "sealring/wire/nonce_sequence.h"

namespace sealring {

/// How ciphertext gets to another GPU.
enum class DeviceWireKind : std::uint8_t {
  local,   ///< windows of ranks in one process
  ipc,     ///< windows of processes on one host, mapped
  nccl,    ///< staged: sealed here, moved by NCCL's sends and receives, opened there
  fabric,  ///< windows of processes on hosts whose GPUs share one NVLink fabric, mapped
};
std::string_view to_string(DeviceWireKind kind);

/// What is tried where the wire that was asked for does not work for some member.
enum class WireFallback : std::uint8_t {
  none,
  windows,  ///< where ipc does not work, fabric
  staged,   ///< and where windows do not, nccl
};
std::string_view to_string(WireFallback fallback);

struct DeviceGroupConfig {
  unsigned device = 0;  ///< CUDA ordinal
  Suite suite = Suite::chacha20_poly1305;
  Rank rank = 0;              ///< mine in the group
  std::vector<Rank> members;  ///< global ranks, ascending
  std::array<std::byte, 32> group_id{};
  std::array<std::byte, 64> th3{};
  KeyBudget budget;
  std::chrono::nanoseconds timeout{};  ///< of every wait on the device
  unsigned columns = 0;                ///< thread blocks of one op at most; 0: the device's choice
  DeviceWireKind wire = DeviceWireKind::ipc;
  bool fused = true;  ///< false: every step is staged, also where there is a fused kernel for it
};

/// Index: group rank; mine is null. Each gives the pair keys of one direction.
struct DeviceGroupKeys {
  std::vector<std::unique_ptr<KeySource>> to, from;
};

/// What all ranks of the group must mean alike; authenticated with every segment. As OpInfo (channel.h).
struct DeviceOp {
  Op op = Op::barrier;
  RedOp redop = RedOp::none;
  DType dtype = DType::u8;
  Algorithm algorithm = Algorithm::direct;
  Rank root = kNoRoot;
  std::uint64_t elements = 0;
  std::uint32_t tag = 0;
};

/// A record out of device memory to one peer (group rank). Any alignment of `data`.
struct DeviceSend {
  Rank peer = 0;
  std::uint16_t step = 0;
  const std::byte* data = nullptr;
  std::uint64_t elements = 0;
  std::uint64_t element_offset = 0;
  double scale = 1.0;  ///< premul_sum: applied, and rounded to the type, before sealing
};

/// A record from one peer: dst = received, or local (+) received.
struct DeviceRecv {
  Rank peer = 0;
  std::uint16_t step = 0;
  std::byte* dst = nullptr;
  std::uint64_t elements = 0;
  std::uint64_t element_offset = 0;
  const std::byte* local = nullptr;  ///< null: replace
  double local_scale = 1.0;
  std::uint32_t divisor = 1;  ///< avg's last hop
};

/// As StepRules (channel.h).
struct DeviceStepRules {
  bool ordered = false;   ///< receives with the same dst and `local` are summed in rank order, rounded once
  bool lockstep = false;  ///< a receive may overwrite a send's memory, segment for segment
};

/// How far the device has come with the ops that were enqueued outside of captures.
struct DeviceProgress {
  std::uint64_t finished = 0;  ///< ops up to and including this serial have ended
};

struct DeviceGroupCounters {
  std::uint64_t seals = 0, opens = 0;  ///< records enqueued
  std::uint64_t sealed_segments = 0, opened_segments = 0;
  std::uint64_t sealed_bytes = 0, opened_bytes = 0;
};

/// Ops are enqueued by one thread at a time, in the same order on all ranks; progress(), verdict() and
/// abort() may be called from any thread. Ops follow one another in enqueue order whatever their streams are.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;  ///< waits for the device; clears what it frees

  /// What the peers must be told before connect(), in secret and authenticated: at most kOfferBytesMax.
  static constexpr std::size_t kOfferBytesMax = 256;
  virtual Result<Bytes> offer() = 0;
  /// `offers`: every member's, by group rank. Maps the peers' windows (or sets NCCL up). May be called once.
  /// Errors: MALFORMED (an offer that no rank of this build makes), PEER_LOST, TIMEOUT, CUDA,
  /// GPU_UNSUPPORTED.
  virtual Result<void> connect(std::span<const Bytes> offers, Deadline deadline) = 0;

  /// One op: begin, its steps, end. begin makes `stream` wait for this group's op before, whatever its
  /// stream. Ranks of one process that share a device each call from a thread of their own: begin may wait
  /// there for ops that were enqueued before to end.
  virtual Result<void> begin(const DeviceOp& op, Stream& stream) = 0;
  virtual Result<void> exchange(std::span<const DeviceSend> sends, std::span<const DeviceRecv> recvs,
                                DeviceStepRules rules) = 0;
  /// Private device memory of the op in progress, for partial sums; kept for later ops. Errors:
  /// OUT_OF_MEMORY; INVALID_ARGUMENT when it would have to grow while the stream is captured.
  virtual Result<std::byte*> scratch(std::uint64_t bytes) = 0;
  /// to[i] = from[i] * scale, rounded to the type; in the op's stream order.
  virtual Result<void> copy(DType dtype, const std::byte* from, std::byte* to, std::uint64_t elements,
                            double scale) = 0;
  /// Poisons `output` in stream order if the verdict is set by then. Gives the op's serial: 1, 2, ...; 0 for
  /// an op that was captured (progress() says nothing of it).
  virtual Result<std::uint64_t> end(DType dtype, std::span<std::byte> output) = 0;

  /// Waits for nothing; also while streams are captured.
  virtual Result<DeviceProgress> progress() = 0;
  /// The verdict of all ops that have ended so far; sticky. Waits for none. Errors: DATA_TAG, TIMEOUT,
  /// ABORTED, KEY_LIMIT, SEQ_REUSE_GUARD of the ops; CUDA.
  virtual Result<void> verdict() = 0;
  /// Whoever waits on the device leaves with ABORTED, now and later. Waits for nothing. Idempotent.
  virtual void abort() noexcept = 0;
  virtual DeviceGroupCounters counters() const = 0;
  /// For ops that are in no caller's order, as those of the set-up: ranks that share a process and a device
  /// must not wait for each other in one stream. Lives as long as the group.
  virtual Stream own_stream() const = 0;
  /// "ipc windows, fused", for `describe` lines.
  virtual std::string describe() const = 0;
};

/// Errors: GPU_ABSENT, GPU_UNSUPPORTED, OUT_OF_MEMORY, CUDA, UNSUPPORTED (suite, wire), INVALID_ARGUMENT.
Result<std::unique_ptr<DeviceGroup>> make_cuda_group(const DeviceGroupConfig& config, DeviceGroupKeys keys);

}  // namespace sealring
