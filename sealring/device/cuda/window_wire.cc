#include "sealring/device/cuda/window_wire.h"

#include "sealring/device/cuda/errors.h"
#include "sealring/device/cuda/gate.h"
#include "sealring/device/cuda/group_shape.h"

namespace sealring::cuda {
namespace {

template <class Field>
Result<void> write_field(Field* at, const Field& value) {
  return checked(cudaMemcpy(at, &value, sizeof value, cudaMemcpyHostToDevice), "windows");
}

}  // namespace

Result<std::unique_ptr<WindowWire>> WindowWire::make(const DeviceGroupConfig& config, GroupState* state,
                                                     std::uint64_t beside_bytes) {
  const DeviceGuard guard(config.device);
  std::unique_ptr<WindowWire> out(new WindowWire(config.device, config.rank, config.wire));
  const auto ranks = static_cast<std::uint32_t>(config.members.size());
  out->state_ = state;
  out->shape_ = WireShape::of(ranks, slot_bytes_of(config));
  SR_TRY(out->window_, Window::make(config.device, out->beside_offset() + beside_bytes, config.wire,
                                    config.rank, static_cast<std::uint16_t>(ranks)));
  out->peers_.resize(ranks);
  SR_TRY(write_field(&state->shape, out->shape_));
  SR_TRY(write_field(&state->windows[config.rank], out->window_->data()));
  return out;
}

WindowWire::~WindowWire() {
  peers_.clear();  // closes the peers' windows before mine is freed
}

Result<Bytes> WindowWire::offer() { return window_->offer(); }

Result<void> WindowWire::connect(std::span<const Bytes> offers, Deadline deadline) {
  const DeviceGuard guard(device_);
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    if (peer == rank_) continue;
    SR_TRY(peers_[peer].window, window_->map(offers[peer], window_->bytes(), deadline));
    SR_TRY(write_field(&state_->windows[peer], peers_[peer].window->data()));
  }
  return {};
}

Result<void> WindowWire::ready(const WireRound& round, void* stream) {
  GateJob gate = GateJob::of();
  gate.wait = GateWord::credit;
  for (const WireChunk& chunk : round.out) {
    Peer& peer = peers_[chunk.peer];
    peer.out_slot = gate.waits[chunk.peer] = static_cast<std::uint8_t>(peer.chunks_out++ % kWireSlots);
  }
  for (const WireChunk& chunk : round.in) {
    Peer& peer = peers_[chunk.peer];
    peer.in_slot = static_cast<std::uint8_t>(peer.chunks_in++ % kWireSlots);
  }
  if (round.out.empty()) return {};
  return enqueue_gate(state_, gate, stream);
}

std::byte* WindowWire::out_place(Rank peer) {
  return peers_[peer].window->data() + shape_.slot_offset(peer, rank_, peers_[peer].out_slot);
}

void WindowWire::post_flags(const WireRound& round, GateJob& gate) const {
  gate.post = GateWord::flag;
  for (const WireChunk& chunk : round.out) gate.posts[chunk.peer] = peers_[chunk.peer].out_slot;
}

void WindowWire::wait_for_flags(const WireRound& round, GateJob& gate) const {
  gate.wait = GateWord::flag;
  for (const WireChunk& chunk : round.in) gate.waits[chunk.peer] = peers_[chunk.peer].in_slot;
}

Result<void> WindowWire::sent(const WireRound& round, void* stream) {
  if (round.out.empty()) return {};
  GateJob gate = GateJob::of();
  post_flags(round, gate);
  return enqueue_gate(state_, gate, stream);
}

Result<void> WindowWire::arrived(const WireRound& round, void* stream) {
  if (round.in.empty()) return {};
  GateJob gate = GateJob::of();
  wait_for_flags(round, gate);
  return enqueue_gate(state_, gate, stream);
}

Result<void> WindowWire::exchanged(const WireRound& round, void* stream) {
  GateJob gate = GateJob::of();
  post_flags(round, gate);
  wait_for_flags(round, gate);
  return enqueue_gate(state_, gate, stream);
}

const std::byte* WindowWire::in_place(Rank peer) {
  return window_->data() + shape_.slot_offset(rank_, peer, peers_[peer].in_slot);
}

Result<void> WindowWire::taken(const WireRound& round, void* stream) {
  if (round.in.empty()) return {};
  GateJob gate = GateJob::of();
  gate.post = GateWord::credit;
  for (const WireChunk& chunk : round.in) gate.posts[chunk.peer] = peers_[chunk.peer].in_slot;
  return enqueue_gate(state_, gate, stream);
}

void WindowWire::leak() noexcept { window_->leak(); }

std::string WindowWire::describe() const { return std::string(to_string(kind_)) + " windows"; }

}  // namespace sealring::cuda
