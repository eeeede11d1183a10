#include "sealring/device/nccl_baseline.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "sealring/device/cuda/errors.h"
#include "sealring/device/cuda/nccl_api.h"

namespace sealring {
namespace cuda {
namespace {

constexpr const char* kStage = "bench.nccl";
constexpr int kManyBlocks = 32, kManyBlocksMax = 64;
constexpr int kSymmetricWindow = 1;  ///< NCCL_WIN_COLL_SYMMETRIC

Result<NcclType> type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return NcclType::float32;
    case DType::f64:
      return NcclType::float64;
    case DType::f16:
      return NcclType::float16;
    case DType::bf16:
      return NcclType::bfloat16;
    case DType::i8:
      return NcclType::int8;
    case DType::u8:
      return NcclType::uint8;
    case DType::i32:
      return NcclType::int32;
    case DType::i64:
      return NcclType::int64;
    case DType::i16:
    case DType::boolean:
      break;
  }
  return fail(Code::unsupported, kStage, "NCCL has no type " + std::string(to_string(dtype)));
}

class Baseline final : public NcclBaseline {
 public:
  Baseline(const NcclApi& api, const sealring::NcclConfig& config) : api_(api), config_(config) {}
  Baseline(const Baseline&) = delete;
  Baseline& operator=(const Baseline&) = delete;
  ~Baseline() override {
    const DeviceGuard guard(config_.device);
    cudaDeviceSynchronize();
    for (Buffer& buffer : buffers_) {
      if (buffer.window != nullptr) api_.window_deregister(comm_, buffer.window);
    }
    if (comm_ != nullptr) api_.comm_destroy(comm_);
    for (Buffer& buffer : buffers_) {
      if (buffer.at != nullptr) api_.mem_free(buffer.at);
    }
  }

  // Blocking, as PyTorch's own communicators are by default.
  Result<void> start() {
    const DeviceGuard guard(config_.device);
    SR_TRY(check_nccl_environment());
    if (config_.variant == NcclVariant::windows &&
        (api_.mem_alloc == nullptr || api_.window_register == nullptr || api_.window_deregister == nullptr))
      return fail(Code::unsupported, kStage,
                  "NCCL " + nccl_version_text(api_.version) + " has no windows; 2.27 or newer is needed");
    NcclUniqueId id;
    SR_CHECK(config_.unique_id.size() == id.bytes.size(), "NCCL's unique id", config_.unique_id.size());
    std::memcpy(id.bytes.data(), config_.unique_id.data(), id.bytes.size());
    NcclConfig config;
    config.blocking = 1;
    if (config_.variant == NcclVariant::blocks) {
      config.min_ctas = kManyBlocks;
      config.max_ctas = kManyBlocksMax;
    }
    return nccl_checked(api_, api_.comm_init(&comm_, config_.world, id, config_.rank, &config), "init");
  }

  Result<NcclBuffers> buffers(std::uint64_t in_bytes, std::uint64_t out_bytes) override {
    if (config_.variant != NcclVariant::windows) return NcclBuffers{};
    const DeviceGuard guard(config_.device);
    SR_TRY(grow(buffers_[0], in_bytes));
    SR_TRY(grow(buffers_[1], out_bytes));
    return NcclBuffers{buffers_[0].at, buffers_[1].at};
  }

  Result<void> enqueue(Op op, DType dtype, const std::byte* in, std::byte* out, std::uint64_t count,
                       Rank root, Stream stream) override {
    const DeviceGuard guard(config_.device);
    SR_TRY(const NcclType type, type_of(dtype));
    switch (op) {
      case Op::all_reduce:
        return nccl_checked(api_, api_.all_reduce(in, out, count, type, NcclOp::sum, comm_, stream.native),
                            "all_reduce");
      case Op::reduce_scatter:
        return nccl_checked(api_,
                            api_.reduce_scatter(in, out, count, type, NcclOp::sum, comm_, stream.native),
                            "reduce_scatter");
      case Op::all_gather:
        return nccl_checked(api_, api_.all_gather(in, out, count, type, comm_, stream.native), "all_gather");
      case Op::broadcast:
        return nccl_checked(api_, api_.broadcast(in, out, count, type, root, comm_, stream.native),
                            "broadcast");
      default:
        break;
    }
    return fail(Code::unsupported, kStage, "NCCL is not compared for " + std::string(to_string(op)),
                "take nccl out of --suite");
  }

  std::string describe() const override { return "NCCL " + nccl_version_text(api_.version); }

 private:
  struct Buffer {
    std::byte* at = nullptr;
    std::uint64_t bytes = 0;
    NcclWindowHandle window = nullptr;
  };
  // Collective: all ranks ask for the same sizes in the same order.
  Result<void> grow(Buffer& buffer, std::uint64_t bytes) {
    if (bytes <= buffer.bytes) return {};
    SR_TRY(checked(cudaDeviceSynchronize(), "memory"));
    if (buffer.window != nullptr)
      SR_TRY(nccl_checked(api_, api_.window_deregister(comm_, buffer.window), "window"));
    if (buffer.at != nullptr) SR_TRY(nccl_checked(api_, api_.mem_free(buffer.at), "memory"));
    buffer = Buffer{};
    constexpr std::uint64_t kStep = 2ull << 20;
    bytes = (bytes + kStep - 1) / kStep * kStep;
    void* memory = nullptr;
    SR_TRY(nccl_checked(api_, api_.mem_alloc(&memory, bytes), "memory"));
    buffer.at = static_cast<std::byte*>(memory);
    buffer.bytes = bytes;
    return nccl_checked(api_, api_.window_register(comm_, memory, bytes, &buffer.window, kSymmetricWindow),
                        "window");
  }

  const NcclApi& api_;
  const sealring::NcclConfig config_;
  NcclCommHandle comm_ = nullptr;
  Buffer buffers_[2];
};

}  // namespace
}  // namespace cuda

Result<Bytes> nccl_unique_id() {
  SR_TRY(const cuda::NcclApi* const api, cuda::nccl_api());
  SR_TRY(cuda::check_nccl_environment());
  cuda::NcclUniqueId id;
  SR_TRY(cuda::nccl_checked(*api, api->get_unique_id(&id), "unique id"));
  Bytes out(id.bytes.size());
  std::memcpy(out.data(), id.bytes.data(), out.size());
  return out;
}

Result<std::unique_ptr<NcclBaseline>> make_nccl_baseline(const NcclConfig& config) {
  SR_TRY(const cuda::NcclApi* const api, cuda::nccl_api());
  auto baseline = std::make_unique<cuda::Baseline>(*api, config);
  SR_TRY(baseline->start());
  return std::unique_ptr<NcclBaseline>(std::move(baseline));
}

}  // namespace sealring
