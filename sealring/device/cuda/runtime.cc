#include <cuda_runtime.h>

#include <utility>
#include <vector>

#include "sealring/device/cuda/errors.h"
#include "sealring/device/cuda/launch.h"
#include "sealring/device/device_runtime.h"

namespace sealring {
namespace cuda {
namespace {

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(unsigned device, cudaStream_t stream, cudaGraphExec_t exec)
      : device_(device), stream_(stream), exec_(exec) {}
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() override {
    const DeviceGuard guard(device_);
    cudaStreamSynchronize(stream_);
    cudaGraphExecDestroy(exec_);
  }
  Result<void> launch() override {
    const DeviceGuard guard(device_);
    return checked(cudaGraphLaunch(exec_, stream_), "graph launch");
  }

 private:
  unsigned device_;
  cudaStream_t stream_;
  cudaGraphExec_t exec_;
};

class CudaRuntime final : public DeviceRuntime {
 public:
  explicit CudaRuntime(unsigned device) : device_(device) {}
  CudaRuntime(const CudaRuntime&) = delete;
  CudaRuntime& operator=(const CudaRuntime&) = delete;
  ~CudaRuntime() override {
    const DeviceGuard guard(device_);
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    for (std::byte* const memory : memory_) cudaFree(memory);
    for (cudaEvent_t const event : clock_) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  Result<void> start() {
    const DeviceGuard guard(device_);
    SR_TRY(checked(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"));
    for (cudaEvent_t& event : clock_) SR_TRY(checked(cudaEventCreate(&event), "event"));
    return {};
  }

  Stream stream() const override { return Stream{stream_}; }
  unsigned device() const override { return device_; }

  Result<std::byte*> allocate(std::uint64_t bytes) override {
    const DeviceGuard guard(device_);
    void* memory = nullptr;
    SR_TRY(checked(cudaMalloc(&memory, bytes == 0 ? 1 : bytes), "memory", bytes));
    memory_.push_back(static_cast<std::byte*>(memory));
    return memory_.back();
  }
  Result<void> copy_in(std::byte* to, ByteView from) override {
    return copy(to, from.data(), from.size(), cudaMemcpyHostToDevice);
  }
  Result<void> copy_out(std::span<std::byte> to, const std::byte* from) override {
    return copy(to.data(), from, to.size(), cudaMemcpyDeviceToHost);
  }

  Result<void> start_clock() override { return note(clock_[0]); }
  Result<void> stop_clock() override { return note(clock_[1]); }
  Result<double> elapsed_us() override {
    const DeviceGuard guard(device_);
    float milliseconds = 0;
    SR_TRY(checked(cudaEventSynchronize(clock_[1]), "clock"));
    SR_TRY(checked(cudaEventElapsedTime(&milliseconds, clock_[0], clock_[1]), "clock"));
    return static_cast<double>(milliseconds) * 1e3;
  }

  Result<void> begin_capture() override {
    const DeviceGuard guard(device_);
    return checked(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
  }
  Result<std::unique_ptr<DeviceGraph>> end_capture() override {
    const DeviceGuard guard(device_);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    SR_TRY(checked(cudaStreamEndCapture(stream_, &graph), "capture"));
    const cudaError_t made = cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    SR_TRY(checked(made, "graph"));
    return std::unique_ptr<DeviceGraph>(std::make_unique<CudaGraph>(device_, stream_, exec));
  }

 private:
  Result<void> copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const DeviceGuard guard(device_);
    const cudaError_t enqueued = cudaMemcpyAsync(to, from, bytes, kind, stream_);
    const cudaError_t ended = cudaStreamSynchronize(stream_);
    SR_TRY(checked(enqueued, "copy"));
    return checked(ended, "copy");
  }
  Result<void> note(cudaEvent_t event) {
    const DeviceGuard guard(device_);
    return checked(cudaEventRecord(event, stream_), "clock");
  }

  unsigned device_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t clock_[2] = {};
  std::vector<std::byte*> memory_;
};

}  // namespace
}  // namespace cuda

Result<std::unique_ptr<DeviceRuntime>> make_cuda_runtime(unsigned device) {
  SR_TRY(cuda::prepare_device(device));
  auto runtime = std::make_unique<cuda::CudaRuntime>(device);
  SR_TRY(runtime->start());
  return std::unique_ptr<DeviceRuntime>(std::move(runtime));
}

}  // namespace sealring
