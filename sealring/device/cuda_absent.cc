// Stands in for device/cuda/ where no nvcc was found: a full product for CPU ranks.
#include "sealring/device/backend.h"
#include "sealring/device/device_group.h"
#include "sealring/device/device_runtime.h"
#include "sealring/device/nccl_baseline.h"

namespace sealring {

bool cuda_built() noexcept { return false; }

unsigned cuda_device_count() noexcept { return 0; }

namespace {

tl::unexpected<Error> absent() {
  return fail(Code::gpu_absent, "device.cuda", "this build has no CUDA code",
              "build again with nvcc in PATH, or use CPU tensors");
}

}  // namespace

Result<std::unique_ptr<BulkCipher>> make_cuda_bulk_cipher(unsigned) { return absent(); }

Result<std::unique_ptr<DeviceRuntime>> make_cuda_runtime(unsigned) { return absent(); }

Result<Bytes> nccl_unique_id() { return absent(); }

Result<std::unique_ptr<NcclBaseline>> make_nccl_baseline(const NcclConfig&) { return absent(); }

Result<std::unique_ptr<DeviceGroup>> make_cuda_group(const DeviceGroupConfig&, DeviceGroupKeys) {
  return absent();
}

}  // namespace sealring
