// What the tests on a GPU share: device memory, and a record sealed by the oracle and opened by kernels or
// the reverse.
#pragma once

#include <cuda_runtime.h>

#include "sealring/device/backend.h"
#include "sealring/device/cuda/launch.h"
#include "tests/bodies/cuda_body_rig.h"

namespace sealring::cuda::test {

inline std::string why_no_gpu() {
  if (const auto ready = prepare_device(0); !ready) return ready.error().message();
  return {};
}

/// The base of every test here: skipped, with the reason, where there is no device that can run the kernels.
class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    static const std::string reason = why_no_gpu();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

/// Device memory whose first byte lies `shift` bytes behind a multiple of 256, exactly as long as asked for.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes, std::size_t shift = 0) : bytes_(bytes), shift_(shift) {
    EXPECT_EQ(cudaMalloc(&base_, bytes + shift + 1), cudaSuccess);
    fill(0xA5);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { cudaFree(base_); }
  std::byte* data() { return base_ + shift_; }
  void fill(int value) { EXPECT_EQ(cudaMemset(base_, value, bytes_ + shift_), cudaSuccess); }
  void set(ByteView bytes) {
    EXPECT_EQ(cudaMemcpy(data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  Bytes get() {
    Bytes out(bytes_);
    EXPECT_EQ(cudaMemcpy(out.data(), data(), bytes_, cudaMemcpyDeviceToHost), cudaSuccess);
    return out;
  }

 private:
  std::byte* base_ = nullptr;
  std::size_t bytes_, shift_;
};

inline SecretBytes secret(ByteView bytes) { return SecretBytes::copy_of(bytes); }

/// A ring that holds the record's key and whose counters stand at the record's numbers.
inline std::unique_ptr<DeviceKeyRing> ring_of(const Record& record, KeyBudget budget = {}) {
  auto ring = DeviceKeyRing::make(0, record.suite, record.op.epoch, budget);
  EXPECT_TRUE(ring) << ring.error().message();
  EXPECT_TRUE((*ring)->upload(record.op.epoch, secret(record.key_bytes), secret(record.iv_bytes)));
  return std::move(*ring);
}

/// Numbers that the test names: an open spends none.
inline OpRequest named(const Record& record) {
  OpRequest out;
  out.numbers = Numbers::open_at;
  out.epoch = record.op.epoch;
  out.first_number = record.op.first_number;
  out.seq = record.op.seq;
  return out;
}

/// Seals on the device; gives the wire. The record's numbers are random: the device's counter is moved there.
inline Bytes sealed_on_gpu(const Record& record, std::size_t shift, const KernelEntry* entry = nullptr,
                           unsigned columns = 0) {
  const auto ring = ring_of(record, KeyBudget{~0ull, ~0ull, ~0ull, ~0ull, ~0ull});
  const std::uint64_t first = record.op.first_number;
  EXPECT_EQ(cudaMemcpy(&ring->state()->segments, &first, sizeof first, cudaMemcpyHostToDevice), cudaSuccess);
  OpRequest numbers = named(record);
  numbers.numbers = Numbers::seal_at;
  ring->limit_columns(columns);
  DeviceMemory in(record.plaintext.size(), shift);
  DeviceMemory wire(record.wire.size());
  in.set(record.plaintext);
  SegmentJob job = record.job();
  job.plaintext = in.data();
  job.wire = wire.data();
  job.combine.dtype = record.context.dtype;
  const auto enqueued = ring->enqueue(job, Direction::seal, numbers, nullptr, entry);
  EXPECT_TRUE(enqueued) << enqueued.error().message();
  const auto verdict = ring->verdict(nullptr);
  EXPECT_TRUE(verdict) << verdict.error().message();
  return wire.get();
}

/// Opens `wire_bytes` on the device into `dst`; gives the verdict.
inline Result<void> opened_on_gpu(const Record& record, ByteView wire_bytes, CombineOp combine,
                                  DeviceMemory& dst, const KernelEntry* entry = nullptr,
                                  unsigned columns = 0) {
  const auto ring = ring_of(record);
  ring->limit_columns(columns);
  DeviceMemory wire(wire_bytes.size());
  wire.set(wire_bytes);
  SegmentJob job = record.job();
  job.wire = wire.data();
  job.combine = combine;
  job.combine.dst = dst.data();
  job.combine.local = dst.data();
  SR_TRY(ring->enqueue(job, Direction::open, named(record), nullptr, entry));
  return ring->verdict(nullptr);
}

}  // namespace sealring::cuda::test
