// The bulk cipher of a CPU: vector AES where the processor has it, else one OpenSSL Aead a concurrent call,
// kept by the key and used again.
//
// open: OpenSSL releases plaintext before it has checked the tag, so a segment is decrypted into private
// scratch of the calling thread, and only an accepted one is combined into the tensor (design decision 5).
#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "sealring/crypto/aead.h"
#include "sealring/device/bulk_cipher.h"
#include "sealring/device/cpu/vaes_gcm.h"

namespace sealring {
namespace {

constexpr std::string_view kSealStage = "data.seal";
constexpr std::string_view kOpenStage = "data.open";

tl::unexpected<Error> out_of_memory(std::string_view stage) {
  return fail(Code::out_of_memory, std::string(stage), "no memory for the cipher's scratch");
}

// The cipher behind a suite. [protocol C.3] chained-gmac: ordinary GCM records, one a chain.
Suite cipher_of(Suite suite) { return suite == Suite::chained_gmac ? Suite::aes_256_gcm : suite; }

class CpuKey final : public DeviceKey {
 public:
  CpuKey(Suite suite, Epoch epoch, const SecretBytes& key, const SecretBytes& iv)
      : suite_(suite),
        epoch_(epoch),
        key_(key.clone()),
        iv_(iv.clone()),
        vaes_(make_vaes_gcm(cipher_of(suite), key_.view())) {}
  Suite suite() const override { return suite_; }
  Epoch epoch() const override { return epoch_; }
  ByteView iv() const { return iv_.view(); }
  const VaesGcm* vaes() const { return vaes_.get(); }

  // An Aead serves one thread at a time; as many exist as calls ever ran at once.
  Result<std::unique_ptr<Aead>> borrow() const {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto aead = std::move(idle_.back());
        idle_.pop_back();
        return aead;
      }
    }
    SR_TRY(Aead made, Aead::make(cipher_of(suite_), key_.view()));
    return std::make_unique<Aead>(std::move(made));
  }
  void give_back(std::unique_ptr<Aead> aead) const {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(aead));
  }

 private:
  Suite suite_;
  Epoch epoch_;
  SecretBytes key_, iv_;
  std::unique_ptr<VaesGcm> vaes_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Aead>> idle_;
};

// Borrows for one job.
class Borrowed {
 public:
  explicit Borrowed(const CpuKey& key) : key_(key) {}
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() {
    if (aead_) key_.give_back(std::move(aead_));
    secure_wipe(iv_);
  }
  Result<void> take() {
    if (key_.vaes() == nullptr) {
      SR_TRY(aead_, key_.borrow());
    }
    std::memcpy(iv_.data(), key_.iv().data(), iv_.size());
    return {};
  }
  Result<Tag> seal(std::uint64_t number, ByteView aad, ByteView in, std::span<std::byte> out) const {
    if (key_.vaes() == nullptr) return aead_->seal(nonce(number), aad, in, out);
    return key_.vaes()->seal(nonce(number), aad, in, out.data());
  }
  /// `out` is private scratch; it holds nothing usable after an error.
  Result<void> open(std::uint64_t number, ByteView aad, ByteView in, const Tag& tag,
                    std::span<std::byte> out) const {
    if (key_.vaes() == nullptr) return aead_->open(nonce(number), aad, in, tag, out);
    const Tag computed = key_.vaes()->open_unverified(nonce(number), aad, in, out.data());
    if (constant_time_equal(computed, tag)) return {};
    secure_wipe(out);
    return fail(Code::data_tag, std::string(kOpenStage), "a tag was not accepted");
  }

 private:
  Nonce nonce(std::uint64_t number) const { return nonce_of(iv_, number); }

  const CpuKey& key_;
  std::unique_ptr<Aead> aead_;
  Nonce iv_{};
};

// The calling thread's private plaintext scratch: grows to the largest segment it has opened.
std::span<std::byte> scratch(std::size_t bytes) {
  thread_local std::unique_ptr<std::byte[]> memory;
  thread_local std::size_t capacity = 0;
  if (capacity < bytes) {
    capacity = 0;
    memory.reset(new std::byte[bytes]);  // not zeroed
    capacity = bytes;
  }
  return {memory.get(), bytes};
}

// Walks the segments of a job: `visit(k, context)` with the context of the k-th, its place in the payload
// relative to the job's first segment, and in the wire bytes likewise.
struct Place {
  std::uint64_t payload = 0, wire = 0;
  std::uint32_t payload_bytes = 0;
};
template <class Job>
class Segments {
 public:
  explicit Segments(const Job& job) : job_(job), element_bytes_(dtype_bytes(job.context.dtype)) {
    const std::uint64_t end = std::uint64_t{job.context.segment} + job.segments;
    SR_CHECK(job.layout.segment_bytes > 0 && end <= job.layout.segments(), "end", end, "segments",
             job.layout.segments());
    SR_CHECK(job.layout.segment_bytes % element_bytes_ == 0, "segment", job.layout.segment_bytes);
  }
  Place place(std::uint32_t k) const {
    const std::uint32_t first = job_.context.segment;
    return Place{job_.layout.payload_offset(first + k) - job_.layout.payload_offset(first),
                 job_.layout.wire_offset(first + k) - job_.layout.wire_offset(first),
                 job_.layout.payload_of(first + k)};
  }
  Aad aad(std::uint32_t k) const {
    const Place at = place(k);
    RecordContext context = job_.context;
    context.suite = job_.key->suite();
    context.epoch = job_.key->epoch();
    context.segment += k;
    context.segments = job_.layout.segments();
    context.payload_bytes = at.payload_bytes;
    context.element_offset += at.payload / element_bytes_;
    return aad_of(context);
  }

 private:
  const Job& job_;
  std::uint32_t element_bytes_;
};

tl::unexpected<Error> refused(const RecordContext& context, std::uint32_t segment) {
  Error error;
  error.code = Code::data_tag;
  error.peer = context.sender;
  error.stage = kOpenStage;
  error.what = "a record of " + std::string(to_string(context.op)) + " number " +
               std::to_string(context.seq) + " from rank " + std::to_string(context.sender) +
               " is not authentic (step " + std::to_string(context.step) + ", segment " +
               std::to_string(segment) + ")";
  return fail(std::move(error));
}

// local and an accepted segment into dst.
Result<void> combine_segment(const CombineSpec& combine, const Place& at, const std::byte* received) {
  if (at.payload_bytes == 0) return {};
  std::byte* const dst = combine.dst + at.payload;
  if (combine.redop == RedOp::none) {
    std::memcpy(dst, received, at.payload_bytes);
    return {};
  }
  const std::byte* sources[] = {combine.local + at.payload, received};
  if (combine.received_first) std::swap(sources[0], sources[1]);
  ReduceJob job;
  job.dtype = combine.dtype;
  job.redop = combine.redop;  // premul_sum: what was sent and local are scaled already, so scale stays 1
  job.sources = sources;
  job.dst = dst;
  job.elements = at.payload_bytes / dtype_bytes(combine.dtype);
  job.divisor = combine.divisor;
  return reduce_cpu(job);
}

class CpuBulkCipher final : public BulkCipher {
 public:
  Result<std::unique_ptr<DeviceKey>> load(Suite suite, Epoch epoch, const SecretBytes& key,
                                          const SecretBytes& iv) override {
    if (suite != Suite::plain) {
      if (key.size() != suite_key_bytes(cipher_of(suite)) || iv.size() != kNonceBytes) {
        return fail(Code::invalid_argument, "device.load", "a key or its iv has the wrong size");
      }
      // Once here, so that a suite which this OpenSSL lacks is an error now and not in the middle of an
      // operation.
      SR_TRY([[maybe_unused]] const Aead probe, Aead::make(cipher_of(suite), key.view()));
    }
    return std::make_unique<CpuKey>(suite, epoch, key, iv);
  }

  Result<void> seal(SealJob job, Stream&) override {
    try {
      return job.key->suite() == Suite::plain ? seal_plain(job) : seal_segments(job);
    } catch (const std::bad_alloc&) {
      return out_of_memory(kSealStage);
    }
  }

  Result<void> open(const OpenJob& job, Stream&) override {
    try {
      return job.key->suite() == Suite::plain ? open_plain(job) : open_segments(job);
    } catch (const std::bad_alloc&) {
      return out_of_memory(kOpenStage);
    }
  }

 private:
  static Result<void> seal_segments(SealJob& job) {
    const Segments segments(job);
    Borrowed borrowed(static_cast<const CpuKey&>(*job.key));
    SR_TRY(borrowed.take());
    for (std::uint32_t k = 0; k < job.segments; ++k) {
      const Place at = segments.place(k);
      const Aad aad = segments.aad(k);
      std::byte* const wire = job.wire + at.wire;
      SR_TRY(const Tag tag,
             borrowed.seal(job.permit.spend(), std::as_bytes(std::span(aad)),
                           {job.plaintext + at.payload, at.payload_bytes}, {wire, at.payload_bytes}));
      std::memcpy(wire + at.payload_bytes, tag.data(), tag.size());
    }
    return {};
  }

  static Result<void> open_segments(const OpenJob& job) {
    const Segments segments(job);
    Borrowed borrowed(static_cast<const CpuKey&>(*job.key));
    SR_TRY(borrowed.take());
    for (std::uint32_t k = 0; k < job.segments; ++k) {
      const Place at = segments.place(k);
      const Aad aad = segments.aad(k);
      const std::byte* const wire = job.wire + at.wire;
      const std::span<std::byte> plaintext = scratch(at.payload_bytes);
      Tag tag;
      std::memcpy(tag.data(), wire + at.payload_bytes, tag.size());
      const Result<void> opened = borrowed.open(job.first_number + k, std::as_bytes(std::span(aad)),
                                                {wire, at.payload_bytes}, tag, plaintext);
      if (!opened) return refused(job.context, job.context.segment + k);
      SR_TRY(combine_segment(job.combine, at, plaintext.data()));
    }
    return {};
  }

  // The study's baseline: the same layout, numbers and order, a copy and a zero tag. Without authentication
  // there is nothing to wait for, so a segment goes from the wire straight into the tensor.
  static Result<void> seal_plain(SealJob& job) {
    const Segments segments(job);
    for (std::uint32_t k = 0; k < job.segments; ++k) {
      const Place at = segments.place(k);
      std::byte* const wire = job.wire + at.wire;
      job.permit.spend();
      if (at.payload_bytes > 0) std::memcpy(wire, job.plaintext + at.payload, at.payload_bytes);
      std::memset(wire + at.payload_bytes, 0, kTagBytes);
    }
    return {};
  }

  static Result<void> open_plain(const OpenJob& job) {
    const Segments segments(job);
    constexpr Tag kZero{};
    for (std::uint32_t k = 0; k < job.segments; ++k) {
      const Place at = segments.place(k);
      const std::byte* const wire = job.wire + at.wire;
      if (!constant_time_equal({wire + at.payload_bytes, kTagBytes}, kZero)) {
        return refused(job.context, job.context.segment + k);
      }
      SR_TRY(combine_segment(job.combine, at, wire));
    }
    return {};
  }
};

}  // namespace

std::unique_ptr<BulkCipher> make_cpu_bulk_cipher() { return std::make_unique<CpuBulkCipher>(); }

}  // namespace sealring
