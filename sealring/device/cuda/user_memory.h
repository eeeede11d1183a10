// Reads and writes 16 bytes at a time of a user's tensor at any alignment, never a byte outside of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sealring/device/cuda/block.h"

namespace sealring::cuda {

/// A user's memory: `begin` and the bytes from there. Nothing outside is touched.
struct ConstUserMemory {
  const std::byte* begin;
  std::uint64_t bytes;
};

SR_HOST_DEVICE inline std::uint32_t misalignment(const void* at) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(at) & 15u);
}

/// An aligned chunk.
SR_HOST_DEVICE inline Chunk load_aligned(const std::byte* at) { return *reinterpret_cast<const Chunk*>(at); }
SR_HOST_DEVICE inline void store_aligned(std::byte* at, const Chunk& value) {
  *reinterpret_cast<Chunk*>(at) = value;
}

/// `bytes` (0..16) bytes from `at`, zero-filled, one by one.
SR_HOST_DEVICE inline Chunk load_bytes(const std::byte* at, std::uint32_t bytes) {
  Chunk out{};
#pragma unroll
  for (std::uint32_t i = 0; i < 16; ++i) {
    if (i < bytes) out.words[i / 4] |= static_cast<std::uint32_t>(at[i]) << (8 * (i % 4));
  }
  return out;
}

SR_HOST_DEVICE inline void store_bytes(std::byte* at, const Chunk& value, std::uint32_t bytes) {
#pragma unroll
  for (std::uint32_t i = 0; i < 16; ++i) {
    if (i < bytes) at[i] = static_cast<std::byte>((value.words[i / 4] >> (8 * (i % 4))) & 0xFFu);
  }
}

/// The first `bytes` bytes of `value`, zeros behind.
SR_HOST_DEVICE inline Chunk truncated(const Chunk& value, std::uint32_t bytes) {
  Chunk out{};
#pragma unroll
  for (std::uint32_t i = 0; i < 4; ++i) {
    const std::uint32_t kept = bytes >= 4 * i + 4 ? 4u : bytes > 4 * i ? bytes - 4 * i : 0u;
    const std::uint32_t mask = kept == 4 ? 0xFFFFFFFFu : (1u << (8 * kept)) - 1u;
    out.words[i] = value.words[i] & mask;
  }
  return out;
}

SR_HOST_DEVICE inline std::uint32_t funnel_right(std::uint32_t low, std::uint32_t high, std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_r(low, high, bits);
#else
  return static_cast<std::uint32_t>(((static_cast<std::uint64_t>(high) << 32) | low) >> bits);
#endif
}

/// 16 bytes that begin `shift` bytes (0..15) into the 32 of low and high.
SR_HOST_DEVICE inline Chunk funnel(const Chunk& low, const Chunk& high, std::uint32_t shift) {
  std::uint32_t w[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    w[i] = low.words[i];
    w[i + 4] = high.words[i];
  }
  // Whole words by selection: a run-time index would move the array out of the registers.
#pragma unroll
  for (int i = 0; i < 6; ++i) w[i] = (shift & 8u) != 0 ? w[i + 2] : w[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) w[i] = (shift & 4u) != 0 ? w[i + 1] : w[i];
  const std::uint32_t bits = (shift & 3u) * 8u;
  Chunk out;
#pragma unroll
  for (int i = 0; i < 4; ++i) out.words[i] = funnel_right(w[i], w[i + 1], bits);
  return out;
}

/// The 16 bytes at `at`, inside `memory`, at any alignment: two aligned chunks where both lie inside, else
/// bytes.
SR_HOST_DEVICE inline Chunk load_any(const ConstUserMemory& memory, const std::byte* at) {
  const std::uint32_t shift = misalignment(at);
  if (shift == 0) return load_aligned(at);
  const std::byte* const low = at - shift;
  if (low < memory.begin || low + 32 > memory.begin + memory.bytes) return load_bytes(at, 16);
  return funnel(load_aligned(low), load_aligned(low + 16), shift);
}

SR_HOST_DEVICE inline void store_any(std::byte* at, const Chunk& value) {
  const std::uint32_t shift = misalignment(at);
  if (shift == 0) {
    store_aligned(at, value);
  } else if ((shift & 3u) == 0) {
#pragma unroll
    for (int i = 0; i < 4; ++i) reinterpret_cast<std::uint32_t*>(at)[i] = value.words[i];
  } else {
    store_bytes(at, value, 16);
  }
}

}  // namespace sealring::cuda
