// DeviceWire: where the chunks of a round are sealed to and found, and what stands between in stream order.
//
// A round is what goes together: at most one chunk to, and one from, each peer. Rounds are given in the same
// order on all ranks. For each round the group enqueues:
//
//   ready(seal stream), the seals into out_place(), sent(seal stream),
//   arrived(open stream), the opens out of in_place(), taken(open stream)
//
// The two streams may be one. Where they are two, `arrived` is enqueued behind an event that waits for this
// round's seals. Rounds overlap: the seals of round r+1 may run beside the opens of round r.
//
// All of it may be captured into a graph; only sizes and addresses are then fixed, never counts. What a wire
// waits for, it waits for no longer than the group's timeout. Nothing that lies in a place or in a word is
// believed. [protocol E.1-3]
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "sealring/base/bytes.h"
#include "sealring/base/deadline.h"
#include "sealring/base/result.h"
#include "sealring/base/types.h"

namespace sealring::cuda {

/// Ciphertext and tags of one chunk, `wire_bytes` of them, to or from a group rank.
struct WireChunk {
  Rank peer = 0;
  std::uint64_t wire_bytes = 0;
};
struct WireRound {
  std::span<const WireChunk> out, in;
};

/// Streams are cudaStream_t. Used by the one thread that enqueues the group's ops, but for abort().
class DeviceWire {
 public:
  virtual ~DeviceWire() = default;

  /// As DeviceGroup's. With one rank neither is called.
  virtual Result<Bytes> offer() = 0;
  virtual Result<void> connect(std::span<const Bytes> offers, Deadline deadline) = 0;

  /// Until out_place(peer) may be written, for every peer of round.out. Begins the round: the places are its.
  virtual Result<void> ready(const WireRound& round, void* stream) = 0;
  /// Of the round that began last: aligned to 128 bytes, slot_bytes_of(config) long.
  virtual std::byte* out_place(Rank peer) = 0;
  virtual Result<void> sent(const WireRound& round, void* stream) = 0;
  /// Until in_place(peer) holds what the peer sent, for every peer of round.in; or until an error, which the
  /// group's state has then.
  virtual Result<void> arrived(const WireRound& round, void* stream) = 0;
  /// Of the round that began last; untrusted, and changes while it is read.
  virtual const std::byte* in_place(Rank peer) = 0;
  /// sent() and arrived() where both streams are one.
  virtual Result<void> exchanged(const WireRound& round, void* stream) {
    SR_TRY(sent(round, stream));
    return arrived(round, stream);
  }
  virtual Result<void> taken(const WireRound& round, void* stream) = 0;

  /// From any thread, and also when the group has a verdict: what waits outside of the group's gates ends.
  virtual void abort() noexcept = 0;
  /// Before it is destroyed after an error, or with ops unfinished: what peers may still write is not freed.
  virtual void leak() noexcept = 0;
  virtual std::string describe() const = 0;
};

}  // namespace sealring::cuda
