// The public API: a session of ranks, its communicators, and sealed collectives on them.
//
//   Session::connect -> world communicator -> all_reduce(...) -> Ticket -> wait
//   Session::split   -> communicator of a subgroup, with keys of its own
//
// Operations of one communicator run in the order in which they were issued, in its own thread; send and recv
// run beside them, in order per peer and direction. Any error is final for the whole session (all
// communicators).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sealring/base/deadline.h"
#include "sealring/base/result.h"
#include "sealring/base/stream.h"
#include "sealring/base/types.h"
#include "sealring/collective/config.h"
#include "sealring/device/bulk_cipher.h"
#include "sealring/device/device_group.h"
#include "sealring/session/identity.h"
#include "sealring/transport/store.h"
#include "sealring/transport/transport.h"

namespace sealring {

/// Contiguous elements owned by the caller, who keeps them alive and untouched until the ticket is done.
struct Tensor {
  void* data = nullptr;
  std::uint64_t elements = 0;
  DType dtype = DType::f32;
};

struct Reduction {
  RedOp op = RedOp::sum;
  double factor = 1.0;  ///< premul_sum: each input is scaled by it first
};

/// Totals since the session began; of one communicator.
struct Counters {
  std::uint64_t ops = 0;               ///< collectives and point-to-point operations completed
  std::uint64_t seals = 0, opens = 0;  ///< crypto operations: one a record
  std::uint64_t sealed_segments = 0, opened_segments = 0;
  std::uint64_t sealed_bytes = 0, opened_bytes = 0;  ///< payload
  std::uint64_t seal_ns = 0, open_ns = 0,
                wire_ns = 0;  ///< time inside seal, open(+combine), and the rest of exchange
  Epoch epoch = 0;            ///< highest epoch entered on any key
};

/// The future of one operation. Copyable handle; thread-safe.
class Ticket {
 public:
  /// Returns the verdict: nothing is released to the output before its tags were accepted, and after an error
  /// the whole output is poisoned. Errors: any of 6xx and 7xx; TIMEOUT when `deadline` passes first (the op
  /// goes on).
  Result<void> wait(Deadline deadline) const;
  bool done() const;
  /// Runs in the communicator's thread (at once if done). Must not block.
  void on_done(std::function<void(const Result<void>&)> callback) const;

 private:
  friend class Communicator;
  friend struct TicketState;
  std::shared_ptr<struct TicketState> state_;
};

/// One group. Thread-safe; calls are ordered as they come. Methods return at once with a ticket, or
/// INVALID_ARGUMENT/UNSUPPORTED for what can be seen locally (nothing is sent then, and no memory touched).
/// On a dead session an operation fails as one under way does: by its ticket, with the first error and a
/// poisoned output.
///
/// `stream`: where tensors lie in device memory, the operation takes its place in the stream's order, and
/// runs behind the communicator's operation before, whatever stream that was on. A CPU communicator has no
/// streams: INVALID_ARGUMENT for a native one.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual Rank rank() const = 0;  ///< in the group
  virtual std::uint16_t size() const = 0;
  virtual const std::vector<Rank>& global_ranks() const = 0;  ///< ascending

  /// out may equal in. elements equal.
  virtual Result<Ticket> all_reduce(Tensor in, Tensor out, Reduction reduction, Stream stream = {}) = 0;
  /// in.elements == size() * out.elements; out may lie inside in at rank()*out.elements.
  virtual Result<Ticket> reduce_scatter(Tensor in, Tensor out, Reduction reduction, Stream stream = {}) = 0;
  /// out.elements == size() * in.elements; in may lie inside out at rank()*in.elements.
  virtual Result<Ticket> all_gather(Tensor in, Tensor out, Stream stream = {}) = 0;
  virtual Result<Ticket> broadcast(Tensor data, Rank root, Stream stream = {}) = 0;
  /// out used at root only
  virtual Result<Ticket> reduce(Tensor in, Tensor out, Reduction reduction, Rank root,
                                Stream stream = {}) = 0;
  /// out used at root only
  virtual Result<Ticket> gather(Tensor in, Tensor out, Rank root, Stream stream = {}) = 0;
  /// in used at root only
  virtual Result<Ticket> scatter(Tensor in, Tensor out, Rank root, Stream stream = {}) = 0;
  /// size() equal pieces
  virtual Result<Ticket> all_to_all(Tensor in, Tensor out, Stream stream = {}) = 0;
  virtual Result<Ticket> barrier(Stream stream = {}) = 0;
  /// Matched by issue order per direction; an unequal tag, size or dtype is an error, never a reorder.
  virtual Result<Ticket> send(Tensor data, Rank peer, std::uint32_t tag, Stream stream = {}) = 0;
  virtual Result<Ticket> recv(Tensor data, Rank peer, std::uint32_t tag, Stream stream = {}) = 0;
  /// From the first peer whose next message has begun to arrive; the source is in source() of the result when
  /// done. UNSUPPORTED for tensors in device memory.
  virtual Result<Ticket> recv_any(Tensor data, std::uint32_t tag, std::shared_ptr<Rank> source,
                                  Stream stream = {}) = 0;

  virtual Counters counters() const = 0;
  virtual std::string describe() const = 0;  ///< one line: ranks, suite, identity, transport, epoch, totals
  /// Bounds each operation from its issue on.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
};

/// Makes one rank's end of a group on a device: make_cuda_group, or a test's double.
using DeviceGroupFactory = std::function<Result<std::unique_ptr<DeviceGroup>>(const DeviceGroupConfig& config,
                                                                              DeviceGroupKeys keys)>;

/// Where the tensors of a communicator lie and how ciphertext gets from one device to another. All but
/// `device` and `factory` must be alike on all members (CONFIG).
struct DevicePlace {
  unsigned device = 0;
  DeviceWireKind wire = DeviceWireKind::ipc;
  unsigned columns = 0;  ///< as DeviceGroupConfig::columns
  WireFallback fallback = WireFallback::staged;
  DeviceGroupFactory factory = make_cuda_group;

  /// The same under SEALRING_PATH: "staged" takes DeviceWireKind::nccl, "fused" never falls back to it.
  DevicePlace under(const Environment& environment) const;
};

/// Whole life of a rank in a job: handshake, connections, control plane, all groups.
class Session {
 public:
  /// Runs the handshake over `store` and connects. `prefix` separates jobs in one store. `cipher`: the
  /// device's; null means make_cpu_bulk_cipher().
  ///
  /// Errors: 1xx, 2xx..5xx ("no key was released"), TIMEOUT naming the missing ranks. Every other rank gets a
  /// note.
  static Result<std::shared_ptr<Session>> connect(const CommConfig& config, Identity identity,
                                                  std::unique_ptr<Transport> transport,
                                                  std::shared_ptr<Store> store, const std::string& prefix,
                                                  std::shared_ptr<BulkCipher> cipher = nullptr);
  virtual ~Session() = default;
  virtual std::shared_ptr<Communicator> world() = 0;
  /// Collective over `members` (ascending global ranks that hold me). `store`/`prefix` carry the exchange; a
  /// prefix is used for one split. Subgroups have fresh keys and streams of their own.
  virtual Result<std::shared_ptr<Communicator>> split(const std::vector<Rank>& members, Store& store,
                                                      const std::string& prefix) = 0;
  /// The same for tensors in the memory of a device: a communicator whose operations are enqueued on streams.
  ///
  /// Before it returns, all members have agreed that sealed data gets through between their devices. Errors:
  /// split's; GPU_ABSENT, GPU_UNSUPPORTED, CUDA, OUT_OF_MEMORY, UNSUPPORTED, TIMEOUT of whichever member had
  /// them, with its rank; CONFIG when members differ in `place`.
  virtual Result<std::shared_ptr<Communicator>> split_on_device(const std::vector<Rank>& members,
                                                                DevicePlace place, Store& store,
                                                                const std::string& prefix) = 0;
  /// Ends the session on every reachable rank with `error` as the reason. Idempotent.
  virtual void abort(Error error) noexcept = 0;
  /// Orderly end: waits for issued operations, tells the peers, closes. Also done by the destructor, with a
  /// short wait.
  virtual Result<void> close(Deadline deadline) = 0;
  virtual std::optional<Error> error() const = 0;
  virtual const CommConfig& config() const = 0;
  virtual std::string identity() const = 0;   ///< "job key, not attested"
  virtual std::string transport() const = 0;  ///< "tcp eth0 ..."
  /// Time of the handshake and of the connections, for the study.
  virtual std::uint64_t setup_ns() const = 0;
};

}  // namespace sealring
