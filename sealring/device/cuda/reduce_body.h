// Sums of several contributions in private or user memory, copies with a factor, and poison: one thread's
// share of each. Host and device; the arithmetic is that of primitives/reductions.h, so that bits equal the
// CPU's (reduce_cpu) but in NaN payloads.
//
// Memory may have any alignment and is handled 16 bytes at a time; nothing outside is touched. A thread takes
// the chunks index, index + step, ...
#pragma once

#include <cstdint>

#include "sealring/device/cuda/combine.h"
#include "sealring/device/cuda/move_plan.h"
#include "sealring/device/cuda/user_memory.h"

namespace sealring::cuda {

/// dst[i] = reduction over sources in order, divided by `divisor`. Sources may equal dst.
struct ReduceArguments {
  const std::byte* sources[kGroupRanksMax] = {};
  std::uint32_t count = 1;
  std::uint32_t divisor = 1;
  std::byte* dst = nullptr;
  std::uint64_t bytes = 0;
};

/// to[i] = from[i] * factor, rounded to the type; the same memory or disjoint.
struct ScaleArguments {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::uint64_t bytes = 0;
  double factor = 1.0;
};

namespace reduce_internal {

SR_HOST_DEVICE inline std::uint32_t bytes_at(std::uint64_t bytes, std::uint64_t chunk) {
  const std::uint64_t left = bytes - 16 * chunk;
  return left < 16 ? static_cast<std::uint32_t>(left) : 16u;
}
SR_HOST_DEVICE inline Chunk load_part(const std::byte* from, std::uint64_t all, std::uint64_t chunk) {
  const std::uint32_t bytes = bytes_at(all, chunk);
  if (bytes < 16) return load_bytes(from + 16 * chunk, bytes);
  return load_any(ConstUserMemory{from, all}, from + 16 * chunk);
}
SR_HOST_DEVICE inline void store_part(std::byte* to, std::uint64_t all, std::uint64_t chunk,
                                      const Chunk& value) {
  const std::uint32_t bytes = bytes_at(all, chunk);
  if (bytes < 16)
    store_bytes(to + 16 * chunk, value, bytes);
  else
    store_any(to + 16 * chunk, value);
}

}  // namespace reduce_internal

template <DType D, RedOp R>
SR_HOST_DEVICE inline void reduce_chunks(const ReduceArguments& job, std::uint64_t index,
                                         std::uint64_t step) {
  namespace in = combine_internal;
  using Element = reductions::Element<D>;
  using Storage = typename Element::Storage;
  constexpr int kElements = static_cast<int>(16 / sizeof(Storage));
  for (std::uint64_t chunk = index; chunk < (job.bytes + 15) / 16; chunk += step) {
    typename Element::Value sum[kElements];
    const Chunk first = reduce_internal::load_part(job.sources[0], job.bytes, chunk);
#pragma unroll
    for (int e = 0; e < kElements; ++e) sum[e] = Element::widen(in::element_of<Storage>(first, e));
    for (std::uint32_t k = 1; k < job.count; ++k) {
      const Chunk term = reduce_internal::load_part(job.sources[k], job.bytes, chunk);
#pragma unroll
      for (int e = 0; e < kElements; ++e)
        sum[e] = reductions::combine<D, R>(sum[e], Element::widen(in::element_of<Storage>(term, e)));
    }
    Chunk out{};
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      if constexpr (D != DType::boolean && R == RedOp::sum) {
        if (job.divisor != 1) sum[e] = reductions::complete<D>(sum[e], job.divisor);
      }
      in::put_element<Storage>(out, e, Element::narrow(sum[e]));
    }
    reduce_internal::store_part(job.dst, job.bytes, chunk, out);
  }
}

/// Floats only.
template <DType D>
SR_HOST_DEVICE inline void scale_chunks(const ScaleArguments& job, std::uint64_t index, std::uint64_t step) {
  namespace in = combine_internal;
  using Element = reductions::Element<D>;
  using Storage = typename Element::Storage;
  for (std::uint64_t chunk = index; chunk < (job.bytes + 15) / 16; chunk += step) {
    const Chunk from = reduce_internal::load_part(job.from, job.bytes, chunk);
    Chunk out{};
#pragma unroll
    for (int e = 0; e < static_cast<int>(16 / sizeof(Storage)); ++e) {
      const auto value = reductions::scaled<D>(Element::widen(in::element_of<Storage>(from, e)), job.factor);
      in::put_element<Storage>(out, e, Element::narrow(value));
    }
    reduce_internal::store_part(job.to, job.bytes, chunk, out);
  }
}

/// Fills memory with a pattern that repeats every 16 bytes from its beginning. [protocol A.5]
SR_HOST_DEVICE inline void fill_chunks(std::byte* memory, std::uint64_t bytes, const Chunk& pattern,
                                       std::uint64_t index, std::uint64_t step) {
  for (std::uint64_t chunk = index; chunk < (bytes + 15) / 16; chunk += step)
    reduce_internal::store_part(memory, bytes, chunk, pattern);
}

/// Calls visit.template operator()<D, R>() for a pair: avg and premul_sum are sums here.
template <DType D, class Visit>
auto for_redop(RedOp redop, Visit&& visit) {
  switch (redop) {
    case RedOp::min:
      return visit.template operator()<D, RedOp::min>();
    case RedOp::max:
      return visit.template operator()<D, RedOp::max>();
    case RedOp::product:
      return visit.template operator()<D, RedOp::product>();
    default:
      return visit.template operator()<D, RedOp::sum>();
  }
}
template <class Visit>
auto for_reduction(DType dtype, RedOp redop, Visit&& visit) {
  switch (dtype) {
    case DType::f32:
      return for_redop<DType::f32>(redop, visit);
    case DType::f64:
      return for_redop<DType::f64>(redop, visit);
    case DType::f16:
      return for_redop<DType::f16>(redop, visit);
    case DType::bf16:
      return for_redop<DType::bf16>(redop, visit);
    case DType::i8:
      return for_redop<DType::i8>(redop, visit);
    case DType::i16:
      return for_redop<DType::i16>(redop, visit);
    case DType::i32:
      return for_redop<DType::i32>(redop, visit);
    case DType::i64:
      return for_redop<DType::i64>(redop, visit);
    case DType::u8:
      return for_redop<DType::u8>(redop, visit);
    case DType::boolean:
      break;
  }
  return for_redop<DType::boolean>(redop, visit);
}

}  // namespace sealring::cuda
