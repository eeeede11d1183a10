#include "sealring/device/cuda/copy_stream.h"

#include <map>
#include <mutex>

#include "sealring/device/cuda/errors.h"

namespace sealring::cuda {

Result<std::shared_ptr<const CopyStream>> CopyStream::of(unsigned device) {
  static std::mutex mutex;
  static std::map<unsigned, std::weak_ptr<const CopyStream>> streams;
  const std::lock_guard lock(mutex);
  std::weak_ptr<const CopyStream>& known = streams[device];
  if (auto stream = known.lock()) return stream;
  const DeviceGuard guard(device);
  std::shared_ptr<CopyStream> out(new CopyStream);
  out->device_ = device;
  SR_TRY(checked(cudaStreamCreateWithFlags(&out->stream_, cudaStreamNonBlocking), "stream"));
  known = out;
  return std::shared_ptr<const CopyStream>(std::move(out));
}

CopyStream::~CopyStream() {
  if (stream_ == nullptr) return;
  const DeviceGuard guard(device_);
  cudaStreamDestroy(stream_);
}

}  // namespace sealring::cuda
