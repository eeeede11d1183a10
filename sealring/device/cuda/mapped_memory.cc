#include "sealring/device/cuda/mapped_memory.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "sealring/device/cuda/errors.h"

namespace sealring::cuda {
namespace {

static_assert(sizeof(FabricHandle) == sizeof(CUmemFabricHandle));

CUmemAllocationHandleType type_of(SharedBy shared) {
  return shared == SharedBy::fabric ? CU_MEM_HANDLE_TYPE_FABRIC : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

/// The runtime's context of the current device, made current for the driver's functions.
Result<void> make_context() { return checked(cudaFree(nullptr), "context"); }

Result<void> demand(const DriverApi& api, CUdevice device, CUdevice_attribute attribute, const char* what) {
  int value = 0;
  SR_TRY(driver_checked(api.device_attribute(&value, attribute, device), "device attributes"));
  if (value != 0) return {};
  return fail(Code::gpu_unsupported, "device.window",
              "CUDA device " + std::to_string(device) + " cannot " + what,
              "use the staged path, or local windows for the ranks of one process");
}

Result<void> demand_sharing(const DriverApi& api, CUdevice device, SharedBy shared) {
  if (shared == SharedBy::fabric)
    return demand(api, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
                  "share memory over an NVLink fabric");
  return demand(api, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                "share memory by file descriptors");
}

CUmemAllocationProp properties_of(CUdevice device, SharedBy shared) {
  CUmemAllocationProp out{};
  out.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  out.requestedHandleTypes = type_of(shared);
  out.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  out.location.id = device;
  return out;
}

}  // namespace

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  if (this == &other) return *this;
  reset();
  api_ = other.api_;
  handle_ = other.handle_;
  address_ = std::exchange(other.address_, 0);
  mapped_bytes_ = other.mapped_bytes_;
  held_ = std::exchange(other.held_, false);
  mapped_ = std::exchange(other.mapped_, false);
  leaked_ = other.leaked_;
  return *this;
}

void MappedMemory::reset() noexcept {
  if (leaked_) return;
  if (mapped_) api_->unmap(address_, mapped_bytes_);
  if (address_ != 0) api_->unreserve(address_, mapped_bytes_);
  if (held_) api_->release(handle_);
  mapped_ = held_ = false;
  address_ = 0;
}

Result<MappedMemory> MappedMemory::make(unsigned device, std::uint64_t bytes, SharedBy shared) {
  const DeviceGuard guard(device);
  SR_TRY(make_context());
  MappedMemory out;
  SR_TRY(out.api_, driver_api());
  const DriverApi& api = *out.api_;
  CUdevice number = 0;
  SR_TRY(driver_checked(api.device_get(&number, static_cast<int>(device)), "device"));
  SR_TRY(demand(api, number, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "map memory by hand"));
  SR_TRY(demand_sharing(api, number, shared));
  const CUmemAllocationProp properties = properties_of(number, shared);
  std::size_t granule = 0;
  SR_TRY(driver_checked(api.granularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                        "granularity"));
  SR_CHECK(granule != 0);
  out.mapped_bytes_ = (bytes + granule - 1) / granule * granule;
  SR_TRY(driver_checked(api.create(&out.handle_, out.mapped_bytes_, &properties, 0), "window allocation",
                        out.mapped_bytes_));
  out.held_ = true;
  SR_TRY(out.map_for(device));
  return out;
}

Result<MappedMemory> MappedMemory::import_from(const Fd& descriptor, std::uint64_t mapped_bytes,
                                               unsigned device) {
  void* const number = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor.get()));
  return imported(number, type_of(SharedBy::descriptor), mapped_bytes, device);
}

Result<MappedMemory> MappedMemory::import_from(const FabricHandle& handle, std::uint64_t mapped_bytes,
                                               unsigned device) {
  CUmemFabricHandle copy{};
  std::memcpy(&copy, handle.data(), handle.size());
  return imported(&copy, type_of(SharedBy::fabric), mapped_bytes, device);
}

Result<MappedMemory> MappedMemory::imported(void* what, CUmemAllocationHandleType type,
                                            std::uint64_t mapped_bytes, unsigned device) {
  const DeviceGuard guard(device);
  SR_TRY(make_context());
  MappedMemory out;
  SR_TRY(out.api_, driver_api());
  out.mapped_bytes_ = mapped_bytes;
  SR_TRY(driver_checked(out.api_->import_handle(&out.handle_, what, type), "window import"));
  out.held_ = true;
  SR_TRY(out.map_for(device));
  return out;
}

Result<void> MappedMemory::map_for(unsigned device) {
  CUdevice number = 0;
  SR_TRY(driver_checked(api_->device_get(&number, static_cast<int>(device)), "device"));
  SR_TRY(driver_checked(api_->reserve(&address_, mapped_bytes_, 0, 0, 0), "window addresses"));
  SR_TRY(driver_checked(api_->map(address_, mapped_bytes_, 0, handle_, 0), "window mapping"));
  mapped_ = true;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = number;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return driver_checked(api_->set_access(address_, mapped_bytes_, &access, 1), "window access");
}

Result<Fd> MappedMemory::export_descriptor() const {
  int number = -1;
  SR_TRY(driver_checked(api_->export_handle(&number, handle_, type_of(SharedBy::descriptor), 0),
                        "window export"));
  Fd out(number);
  if (::fcntl(number, F_SETFD, FD_CLOEXEC) != 0)
    return fail(socket_error(errno, Code::cuda, "device.window", "setting up the window's descriptor"));
  return out;
}

Result<FabricHandle> MappedMemory::export_fabric() const {
  FabricHandle out{};
  SR_TRY(driver_checked(api_->export_handle(out.data(), handle_, type_of(SharedBy::fabric), 0),
                        "window export"));
  return out;
}

}  // namespace sealring::cuda
