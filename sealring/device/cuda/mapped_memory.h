// Device memory with an address range of its own, by the driver's virtual memory functions: made here and
// exported, or imported. What a descriptor or a handle gives is exactly this memory, whole granules.
#pragma once

#include <array>

#include "sealring/device/cuda/driver_api.h"
#include "sealring/transport/socket.h"

namespace sealring::cuda {

/// By what other processes can import memory.
enum class SharedBy : std::uint8_t {
  descriptor,  ///< of a file, on the same host
  fabric,      ///< bytes, on any host whose GPUs are of the same NVLink fabric and IMEX domain
};
/// A CUmemFabricHandle. Who has it, and is in the domain, can map the memory: to be told in secret.
using FabricHandle = std::array<std::byte, 64>;

/// Owns the memory's handle, an address range and the mapping between them. Move-only. When destroyed it is
/// unmapped and let go, so nothing on the device may use it any more; the memory itself lives until the last
/// process of its host that has mapped it, or holds a descriptor of it, lets go. When that host goes away, a
/// store from another one may end that one's process.
class MappedMemory {
 public:
  MappedMemory() = default;
  MappedMemory(MappedMemory&& other) noexcept { *this = std::move(other); }
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory() { reset(); }

  /// At least `bytes`, of `device`, open for it alone. Errors: GPU_UNSUPPORTED, OUT_OF_MEMORY, CUDA.
  static Result<MappedMemory> make(unsigned device, std::uint64_t bytes,
                                   SharedBy shared = SharedBy::descriptor);
  /// The memory behind a descriptor, of `mapped_bytes` in its maker's process, open for `device`. Errors:
  /// GPU_UNSUPPORTED, CUDA.
  static Result<MappedMemory> import_from(const Fd& descriptor, std::uint64_t mapped_bytes, unsigned device);
  static Result<MappedMemory> import_from(const FabricHandle& handle, std::uint64_t mapped_bytes,
                                          unsigned device);

  /// A descriptor by which another process can import it; closed on exec. Errors: FD_LIMIT, CUDA.
  Result<Fd> export_descriptor() const;
  /// Of memory that is shared by the fabric. Errors: GPU_UNSUPPORTED, CUDA.
  Result<FabricHandle> export_fabric() const;
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  std::uint64_t mapped_bytes() const { return mapped_bytes_; }
  /// Stays mapped until the process ends.
  void leak() noexcept { leaked_ = true; }

 private:
  static Result<MappedMemory> imported(void* what, CUmemAllocationHandleType type, std::uint64_t mapped_bytes,
                                       unsigned device);
  Result<void> map_for(unsigned device);
  void reset() noexcept;

  const DriverApi* api_ = nullptr;
  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr address_ = 0;
  std::uint64_t mapped_bytes_ = 0;
  bool held_ = false, mapped_ = false, leaked_ = false;
};

}  // namespace sealring::cuda
