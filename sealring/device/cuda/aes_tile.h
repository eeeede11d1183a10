// How a worker of the AES-GCM body reads and writes a tile: a lane's row is 4 blocks, 512 bytes apart, so
// that memory is touched lane after lane. The last tile of a segment may be short.
#pragma once

#include "sealring/device/cuda/aes_key.h"
#include "sealring/device/cuda/segment_job.h"
#include "sealring/device/cuda/user_memory.h"

namespace sealring::cuda {

/// What a lane has of a tile: data, and the keystream for it.
struct AesRow {
  Chunk chunk[4];
};
struct AesStream {
  aes::Block block[4];
};

/// Bytes of the chunk that begins at `begin`: 16, fewer at the end, 0 behind it.
SR_HOST_DEVICE inline std::uint32_t chunk_bytes(const Place& place, std::uint64_t begin) {
  if (begin >= place.payload_bytes) return 0;
  const auto left = static_cast<std::uint32_t>(place.payload_bytes - begin);
  return left < 16 ? left : 16;
}

template <bool kOpen, class Warp>
SR_HOST_DEVICE inline Chunk load_chunk(Warp& warp, const SegmentJob& job, const Place& place,
                                       std::uint64_t begin, std::uint32_t bytes) {
  Chunk out{};
  if constexpr (kOpen) {
    const std::byte* const from = job.wire + place.wire + begin;
    if (bytes == 16) return warp.window_chunk(from);
    for (std::uint32_t b = 0; b < bytes; ++b) {
      const std::uint32_t value = warp.window_byte(from + b) << (8 * (b % 4));
#pragma unroll
      for (std::uint32_t w = 0; w < 4; ++w) out.words[w] |= w == b / 4 ? value : 0u;
    }
    return out;
  } else {
    const std::byte* const from = job.plaintext + place.payload + begin;
    if (bytes == 16) return load_any(ConstUserMemory{job.plaintext, payload_bytes_of(job)}, from);
    return load_bytes(from, bytes);
  }
}

/// Four chunks a lane of a tile, from the tensor (seal) or the window (open).
template <bool kOpen, class Warp>
SR_HOST_DEVICE inline void load_row(Warp& warp, const SegmentJob& job, const Place& place, std::uint32_t tile,
                                    int lane, AesRow& row) {
  const std::uint64_t begin = std::uint64_t{tile} * kGcmTileBytes + static_cast<std::uint32_t>(lane) * 16;
  constexpr std::uint32_t kApart = 16 * kLanes;
  if (std::uint64_t{tile + 1} * kGcmTileBytes <= place.payload_bytes) {
    const std::byte* const from =
        kOpen ? job.wire + place.wire + begin : job.plaintext + place.payload + begin;
    if (kOpen || misalignment(from) == 0) {
#pragma unroll
      for (std::uint32_t c = 0; c < 4; ++c)
        row.chunk[c] = kOpen ? warp.window_chunk(from + c * kApart) : load_aligned(from + c * kApart);
      return;
    }
  }
#pragma unroll
  for (std::uint32_t c = 0; c < 4; ++c) {
    const std::uint64_t at = begin + c * kApart;
    row.chunk[c] = load_chunk<kOpen>(warp, job, place, at, chunk_bytes(place, at));
  }
}

/// A lane's row is encrypted or decrypted: ciphertext to `stage` and (seal) to the wire, plaintext (open) to
/// where it waits.
template <bool kOpen>
SR_HOST_DEVICE inline void end_row(const SegmentJob& job, const Place& place, std::uint32_t tile, int lane,
                                   const AesStream& stream, const AesRow& row, Chunk* stage, Chunk* plain) {
  const std::uint64_t begin = std::uint64_t{tile} * kGcmTileBytes + static_cast<std::uint32_t>(lane) * 16;
  const bool whole = std::uint64_t{tile + 1} * kGcmTileBytes <= place.payload_bytes;
#pragma unroll
  for (std::uint32_t c = 0; c < 4; ++c) {
    const std::uint32_t(&words)[4] = stream.block[c].words;
    const Chunk key{{words[0], words[1], words[2], words[3]}};
    const Chunk out = row.chunk[c] ^ key;
    const std::uint32_t slot = c * kLanes + static_cast<std::uint32_t>(lane);
    if constexpr (kOpen) {
      stage[slot] = row.chunk[c];
      plain[slot] = out;
    } else {
      const std::uint64_t at = begin + c * 16 * kLanes;
      std::byte* const to = job.wire + place.wire + at;
      const std::uint32_t bytes = whole ? 16 : chunk_bytes(place, at);
      Chunk sealed = out;
      if (bytes == 16) {
        store_aligned(to, out);
      } else {
        sealed = truncated(out, bytes);
        store_bytes(to, out, bytes);
      }
      stage[slot] = sealed;
    }
  }
}

}  // namespace sealring::cuda
