// DeviceWire over windows: a chunk is sealed straight into the peer's memory; words and gates keep the order.
#pragma once

#include <memory>
#include <vector>

#include "sealring/device/cuda/gate_body.h"
#include "sealring/device/cuda/window.h"
#include "sealring/device/cuda/wire.h"

namespace sealring::cuda {

class WindowWire final : public DeviceWire {
 public:
  /// `state` lies on the device and has ranks and rank set; the wire fills in its windows and their shape.
  /// `beside_bytes`: room in each window for others (the fused kernels), zeroed. Errors: those of
  /// Window::make; CUDA.
  static Result<std::unique_ptr<WindowWire>> make(const DeviceGroupConfig& config, GroupState* state,
                                                  std::uint64_t beside_bytes);
  ~WindowWire() override;
  WindowWire(const WindowWire&) = delete;
  WindowWire& operator=(const WindowWire&) = delete;

  Result<Bytes> offer() override;
  Result<void> connect(std::span<const Bytes> offers, Deadline deadline) override;
  Result<void> ready(const WireRound& round, void* stream) override;
  std::byte* out_place(Rank peer) override;
  Result<void> sent(const WireRound& round, void* stream) override;
  Result<void> arrived(const WireRound& round, void* stream) override;
  Result<void> exchanged(const WireRound& round, void* stream) override;
  const std::byte* in_place(Rank peer) override;
  Result<void> taken(const WireRound& round, void* stream) override;
  void abort() noexcept override {}  // the gates see the group's abort word
  void leak() noexcept override;
  std::string describe() const override;

  /// The room beside, in my window and, once connected, in a peer's.
  std::byte* beside() const { return window_->data() + beside_offset(); }
  std::byte* beside_of(Rank peer) const { return peers_[peer].window->data() + beside_offset(); }
  /// Tests: a rank's own window.
  std::byte* window() const { return window_->data(); }
  const WireShape& shape() const { return shape_; }

 private:
  std::uint64_t beside_offset() const { return (shape_.bytes() + 127) / 128 * 128; }
  void post_flags(const WireRound& round, GateJob& gate) const;
  void wait_for_flags(const WireRound& round, GateJob& gate) const;

  struct Peer {
    std::unique_ptr<PeerWindow> window;
    std::uint64_t chunks_out = 0, chunks_in = 0;  ///< enqueued so far: both ends count alike
    std::uint8_t out_slot = 0, in_slot = 0;       ///< of the round that began last
  };
  WindowWire(unsigned device, Rank rank, DeviceWireKind kind) : device_(device), rank_(rank), kind_(kind) {}

  unsigned device_;
  Rank rank_;
  DeviceWireKind kind_;
  WireShape shape_;
  GroupState* state_ = nullptr;
  std::unique_ptr<Window> window_;
  std::vector<Peer> peers_;
};

}  // namespace sealring::cuda
