// BulkCipher on a CUDA device: the library's jobs, enqueued in stream order.
#include <cuda_runtime.h>

#include <mutex>

#include "sealring/device/backend.h"
#include "sealring/device/cuda/errors.h"
#include "sealring/device/cuda/launch.h"
#include "sealring/device/cuda/make_job.h"

namespace sealring {
namespace cuda {
namespace {

class CudaKey final : public DeviceKey {
 public:
  CudaKey(std::unique_ptr<DeviceKeyRing> ring, Epoch epoch) : ring_(std::move(ring)), epoch_(epoch) {}
  Suite suite() const override { return ring_->suite(); }
  Epoch epoch() const override { return epoch_; }

  /// One thread at a time; without a stream of the caller's the verdict is awaited.
  Result<void> run(const SegmentJob& job, Direction direction, const OpRequest& numbers, void* stream) const {
    const std::lock_guard lock(mutex_);
    SR_TRY(ring_->enqueue(job, direction, numbers, stream));
    if (stream == nullptr) return ring_->verdict(stream);
    return {};
  }
  /// Any thread: nothing of the ring is changed.
  Result<void> verdict(void* stream, Await await) const {
    return await == Await::stream ? ring_->verdict(stream) : ring_->verdict_so_far();
  }

 private:
  std::unique_ptr<DeviceKeyRing> ring_;
  Epoch epoch_;
  mutable std::mutex mutex_;
};

class CudaBulkCipher final : public BulkCipher {
 public:
  explicit CudaBulkCipher(unsigned device) : device_(device) {}

  Result<std::unique_ptr<DeviceKey>> load(Suite suite, Epoch epoch, const SecretBytes& key,
                                          const SecretBytes& iv) override {
    bool known = false;
    for (const KernelEntry& entry : kernel_list()) known = known || entry.suite == kernel_suite(suite);
    if (!known)
      return fail(Code::suite, "device.load",
                  "the CUDA device has no kernel for " + std::string(to_string(suite)));
    // The channel counts; the device's own limits are the protocol's, and no rotation inside one key.
    SR_TRY(auto ring, DeviceKeyRing::make(device_, suite, epoch, KeyBudget{}));
    SR_TRY(ring->upload(epoch, key, iv));
    return std::make_unique<CudaKey>(std::move(ring), epoch);
  }

  Result<void> seal(SealJob given, Stream& stream) override {
    const auto& key = static_cast<const CudaKey&>(*given.key);
    SegmentJob job = segment_job_of(key.suite(), given.context, given.layout, given.segments);
    job.plaintext = given.plaintext;
    job.wire = given.wire;
    job.combine.dtype = given.context.dtype;
    OpRequest numbers;
    numbers.numbers = Numbers::seal_at;
    numbers.epoch = key.epoch();
    numbers.first_number = given.permit.first();
    numbers.seq = given.context.seq;
    SR_CHECK(given.permit.remaining() >= given.segments, "permit", given.permit.remaining());
    (void)given.permit.split(given.segments);  // spent, whatever happens
    return key.run(job, Direction::seal, numbers, stream.native);
  }

  Result<void> open(const OpenJob& given, Stream& stream) override {
    const auto& key = static_cast<const CudaKey&>(*given.key);
    SegmentJob job = segment_job_of(key.suite(), given.context, given.layout, given.segments);
    job.wire = const_cast<std::byte*>(given.wire);  // only read
    job.combine.redop = given.combine.redop;
    job.combine.dtype = given.combine.redop == RedOp::none ? given.context.dtype : given.combine.dtype;
    job.combine.local = given.combine.local;
    job.combine.dst = given.combine.dst;
    job.combine.divisor = given.combine.divisor;
    job.combine.received_first = given.combine.received_first;
    OpRequest numbers;
    numbers.numbers = Numbers::open_at;
    numbers.epoch = key.epoch();
    numbers.first_number = given.first_number;
    numbers.seq = given.context.seq;
    return key.run(job, Direction::open, numbers, stream.native);
  }

  Result<void> verdict(const DeviceKey& key, Stream& stream, Await await) override {
    return static_cast<const CudaKey&>(key).verdict(stream.native, await);
  }

 private:
  unsigned device_;
};

}  // namespace
}  // namespace cuda

bool cuda_built() noexcept { return true; }

unsigned cuda_device_count() noexcept {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? static_cast<unsigned>(count) : 0;
}

Result<std::unique_ptr<BulkCipher>> make_cuda_bulk_cipher(unsigned device) {
  SR_TRY(cuda::prepare_device(device));
  return std::unique_ptr<BulkCipher>(std::make_unique<cuda::CudaBulkCipher>(device));
}

}  // namespace sealring
