// RecordContext: what a segment is, authenticated with it and never sent. RecordLayout: all offset
// arithmetic.
//
// Both ends build the 80 bytes of protocol C.3 from the schedule, so a desync of any kind is an
// authentication failure. Usable on host and device: no allocation, no virtual call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "sealring/base/host_device.h"
#include "sealring/base/types.h"

namespace sealring {

inline constexpr std::size_t kAadBytes = 80;
using Aad = std::array<std::uint8_t, kAadBytes>;

/// The fields of protocol C.3, all of the ORIGIN: the rank that sealed, where it first sent it.
struct RecordContext {
  Suite suite = Suite::aes_256_gcm;
  Epoch epoch = 0;
  std::array<std::uint8_t, 8> th3{};       ///< TH3_g[0..8)
  Rank sender = 0;                         ///< global session rank
  Rank receiver = kMulticast;              ///< global session rank, kMulticast for a sender-key move
  std::array<std::uint8_t, 4> group_id{};  ///< group_id[0..4)
  std::uint64_t seq = 0;                   ///< the op's number in its group (p2p: in its group and direction)
  Op op = Op::barrier;
  RedOp redop = RedOp::none;
  DType dtype = DType::u8;
  Algorithm algorithm = Algorithm::ring;
  Rank root = kNoRoot;  ///< group rank
  std::uint16_t step = 0;
  std::uint32_t tag = 0;  ///< p2p only
  std::uint32_t segment = 0;
  std::uint32_t segments = 1;
  std::uint32_t payload_bytes = 0;
  std::uint64_t elements = 0;        ///< collective: of the collective; v-ops and p2p: of this move
  std::uint64_t element_offset = 0;  ///< of this segment's first element
  Lane lane = 0;
  std::uint16_t group_size = 0;

  friend bool operator==(const RecordContext&, const RecordContext&) = default;
};

/// The 80 authenticated bytes of a segment, big-endian.
SR_HOST_DEVICE inline Aad aad_of(const RecordContext& c) {
  Aad out{};
  std::uint8_t* p = out.data();
  const auto be = [](std::uint8_t* at, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) at[i] = static_cast<std::uint8_t>(value >> (8 * (bytes - 1 - i)));
  };
  p[0] = 1;
  p[1] = static_cast<std::uint8_t>(c.suite);
  be(p + 4, c.epoch, 4);
  for (int i = 0; i < 8; ++i) p[8 + i] = c.th3.data()[i];
  be(p + 16, c.sender, 2);
  be(p + 18, c.receiver, 2);
  for (int i = 0; i < 4; ++i) p[20 + i] = c.group_id.data()[i];
  be(p + 24, c.seq, 8);
  p[32] = static_cast<std::uint8_t>(c.op);
  p[33] = static_cast<std::uint8_t>(c.redop);
  p[34] = static_cast<std::uint8_t>(c.dtype);
  p[35] = static_cast<std::uint8_t>(c.algorithm);
  be(p + 36, c.root, 2);
  be(p + 38, c.step, 2);
  be(p + 40, c.tag, 4);
  be(p + 44, c.segment, 4);
  be(p + 48, c.segments, 4);
  be(p + 52, c.payload_bytes, 4);
  be(p + 56, c.elements, 8);
  be(p + 64, c.element_offset, 8);
  be(p + 72, c.lane, 2);
  be(p + 74, c.group_size, 2);
  return out;
}

/// How a move of `payload_bytes` is cut into segments of `segment_bytes` (the last may be short), each
/// ciphertext||tag.
///
/// A move of zero bytes is one empty segment: absence is detectable (protocol C.3).
struct RecordLayout {
  std::uint64_t payload_bytes = 0;
  std::uint32_t segment_bytes = 1;

  SR_HOST_DEVICE static constexpr RecordLayout of(std::uint64_t payload_bytes, std::uint32_t segment_bytes) {
    return RecordLayout{payload_bytes, segment_bytes};
  }
  SR_HOST_DEVICE constexpr std::uint32_t segments() const {
    return payload_bytes == 0
               ? 1u
               : static_cast<std::uint32_t>((payload_bytes + segment_bytes - 1) / segment_bytes);
  }
  SR_HOST_DEVICE constexpr std::uint64_t payload_offset(std::uint32_t segment) const {
    return static_cast<std::uint64_t>(segment) * segment_bytes;
  }
  SR_HOST_DEVICE constexpr std::uint32_t payload_of(std::uint32_t segment) const {
    const std::uint64_t left = payload_bytes - payload_offset(segment);
    return left < segment_bytes ? static_cast<std::uint32_t>(left) : segment_bytes;
  }
  SR_HOST_DEVICE constexpr std::uint64_t wire_offset(std::uint32_t segment) const {
    return static_cast<std::uint64_t>(segment) * (segment_bytes + kTagBytes);
  }
  SR_HOST_DEVICE constexpr std::uint64_t wire_bytes() const {
    return payload_bytes + static_cast<std::uint64_t>(segments()) * kTagBytes;
  }
};

}  // namespace sealring
