// Suite plain (study only): the two ends of a chunk without a cipher. The layout is that of sealed segments,
// with a zero tag behind each payload, so that the path around it is the same. Host and device.
//
// Bodies as block.h describes them: a block takes the segments column.index, column.index + column.count, ...
#pragma once

#include <cstdint>

#include "sealring/device/cuda/combine.h"
#include "sealring/device/cuda/segment_job.h"
#include "sealring/device/cuda/user_memory.h"

namespace sealring::cuda {

inline constexpr int kPlainThreads = 256;

struct PlainSealBody {
  static constexpr int kThreads = kPlainThreads;

  template <class Block>
  SR_HOST_DEVICE static void run(Block& block, const SegmentJob& job, Column column) {
    const ConstUserMemory memory{job.plaintext, payload_bytes_of(job)};
    block.phase([&](typename Block::Warp& warp) {
      warp.step([&](int lane) {
        const auto thread = static_cast<std::uint32_t>(warp.thread(lane));
        for (std::uint32_t k = column.index; k < job.segments; k += column.count)
          copy_segment(job, memory, place_of(job, k), thread);
      });
    });
  }

 private:
  SR_HOST_DEVICE static void copy_segment(const SegmentJob& job, const ConstUserMemory& memory,
                                          const Place& place, std::uint32_t thread) {
    std::byte* const to = job.wire + place.wire;
    const std::byte* const from = job.plaintext + place.payload;
    const std::uint32_t whole = place.payload_bytes / 16;
    for (std::uint32_t i = thread; i < whole; i += kThreads)
      store_aligned(to + 16 * i, load_any(memory, from + 16 * i));
    if (thread != 0) return;
    const std::uint32_t rest = place.payload_bytes % 16;
    if (rest != 0) store_bytes(to + 16 * whole, load_bytes(from + 16 * whole, rest), rest);
    store_bytes(to + place.payload_bytes, Chunk{}, kTagBytes);
  }
};

template <CombineKind kCombine>
struct PlainOpenBody {
  static constexpr int kThreads = kPlainThreads;

  template <class Block>
  SR_HOST_DEVICE static void run(Block& block, const SegmentJob& job, Column column) {
    const ConstUserMemory local{job.combine.local, payload_bytes_of(job)};
    block.phase([&](typename Block::Warp& warp) {
      warp.step([&](int lane) {
        const auto thread = static_cast<std::uint32_t>(warp.thread(lane));
        for (std::uint32_t k = column.index; k < job.segments; k += column.count)
          combine_segment(warp, job, local, place_of(job, k), thread);
      });
    });
  }

 private:
  template <class Warp>
  SR_HOST_DEVICE static void combine_segment(Warp& warp, const SegmentJob& job, const ConstUserMemory& local,
                                             const Place& place, std::uint32_t thread) {
    const std::byte* const from = job.wire + place.wire;
    const std::uint32_t whole = place.payload_bytes / 16;
    for (std::uint32_t i = thread; i < whole; i += kThreads) {
      const std::uint64_t at = place.payload + 16 * i;
      Chunk mine{};
      if constexpr (kCombine != CombineKind::replace) mine = load_any(local, local.begin + at);
      store_any(job.combine.dst + at,
                combined<kCombine>(job.combine, mine, warp.window_chunk(from + 16 * i)));
    }
    const std::uint32_t rest = place.payload_bytes % 16;
    if (thread != 0 || rest == 0) return;
    const std::uint64_t at = place.payload + 16 * whole;
    Chunk received{}, mine{};
    for (std::uint32_t b = 0; b < rest; ++b)
      received.words[b / 4] |= warp.window_byte(from + 16 * whole + b) << (8 * (b % 4));
    if constexpr (kCombine != CombineKind::replace) mine = load_bytes(local.begin + at, rest);
    store_bytes(job.combine.dst + at, combined<kCombine>(job.combine, mine, received), rest);
  }
};

}  // namespace sealring::cuda
