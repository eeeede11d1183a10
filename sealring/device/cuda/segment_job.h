// What a kernel is told: plain structs without secrets, passed by value. Keys and numbers come from device
// state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sealring/base/host_device.h"
#include "sealring/base/types.h"
#include "sealring/device/cuda/block.h"
#include "sealring/wire/record.h"

namespace sealring::cuda {

inline constexpr int kAadChunks = static_cast<int>(kAadBytes / 16);

/// The 80 bytes of protocol C.3 as chunks; the fields that differ between segments are patched on the device.
struct AadTemplate {
  Chunk chunks[kAadChunks];
};

/// dst[i] = f(local[i], received[i]); see CombineSpec in device/bulk_cipher.h.
struct CombineOp {
  RedOp redop = RedOp::none;
  DType dtype = DType::u8;
  const std::byte* local = nullptr;
  std::byte* dst = nullptr;
  std::uint32_t divisor = 1;
  bool received_first = false;
};

/// `segments` consecutive segments of a record, beginning with number `first_segment` of it. All pointers
/// point at the first of them. `wire` is aligned to 16 bytes and `segment_bytes` a multiple of 16 (unless it
/// is the only segment).
struct SegmentJob {
  AadTemplate aad;
  RecordLayout layout;
  std::uint32_t first_segment = 0;
  std::uint32_t segments = 1;
  std::uint32_t elements_per_segment = 0;
  std::uint64_t element_offset = 0;      ///< of the job's first segment
  const std::byte* plaintext = nullptr;  ///< seal: input, any alignment
  std::byte* wire = nullptr;             ///< seal: output; open: input, untrusted
  CombineOp combine;                     ///< open
  std::byte* private_tiles =
      nullptr;  ///< open of large segments: scratch in private memory, see chacha_body.h
};

/// What the prologue decided for the whole op: the only source of numbers [protocol A.3].
struct OpView {
  Epoch epoch = 0;
  std::uint64_t first_number = 0;  ///< of the job's first segment
  std::uint64_t seq = 0;
};

struct GcmKey;  // aes_key.h

/// A key and its iv as little-endian words, in shared memory while a kernel runs.
struct KeyWords {
  std::uint32_t key[8];
  std::uint32_t iv[3];
  const GcmKey* gcm;  ///< AES suites: what was made of the key, in private device memory
};

/// Which share of a job's segments a block takes: index, index + count, ...
struct Column {
  std::uint32_t index = 0;
  std::uint32_t count = 1;
};

/// Of one segment, by its place k in the job.
struct Place {
  std::uint64_t payload;  ///< offset from the job's first payload byte
  std::uint64_t wire;     ///< offset from the job's first wire byte
  std::uint32_t payload_bytes;
};

SR_HOST_DEVICE inline Place place_of(const SegmentJob& job, std::uint32_t k) {
  return Place{static_cast<std::uint64_t>(k) * job.layout.segment_bytes,
               static_cast<std::uint64_t>(k) * (job.layout.segment_bytes + kTagBytes),
               job.layout.payload_of(job.first_segment + k)};
}

/// All payload bytes of the job.
SR_HOST_DEVICE inline std::uint64_t payload_bytes_of(const SegmentJob& job) {
  const Place last = place_of(job, job.segments - 1);
  return last.payload + last.payload_bytes;
}

SR_HOST_DEVICE inline std::uint32_t byte_swapped(std::uint32_t x) {
  return (x >> 24) | ((x >> 8) & 0xFF00u) | ((x << 8) & 0xFF0000u) | (x << 24);
}

/// Byte b of a chunk.
SR_HOST_DEVICE inline std::uint32_t byte_of(const Chunk& chunk, int b) {
  const std::uint32_t word =
      b < 8 ? (b < 4 ? chunk.words[0] : chunk.words[1]) : (b < 12 ? chunk.words[2] : chunk.words[3]);
  return (word >> (8 * (b & 3))) & 0xFFu;
}

/// Writes a tag to where its segment ends. `warp` alone.
template <class Warp>
SR_HOST_DEVICE inline void put_tag(Warp& warp, const Chunk& tag, std::byte* at) {
  warp.step([&](int lane) {
    if (lane < static_cast<int>(kTagBytes)) at[lane] = static_cast<std::byte>(byte_of(tag, lane));
  });
}
/// Whether a tag is another one than that of whose bytes `given(lane)` gives one. Constant time: every byte
/// is compared, and only the whole says anything.
template <class Warp, class Given>
SR_HOST_DEVICE inline bool is_refused(Warp& warp, const Chunk& tag, Given&& given) {
  typename Warp::template Lanes<std::uint32_t> differs;
  warp.step([&](int lane) {
    differs[lane] = lane < static_cast<int>(kTagBytes) ? given(lane) ^ byte_of(tag, lane) : 0u;
  });
  return warp.any(differs);
}

/// The i-th 16 bytes of the AAD of the job's k-th segment. [protocol C.3] epoch at 4, seq at 24, segment at
/// 44, payload_bytes at 52, element offset at 64.
SR_HOST_DEVICE inline Chunk aad_chunk(const SegmentJob& job, const OpView& op, std::uint32_t k, int i) {
  Chunk out = job.aad.chunks[i];
  const std::uint64_t offset = job.element_offset + static_cast<std::uint64_t>(k) * job.elements_per_segment;
  if (i == 0) out.words[1] = byte_swapped(op.epoch);
  if (i == 1) {
    out.words[2] = byte_swapped(static_cast<std::uint32_t>(op.seq >> 32));
    out.words[3] = byte_swapped(static_cast<std::uint32_t>(op.seq));
  }
  if (i == 2) out.words[3] = byte_swapped(job.first_segment + k);
  if (i == 3) out.words[1] = byte_swapped(place_of(job, k).payload_bytes);
  if (i == 4) {
    out.words[0] = byte_swapped(static_cast<std::uint32_t>(offset >> 32));
    out.words[1] = byte_swapped(static_cast<std::uint32_t>(offset));
  }
  return out;
}

/// nonce = iv XOR (0^32 || be64(number)), as little-endian words. [RFC 8446 §5.3]
struct NonceWords {
  std::uint32_t words[3];
};
SR_HOST_DEVICE inline NonceWords nonce_words(const KeyWords& key, std::uint64_t number) {
  return NonceWords{{key.iv[0], key.iv[1] ^ byte_swapped(static_cast<std::uint32_t>(number >> 32)),
                     key.iv[2] ^ byte_swapped(static_cast<std::uint32_t>(number))}};
}

/// What a body reports: set by any block whose tag was refused.
struct BadTag {
  std::uint32_t refused = 0;        ///< 0: none
  std::uint32_t first_segment = 0;  ///< place in the job of one refused segment
};

}  // namespace sealring::cuda
