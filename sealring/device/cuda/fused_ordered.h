// Several ranks' contributions to one output, added in rank order: what a fused step does when the tags of
// all its tiles of a segment have been accepted. 16-bit floats are summed in fp32 and rounded once, the
// divisor comes last; the bits are those of reduce_cpu (device/bulk_cipher.h), but for NaN payloads.
#pragma once

#include "sealring/device/cuda/combine.h"
#include "sealring/device/cuda/user_memory.h"

namespace sealring::cuda {

/// 16 bytes of every rank: those of peer i, in rank order, at peers[i * stride].
struct OrderedChunks {
  const Chunk* peers = nullptr;
  std::uint32_t stride = 0, count = 0;  ///< count: peers
  Chunk own;
  std::uint32_t own_place = 0;  ///< how many peers come before

  SR_HOST_DEVICE const Chunk& at(std::uint32_t place) const {
    return place == own_place ? own : peers[(place < own_place ? place : place - 1) * stride];
  }
};

namespace combine_internal {

template <DType D>
SR_HOST_DEVICE inline typename reductions::Element<D>::Value widened(
    typename reductions::Element<D>::Storage stored) {
#if defined(__CUDA_ARCH__)
  if constexpr (D == DType::f16) return f32_of_half(stored);
#endif
  return reductions::Element<D>::widen(stored);
}
template <DType D>
SR_HOST_DEVICE inline typename reductions::Element<D>::Storage rounded(
    typename reductions::Element<D>::Value value) {
#if defined(__CUDA_ARCH__)
  unsigned short out = 0;
  if constexpr (D == DType::f16) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(value));
    return out;
  } else if constexpr (D == DType::bf16) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(value));
    return out;
  }
#endif
  return reductions::Element<D>::narrow(value);
}

template <DType D, RedOp R>
SR_HOST_DEVICE inline Chunk reduce_ordered(const OrderedChunks& chunks, std::uint32_t divisor) {
  using Element = reductions::Element<D>;
  using Storage = typename Element::Storage;
  constexpr int kElements = static_cast<int>(16 / sizeof(Storage));
  typename Element::Value sum[kElements];
  for (std::uint32_t place = 0; place <= chunks.count; ++place) {
    const Chunk next = chunks.at(place);
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const auto value = widened<D>(element_of<Storage>(next, e));
      sum[e] = place == 0 ? value : reductions::combine<D, R>(sum[e], value);
    }
  }
  Chunk out{};
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    const auto value = divisor != 1 ? reductions::complete<D>(sum[e], divisor) : sum[e];
    put_element<Storage>(out, e, rounded<D>(value));
  }
  return out;
}

template <DType D>
SR_HOST_DEVICE inline Chunk reduce_ordered_by(const CombineOp& op, const OrderedChunks& chunks) {
  switch (op.redop) {
    case RedOp::min:
      return reduce_ordered<D, RedOp::min>(chunks, op.divisor);
    case RedOp::max:
      return reduce_ordered<D, RedOp::max>(chunks, op.divisor);
    case RedOp::product:
      return reduce_ordered<D, RedOp::product>(chunks, op.divisor);
    case RedOp::none:
    case RedOp::sum:
    case RedOp::avg:
    case RedOp::premul_sum:
      break;
  }
  return reduce_ordered<D, RedOp::sum>(chunks, op.divisor);
}

// Out of line, as reduce_any is.
#if defined(__CUDACC__)
__noinline__
#endif
    SR_HOST_DEVICE inline Chunk
    reduce_ordered_any(const CombineOp& op, const OrderedChunks& chunks) {
  switch (op.dtype) {
    case DType::f32:
      return reduce_ordered_by<DType::f32>(op, chunks);
    case DType::f64:
      return reduce_ordered_by<DType::f64>(op, chunks);
    case DType::f16:
      return reduce_ordered_by<DType::f16>(op, chunks);
    case DType::bf16:
      return reduce_ordered_by<DType::bf16>(op, chunks);
    case DType::i8:
      return reduce_ordered_by<DType::i8>(op, chunks);
    case DType::i16:
      return reduce_ordered_by<DType::i16>(op, chunks);
    case DType::i32:
      return reduce_ordered_by<DType::i32>(op, chunks);
    case DType::i64:
      return reduce_ordered_by<DType::i64>(op, chunks);
    case DType::u8:
      return reduce_ordered_by<DType::u8>(op, chunks);
    case DType::boolean:
      break;
  }
  return reduce_ordered_by<DType::boolean>(op, chunks);
}

}  // namespace combine_internal

/// K: the sum of one type, with or without a divisor, or `any`.
template <CombineKind K>
SR_HOST_DEVICE inline Chunk combined_ordered(const CombineOp& op, const OrderedChunks& chunks) {
  namespace in = combine_internal;
  if constexpr (K == CombineKind::sum_f32)
    return in::reduce_ordered<DType::f32, RedOp::sum>(chunks, op.divisor);
  else if constexpr (K == CombineKind::sum_bf16)
    return in::reduce_ordered<DType::bf16, RedOp::sum>(chunks, op.divisor);
  else if constexpr (K == CombineKind::sum_f16)
    return in::reduce_ordered<DType::f16, RedOp::sum>(chunks, op.divisor);
  else
    return in::reduce_ordered_any(op, chunks);
}

/// The accepted tiles of a segment and local memory into the tensor. `segment`: of any of the pulls, which
/// are cut alike. `job`: the first one.
template <class Open, CombineKind K, class Warp>
SR_HOST_DEVICE void combine_ordered(Warp& warp, const typename Open::Shared& shared, const SegmentJob& job,
                                    std::uint32_t pulls, std::uint32_t own_place,
                                    const typename Open::Segment& segment) {
  const std::byte* const local = job.combine.local + segment.place.payload;
  std::byte* const dst = job.combine.dst + segment.place.payload;
  const bool aligned = misalignment(dst) == 0 && misalignment(local) == 0;
  const ConstUserMemory memory{job.combine.local, payload_bytes_of(job)};
  const auto stride = static_cast<std::uint32_t>(Open::private_bytes(job.layout.segment_bytes) / 16);
  const int worker = warp.index();
  for (std::uint32_t tile = Open::first_tile(segment.shape, worker); tile < segment.shape.tiles;
       tile += Open::kWorkers) {
    const Chunk* const plain = shared.stored + Open::own_place(tile, worker);
    const int origin = static_cast<int>(tile * kTileChunks - 4 * segment.shape.pad_rows);
    warp.step([&](int lane) {
      Chunk mine[4] = {};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const std::int64_t at = origin + lane + c * kLanes;
        if (at >= 0) mine[c] = aligned ? load_aligned(local + at * 16) : load_any(memory, local + at * 16);
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const std::int64_t at = origin + lane + c * kLanes;
        if (at < 0) continue;
        const Chunk out = combined_ordered<K>(
            job.combine,
            OrderedChunks{plain + Open::coalesced_slot(lane, c), stride, pulls, mine[c], own_place});
        if (aligned)
          store_aligned(dst + at * 16, out);
        else
          store_any(dst + at * 16, out);
      }
    });
  }
  if (worker != 0) return;
  warp.step([&](int lane) {
    if (lane >= static_cast<int>(segment.shape.tail_chunks)) return;
    const std::uint32_t offset = static_cast<std::uint32_t>(lane) * 16;
    const std::uint32_t left = segment.shape.tail_bytes - offset;
    const std::uint32_t bytes = left < 16 ? left : 16;
    const std::uint64_t behind = static_cast<std::uint64_t>(segment.shape.rows) * kRowBytes + offset;
    const OrderedChunks chunks{&shared.tail_plain[0][lane], 4, pulls, load_bytes(local + behind, bytes),
                               own_place};
    store_bytes(dst + behind, combined_ordered<K>(job.combine, chunks), bytes);
  });
}

}  // namespace sealring::cuda
