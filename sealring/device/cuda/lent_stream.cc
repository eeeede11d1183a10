#include "sealring/device/cuda/lent_stream.h"

#include <mutex>
#include <utility>
#include <vector>

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

}  // namespace

Result<LentStream> LentStream::of(unsigned device) {
  Free& all = free_streams();
  {
    const std::lock_guard lock(all.mutex);
    for (auto at = all.streams.begin(); at != all.streams.end(); ++at) {
      if (at->first != device) continue;
      const cudaStream_t stream = at->second;
      all.streams.erase(at);
      return LentStream(device, stream);
    }
  }
  const DeviceGuard guard(device);
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
