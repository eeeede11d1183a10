#include "sealring/device/cuda/window.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sealring/base/process_mark.h"
#include "sealring/base/secret.h"
#include "sealring/crypto/kdf.h"
#include "sealring/device/cuda/errors.h"
#include "sealring/device/cuda/lent_stream.h"
#include "sealring/device/cuda/mapped_memory.h"
#include "sealring/transport/descriptor_exchange.h"

namespace sealring::cuda {
namespace {

constexpr const char* kStage = "device.window";
constexpr std::size_t kSecretBytes = 32;
constexpr std::uint64_t kWindowBytesMax = 1ull << 40;
constexpr std::uint64_t kGranuleBytesMax = 1ull << 30;  // no device's are larger

using ProcessName = std::array<std::byte, 16>;

/// Random; a forked child has another.
ProcessName process_name() {
  struct Named {
    ProcessMark mark;
    ProcessName name;
  };
  static std::mutex mutex;
  static std::optional<Named> current;
  const std::lock_guard lock(mutex);
  if (!current || current->mark.forked()) {
    current.emplace();
    random_bytes(current->name);
  }
  return current->name;
}

using DeviceName = std::array<std::byte, 16>;

/// The same in every process, whichever devices it sees.
Result<DeviceName> device_name(int device) {
  cudaDeviceProp properties{};
  SR_TRY(checked(cudaGetDeviceProperties(&properties, device), "device"));
  DeviceName out;
  static_assert(sizeof properties.uuid == out.size());
  std::memcpy(out.data(), &properties.uuid, out.size());
  return out;
}

/// Errors when `device` cannot reach the memory of the device of this name. One that this process does not
/// see is left to the driver, which refuses the access.
Result<void> check_reach(unsigned device, const DeviceName& of_peer) {
  int devices = 0;
  SR_TRY(checked(cudaGetDeviceCount(&devices), "devices"));
  for (int other = 0; other < devices; ++other) {
    SR_TRY(const DeviceName named, device_name(other));
    if (named != of_peer || other == static_cast<int>(device)) continue;
    int can = 0;
    SR_TRY(checked(cudaDeviceCanAccessPeer(&can, static_cast<int>(device), other), "peer devices"));
    if (can == 0)
      return fail(Code::gpu_unsupported, kStage,
                  "CUDA device " + std::to_string(device) + " cannot reach the memory of device " +
                      std::to_string(other),
                  "use the staged path; nvidia-smi topo -p2p w shows which devices reach each other");
  }
  return {};
}

/// Nothing else waits for it: a device may have no room for it before an op ends that waits for another rank.
Result<void> zero(unsigned device, std::byte* data, std::uint64_t bytes) {
  SR_TRY(LentStream stream, LentStream::of(device));
  const cudaError_t enqueued = cudaMemsetAsync(data, 0, bytes, stream.get());
  const cudaError_t ended = cudaStreamSynchronize(stream.get());
  SR_TRY(checked(enqueued, "window clearing"));
  return checked(ended, "window clearing");
}

Result<void> check_size(std::uint64_t offered, std::uint64_t bytes) {
  if (offered == bytes) return {};
  Error error;
  error.code = Code::malformed;
  error.stage = kStage;
  error.what = "a peer offers a window of another size";
  error.expected = std::to_string(bytes);
  error.got = std::to_string(offered);
  return fail(std::move(error));
}

tl::unexpected<Error> no_offer(const char* why) {
  return fail(Code::malformed, kStage, std::string("a peer's offer of its window ") + why,
              "run the same build, with the same settings, on all ranks");
}

/// Whole granules that hold the window.
Result<void> check_mapping(std::uint64_t mapped, std::uint64_t bytes) {
  if (mapped < bytes || mapped - bytes >= kGranuleBytesMax) return no_offer("names no possible mapping");
  return {};
}

// Kind, process, device, address, bytes.
class LocalPeer final : public PeerWindow {
 public:
  explicit LocalPeer(std::byte* data) : data_(data) {}
  std::byte* data() const override { return data_; }

 private:
  std::byte* data_;
};

class LocalWindow final : public Window {
 public:
  LocalWindow(unsigned device, std::uint64_t bytes) : device_(device), bytes_(bytes) {}
  ~LocalWindow() override {
    if (data_ == nullptr || leaked_) return;
    const DeviceGuard guard(device_);
    cudaFree(data_);
  }
  Result<void> allocate() {
    SR_TRY(checked(cudaMalloc(&data_, bytes_), "window allocation", bytes_));
    return zero(device_, data_, bytes_);
  }
  std::byte* data() const override { return data_; }
  std::uint64_t bytes() const override { return bytes_; }
  Result<Bytes> offer() override {
    return ByteWriter()
        .put(static_cast<std::uint8_t>(DeviceWireKind::local))
        .put(ByteView(process_name()))
        .put(std::uint32_t{device_})
        .put(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(data_)))
        .put(bytes_)
        .take();
  }
  Result<std::unique_ptr<PeerWindow>> map(ByteView peer_offer, std::uint64_t bytes, Deadline) override {
    ByteReader reader(peer_offer);
    const auto kind = reader.get<std::uint8_t>();
    const auto process = reader.array<sizeof(ProcessName)>();
    const auto device = reader.get<std::uint32_t>();
    const auto address = reader.get<std::uint64_t>();
    const auto offered = reader.get<std::uint64_t>();
    if (!reader.finished() || kind != static_cast<std::uint8_t>(DeviceWireKind::local))
      return no_offer("is not one of local windows");
    if (process != process_name()) return no_offer("comes from another process: local windows serve one");
    SR_TRY(check_size(offered, bytes));
    if (device != device_)
      return fail(Code::gpu_unsupported, kStage, "local windows serve the ranks of one device",
                  "use ipc windows");
    return std::make_unique<LocalPeer>(reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address)));
  }
  void leak() noexcept override { leaked_ = true; }

 private:
  const unsigned device_;
  const std::uint64_t bytes_;
  std::byte* data_ = nullptr;
  bool leaked_ = false;
};

/// The token of one rank; what one rank knows of the secret is what all of them are told.
SecretBytes token_of(const SecretBytes& secret, Rank rank) {
  const Bytes name = label("window");
  Bytes number(sizeof rank);
  store_be(number.data(), rank);
  Hash256 made = hmac_sha256(secret.view(), {name, number});
  SecretBytes out = SecretBytes::copy_of(made);
  secure_wipe(made);
  return out;
}

class MappedPeer final : public PeerWindow {
 public:
  explicit MappedPeer(MappedMemory memory) : memory_(std::move(memory)) {}
  std::byte* data() const override { return memory_.data(); }

 private:
  MappedMemory memory_;
};

// Kind, bytes, mapped bytes, device, the socket's name, the secret.
class IpcWindow final : public Window {
 public:
  IpcWindow(unsigned device, std::uint64_t bytes, Rank me, std::uint16_t world)
      : device_(device), bytes_(bytes), me_(me), world_(world) {}
  Result<void> allocate() {
    SR_TRY(memory_, MappedMemory::make(device_, bytes_));
    return zero(device_, memory_.data(), memory_.mapped_bytes());
  }
  std::byte* data() const override { return memory_.data(); }
  std::uint64_t bytes() const override { return bytes_; }
  Result<Bytes> offer() override {
    if (!server_) {
      secret_ = SecretBytes(kSecretBytes);
      random_bytes(secret_.span());
      std::vector<SecretBytes> tokens;
      for (Rank rank = 0; rank < world_; ++rank) {
        if (rank != me_) tokens.push_back(token_of(secret_, rank));
      }
      SR_TRY(Fd descriptor, memory_.export_descriptor());
      SR_TRY(server_, DescriptorServer::start(std::move(descriptor), std::move(tokens)));
    }
    SR_TRY(const DeviceName device, device_name(static_cast<int>(device_)));
    SR_TRY(const Bytes name, from_hex(server_->name()));
    return ByteWriter()
        .put(static_cast<std::uint8_t>(DeviceWireKind::ipc))
        .put(bytes_)
        .put(memory_.mapped_bytes())
        .put(ByteView(device))
        .put(ByteView(name))
        .put(secret_.view())
        .take();
  }
  Result<std::unique_ptr<PeerWindow>> map(ByteView peer_offer, std::uint64_t bytes,
                                          Deadline deadline) override {
    ByteReader reader(peer_offer);
    const auto kind = reader.get<std::uint8_t>();
    const auto offered = reader.get<std::uint64_t>();
    const auto mapped = reader.get<std::uint64_t>();
    const auto device = reader.array<sizeof(DeviceName)>();
    const auto name = reader.array<kDescriptorNameChars / 2>();
    const ByteView secret = reader.take(kSecretBytes);
    if (!reader.finished() || kind != static_cast<std::uint8_t>(DeviceWireKind::ipc))
      return no_offer("is not one of ipc windows");
    SR_TRY(check_size(offered, bytes));
    SR_TRY(check_mapping(mapped, bytes));
    SR_TRY(check_reach(device_, device));
    const SecretBytes token = token_of(SecretBytes::copy_of(secret), me_);
    SR_TRY(const Fd descriptor, fetch_descriptor(to_hex(name), token.view(), deadline));
    SR_TRY(MappedMemory memory, MappedMemory::import_from(descriptor, mapped, device_));
    return std::make_unique<MappedPeer>(std::move(memory));
  }
  void leak() noexcept override { memory_.leak(); }

 private:
  const unsigned device_;
  const std::uint64_t bytes_;
  const Rank me_;
  const std::uint16_t world_;
  MappedMemory memory_;
  SecretBytes secret_;
  std::unique_ptr<DescriptorServer> server_;
};

// Kind, bytes, mapped bytes, the handle. Which devices reach each other only the driver knows: it refuses the
// import or the access.
class FabricWindow final : public Window {
 public:
  FabricWindow(unsigned device, std::uint64_t bytes) : device_(device), bytes_(bytes) {}
  Result<void> allocate() {
    SR_TRY(memory_, MappedMemory::make(device_, bytes_, SharedBy::fabric));
    SR_TRY(handle_, memory_.export_fabric());
    return zero(device_, memory_.data(), memory_.mapped_bytes());
  }
  std::byte* data() const override { return memory_.data(); }
  std::uint64_t bytes() const override { return bytes_; }
  Result<Bytes> offer() override {
    return ByteWriter()
        .put(static_cast<std::uint8_t>(DeviceWireKind::fabric))
        .put(bytes_)
        .put(memory_.mapped_bytes())
        .put(ByteView(handle_))
        .take();
  }
  Result<std::unique_ptr<PeerWindow>> map(ByteView peer_offer, std::uint64_t bytes, Deadline) override {
    ByteReader reader(peer_offer);
    const auto kind = reader.get<std::uint8_t>();
    const auto offered = reader.get<std::uint64_t>();
    const auto mapped = reader.get<std::uint64_t>();
    const auto handle = reader.array<sizeof(FabricHandle)>();
    if (!reader.finished() || kind != static_cast<std::uint8_t>(DeviceWireKind::fabric))
      return no_offer("is not one of fabric windows");
    SR_TRY(check_size(offered, bytes));
    SR_TRY(check_mapping(mapped, bytes));
    SR_TRY(MappedMemory memory, MappedMemory::import_from(handle, mapped, device_));
    return std::make_unique<MappedPeer>(std::move(memory));
  }
  void leak() noexcept override { memory_.leak(); }

 private:
  const unsigned device_;
  const std::uint64_t bytes_;
  MappedMemory memory_;
  FabricHandle handle_{};
};

template <class Made>
Result<std::unique_ptr<Window>> allocated(std::unique_ptr<Made> window) {
  SR_TRY(window->allocate());
  return window;
}

}  // namespace

Result<std::unique_ptr<Window>> Window::make(unsigned device, std::uint64_t bytes, DeviceWireKind kind,
                                             Rank me, std::uint16_t world) {
  if (bytes == 0 || bytes > kWindowBytesMax || me >= world)
    return fail(Code::invalid_argument, kStage, "a window has 1 byte to 1 TiB and a rank of its world");
  const DeviceGuard guard(device);
  if (const cudaError_t chosen = cudaSetDevice(static_cast<int>(device)); chosen != cudaSuccess)
    return fail(error_of(chosen, "device", 0, static_cast<int>(device)));
  switch (kind) {
    case DeviceWireKind::local:
      return allocated(std::make_unique<LocalWindow>(device, bytes));
    case DeviceWireKind::ipc:
      return allocated(std::make_unique<IpcWindow>(device, bytes, me, world));
    case DeviceWireKind::fabric:
      return allocated(std::make_unique<FabricWindow>(device, bytes));
    case DeviceWireKind::nccl:
      break;
  }
  return fail(Code::invalid_argument, kStage, "the staged path has no windows");
}

}  // namespace sealring::cuda
