#include "sealring/device/cuda/lent_stream.h"

#include <mutex>
#include <utility>
#include <vector>

#include "sealring/device/cuda/capture.h"
#include "sealring/device/cuda/errors.h"

namespace sealring::cuda {
namespace {

struct Free {
  std::mutex mutex;
  std::vector<std::pair<unsigned, cudaStream_t>> streams;
};
Free& free_streams() {
  static Free* const all = new Free;  // streams may be given back while the process ends
  return *all;
}

/// Not so of one that an unfinished capture has, or of a device that was reset since.
bool is_idle(cudaStream_t stream) {
  const RelaxedCapture relaxed;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const bool idle = cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
                    status == cudaStreamCaptureStatusNone && cudaStreamQuery(stream) == cudaSuccess;
  if (!idle) cudaGetLastError();  // is not the next call's
  return idle;
}

}  // namespace

Result<LentStream> LentStream::of(unsigned device) {
  const DeviceGuard guard(device);
  Free& all = free_streams();
  {
    const std::lock_guard lock(all.mutex);
    for (auto at = all.streams.begin(); at != all.streams.end();) {
      const auto [of_device, stream] = *at;
      if (of_device != device) {
        ++at;
        continue;
      }
      at = all.streams.erase(at);
      if (is_idle(stream)) return LentStream(device, stream);
    }
  }
  int lowest = 0, highest = 0;
  SR_TRY(checked(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "query"));
  cudaStream_t stream = nullptr;
  SR_TRY(checked(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest), "stream"));
  return LentStream(device, stream);
}

LentStream::LentStream(LentStream&& other) noexcept
    : device_(other.device_), stream_(std::exchange(other.stream_, nullptr)) {}

LentStream& LentStream::operator=(LentStream&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(stream_, other.stream_);
  return *this;
}

LentStream::~LentStream() {
  if (stream_ == nullptr) return;
  Free& all = free_streams();
  const std::lock_guard lock(all.mutex);
  all.streams.emplace_back(device_, stream_);
}

}  // namespace sealring::cuda
