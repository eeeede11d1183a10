#include "sealring/study/bench_memory.h"

#include <algorithm>
#include <cstring>

namespace sealring {
namespace {

class HostMemory final : public BenchMemory {
 public:
  Result<void> reserve(std::uint64_t in_bytes, std::uint64_t out_bytes) override {
    in_.resize(std::max<std::uint64_t>(in_.size(), in_bytes));
    out_.resize(std::max<std::uint64_t>(out_.size(), out_bytes));
    return {};
  }
  std::byte* in() override { return in_.data(); }
  std::byte* out() override { return out_.data(); }
  Result<void> write(std::byte* to, ByteView from) override {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
    return {};
  }
  Result<void> read(std::span<std::byte> to, const std::byte* from) override {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
    return {};
  }
  DeviceRuntime* runtime() override { return nullptr; }

 private:
  Bytes in_, out_;
};

class GpuMemory final : public BenchMemory {
 public:
  explicit GpuMemory(std::unique_ptr<DeviceRuntime> runtime) : runtime_(std::move(runtime)) {}

  Result<void> reserve(std::uint64_t in_bytes, std::uint64_t out_bytes) override {
    SR_TRY(grow(in_, in_bytes));
    return grow(out_, out_bytes);
  }
  std::byte* in() override { return in_.at; }
  std::byte* out() override { return out_.at; }
  Result<void> write(std::byte* to, ByteView from) override { return runtime_->copy_in(to, from); }
  Result<void> read(std::span<std::byte> to, const std::byte* from) override {
    return runtime_->copy_out(to, from);
  }
  DeviceRuntime* runtime() override { return runtime_.get(); }

 private:
  struct Buffer {
    std::byte* at = nullptr;
    std::uint64_t bytes = 0;
  };
  // Sizes rise in a benchmark: each allocation is at least twice the one before, so that what is left behind
  // is less than what is in use.
  Result<void> grow(Buffer& buffer, std::uint64_t bytes) {
    if (bytes <= buffer.bytes) return {};
    bytes = std::max(bytes, 2 * buffer.bytes);
    SR_TRY(buffer.at, runtime_->allocate(bytes));
    buffer.bytes = bytes;
    return {};
  }

  std::unique_ptr<DeviceRuntime> runtime_;
  Buffer in_, out_;
};

}  // namespace

unsigned gpu_of_rank(const BenchSpec& spec, unsigned local_rank) {
  return spec.ranks_per_gpu == 0 ? local_rank : 0;
}

Result<std::unique_ptr<BenchMemory>> make_bench_memory(const BenchSpec& spec, unsigned local_rank) {
  if (!spec.cuda) return std::unique_ptr<BenchMemory>(std::make_unique<HostMemory>());
  SR_TRY(auto runtime, make_cuda_runtime(gpu_of_rank(spec, local_rank)));
  return std::unique_ptr<BenchMemory>(std::make_unique<GpuMemory>(std::move(runtime)));
}

}  // namespace sealring
