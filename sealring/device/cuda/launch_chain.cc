#include "sealring/device/cuda/launch_chain.h"

#include <map>
#include <mutex>
#include <utility>

#include "sealring/device/cuda/errors.h"

namespace sealring::cuda {

Result<std::shared_ptr<LaunchChain>> LaunchChain::make(unsigned device) {
  const DeviceGuard guard(device);
  std::shared_ptr<LaunchChain> out(new LaunchChain);
  out->device_ = device;
  for (cudaEvent_t* const event : {&out->last_, &out->inner_})
    SR_TRY(checked(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "event"));
  return out;
}

Result<std::shared_ptr<LaunchChain>> LaunchChain::of_rank(unsigned device, Rank global_rank) {
  static std::mutex mutex;
  static std::map<std::pair<unsigned, Rank>, std::weak_ptr<LaunchChain>> chains;
  const std::lock_guard lock(mutex);
  std::weak_ptr<LaunchChain>& known = chains[{device, global_rank}];
  if (auto chain = known.lock()) return chain;
  SR_TRY(auto chain, make(device));
  known = chain;
  return chain;
}

LaunchChain::~LaunchChain() {
  const DeviceGuard guard(device_);
  for (const cudaEvent_t event : {last_, inner_}) {
    if (event != nullptr) cudaEventDestroy(event);
  }
}

// Unlike handles, ids are not given to another stream later.
Result<unsigned long long> LaunchChain::id_of(cudaStream_t stream) {
  unsigned long long id = 0;
  SR_TRY(checked(cudaStreamGetId(stream, &id), "order"));
  return id;
}

Result<void> LaunchChain::wait(cudaStream_t stream, unsigned long long capture) {
  const std::lock_guard lock(mutex_);
  if (capture != 0 && capture == capture_) return checked(cudaStreamWaitEvent(stream, inner_, 0), "order");
  if (capture == 0 && !captured_ && stream != cudaStreamPerThread) {
    // A wait that the stream's own order makes needless would keep the next kernel from an early launch.
    SR_TRY(const unsigned long long id, id_of(stream));
    if (id == last_stream_) return {};
  }
  const unsigned flags = capture != 0 ? cudaEventWaitExternal : cudaEventWaitDefault;
  return checked(cudaStreamWaitEvent(stream, last_, flags), "order");
}

Result<void> LaunchChain::record(cudaStream_t stream, unsigned long long capture) {
  const std::lock_guard lock(mutex_);
  if (capture == 0) {
    SR_TRY(last_stream_, id_of(stream));
    return checked(cudaEventRecord(last_, stream), "order");
  }
  captured_ = true;
  SR_TRY(checked(cudaEventRecordWithFlags(last_, stream, cudaEventRecordExternal), "order"));
  SR_TRY(checked(cudaEventRecord(inner_, stream), "order"));
  capture_ = capture;
  return {};
}

bool LaunchChain::busy() const { return cudaEventQuery(last_) == cudaErrorNotReady; }

}  // namespace sealring::cuda
