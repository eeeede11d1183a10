// BulkCipher: seals and opens many segments of one move on one device.
//
// One implementation a device: device/cpu (OpenSSL), device/cuda (our kernels). Layer rule: knows wire, never
// session; keys are passed down by the channel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "sealring/base/bytes.h"
#include "sealring/base/result.h"
#include "sealring/base/secret.h"
#include "sealring/base/stream.h"
#include "sealring/base/types.h"
#include "sealring/wire/nonce_sequence.h"
#include "sealring/wire/record.h"

namespace sealring {

/// A traffic key loaded into a device. Cleared when destroyed.
class DeviceKey {
 public:
  virtual ~DeviceKey() = default;
  virtual Suite suite() const = 0;
  virtual Epoch epoch() const = 0;
};

/// What happens to opened plaintext: dst[i] = f(local[i], received[i]), in this order or, with
/// `received_first`, in the other.
///
/// `replace` ignores local. Reductions apply `redop`; premul_sum has been applied by the sender's side to
/// what it sends (see Combine in collective/schedule.h) and reduces as sum. `scale` multiplies the result
/// (avg's 1/n on the last hop), integers divide by `divisor` with truncation. 16-bit floats are computed in
/// fp32 and rounded once.
struct CombineSpec {
  RedOp redop = RedOp::none;  ///< none: replace
  DType dtype = DType::u8;
  const std::byte* local = nullptr;  ///< first element of the segment range; may equal dst
  std::byte* dst = nullptr;          ///< first element of the segment range; any alignment
  std::uint32_t divisor = 1;         ///< world size when avg is completed by this combine, else 1
  bool received_first = false;       ///< decides between -0 and +0 in min and max, and between two NaNs
};

/// `segments` consecutive segments of a record, beginning with index context.segment.
///
/// `context` describes the first of them; the cipher advances segment, element_offset and payload_bytes
/// itself from `layout`. `plaintext` points at the first segment's first byte; `wire` receives
/// ciphertext||tag of each, packed.
struct SealJob {
  const DeviceKey* key = nullptr;
  SealPermit permit;
  RecordContext context;
  RecordLayout layout;
  std::uint32_t segments = 1;
  const std::byte* plaintext = nullptr;
  std::byte* wire = nullptr;
};

/// The receiving side of the same. Nothing reaches combine.dst before its segment's tag has been accepted.
struct OpenJob {
  const DeviceKey* key = nullptr;
  std::uint64_t first_number = 0;
  RecordContext context;
  RecordLayout layout;
  std::uint32_t segments = 1;
  const std::byte* wire = nullptr;
  CombineSpec combine;
};

/// Whether a call waits for the device.
enum class Await { stream, nothing };

/// Thread-safe: seal and open may run in several threads on one key.
///
/// With a stream of the caller's (Stream::native), seal and open return when the work is enqueued: what the
/// device finds out later is in verdict(). Without one they return it themselves.
class BulkCipher {
 public:
  virtual ~BulkCipher() = default;
  /// Errors: SUITE (unknown), INVALID_ARGUMENT (sizes), OUT_OF_MEMORY, CUDA.
  virtual Result<std::unique_ptr<DeviceKey>> load(Suite suite, Epoch epoch, const SecretBytes& key,
                                                  const SecretBytes& iv) = 0;
  virtual Result<void> seal(SealJob job, Stream& stream) = 0;
  /// Errors: DATA_TAG; on it the failing segment and all later ones of the job have left dst unchanged.
  virtual Result<void> open(const OpenJob& job, Stream& stream) = 0;
  /// The first error of all work under `key` so far; sticky: behind it nothing more was sealed or released,
  /// and every later output is poison.
  ///
  /// Await::stream waits until all that was enqueued on `stream` has ended, so {} vouches for all of it; it
  /// blocks the calling thread, and is refused while `stream` is captured. Await::nothing waits for no work:
  /// {} says that none which has ended failed; it may be called at any time, also while streams are captured.
  /// A device that works while the call lasts has nothing left to say here: {}. Errors: DATA_TAG, KEY_LIMIT,
  /// SEQ_REUSE_GUARD of the work; INVALID_ARGUMENT (captured), CUDA of this call.
  virtual Result<void> verdict(const DeviceKey& /*key*/, Stream& /*stream*/, Await /*await*/) { return {}; }
};

/// OpenSSL EVP; one context per (thread, key), made once. `plain` copies and writes a zero tag (study);
/// `chained-gmac` is ordinary GCM at segment = chain size (protocol C.3).
std::unique_ptr<BulkCipher> make_cpu_bulk_cipher();

/// dst[i] = reduce over sources in order (16-bit types in fp32, one rounding; `divisor` as in CombineSpec;
/// premul as `scale` applied to each source first, 1.0 = none). Sources and dst may alias element for
/// element.
struct ReduceJob {
  DType dtype = DType::f32;
  RedOp redop = RedOp::sum;
  std::span<const std::byte* const> sources;
  std::byte* dst = nullptr;
  std::uint64_t elements = 0;
  std::uint32_t divisor = 1;
  double scale = 1.0;
};
/// Errors: UNSUPPORTED for a (dtype, redop) pair outside the table in docs/wire-format.md (premul_sum of
/// integers, avg of bool, ...).
Result<void> reduce_cpu(const ReduceJob& job);
/// Which pairs exist; the same on every device.
bool reduction_supported(DType dtype, RedOp redop);
/// Fills with the failure pattern: NaN for floats, all bits one otherwise, true for bool (protocol A.5).
void poison(DType dtype, std::span<std::byte> memory) noexcept;

/// A fixed set of worker threads for seal and open jobs; zero workers: run() executes at once in the caller.
class WorkerPool {
 public:
  explicit WorkerPool(unsigned workers);
  ~WorkerPool();
  unsigned workers() const;
  /// A handle that wait() takes exactly once, from the submitting thread.
  class Task;
  std::shared_ptr<Task> run(std::function<Result<void>()> work);
  Result<void> wait(const std::shared_ptr<Task>& task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sealring
