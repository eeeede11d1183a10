#include "sealring/study/bench_values.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "sealring/base/result.h"

namespace sealring {
namespace {

/// SplitMix64's finaliser: neighbouring inputs give unrelated outputs.
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

std::uint16_t encode_f16(std::int64_t value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (value == 0) return 0;
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t exponent = ((bits >> 23) & 0xffu) - 127 + 15;
  return static_cast<std::uint16_t>(sign | (exponent << 10) | ((bits >> 13) & 0x3ffu));
}

template <class Value>
std::uint64_t count_wrong(DType dtype, std::span<const std::byte> memory, Value value_at) {
  const std::size_t width = dtype_bytes(dtype);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i * width < memory.size(); ++i) {
    std::uint64_t got = 0;
    std::memcpy(&got, memory.data() + i * width, width);
    if (got != encode_value(dtype, value_at(i))) ++wrong;
  }
  return wrong;
}

}  // namespace

std::uint64_t encode_value(DType dtype, std::int64_t value) {
  const auto raw = static_cast<std::uint64_t>(value);
  switch (dtype) {
    case DType::f32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::f64:
      return std::bit_cast<std::uint64_t>(static_cast<double>(value));
    case DType::bf16:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16;
    case DType::f16:
      return encode_f16(value);
    case DType::boolean:
      return value != 0 ? 1 : 0;
    case DType::i8:
    case DType::u8:
      return raw & 0xff;
    case DType::i16:
      return raw & 0xffff;
    case DType::i32:
      return raw & 0xffffffff;
    case DType::i64:
      return raw;
  }
  SR_CHECK(false, "dtype", static_cast<int>(dtype));
}

std::int64_t input_value(const ValueSpec& spec, Rank rank, std::uint64_t index) {
  const std::uint64_t shared = mixed(spec.seed * 0x10001ull + index);
  const std::uint64_t own = mixed(shared + 0x1000003ull * (rank + 1ull));
  const std::uint64_t ranks = spec.ranks;
  // int8 holds sums up to 127, bf16 whole numbers up to 256.
  const std::uint64_t range = std::clamp<std::uint64_t>(120 / ranks, 2, 8);
  switch (spec.redop) {
    case RedOp::product:
      return shared % ranks == rank ? static_cast<std::int64_t>(1 + (shared >> 32) % 5) : 1;
    case RedOp::avg: {
      const auto base = static_cast<std::int64_t>(1 + (shared >> 32) % range);
      if (ranks < 2) return base;
      return base + (shared % ranks == rank ? 1 : 0) - ((shared + 1) % ranks == rank ? 1 : 0);
    }
    case RedOp::premul_sum:
      return 2 * static_cast<std::int64_t>(own % range);
    default:
      return static_cast<std::int64_t>(own % (spec.dtype == DType::boolean ? 2 : range));
  }
}

std::int64_t reduced_value(const ValueSpec& spec, std::uint64_t index) {
  std::int64_t out = input_value(spec, 0, index);
  for (Rank rank = 1; rank < spec.ranks; ++rank) {
    const std::int64_t value = input_value(spec, rank, index);
    switch (spec.redop) {
      case RedOp::product:
        out *= value;
        break;
      case RedOp::min:
        out = std::min(out, value);
        break;
      case RedOp::max:
        out = std::max(out, value);
        break;
      default:
        out += value;
        break;
    }
  }
  if (spec.redop == RedOp::avg) out /= spec.ranks;
  if (spec.redop == RedOp::premul_sum) out /= 2;  // kPremulFactor; every input is even
  return out;
}

void fill_input(const ValueSpec& spec, Rank rank, std::uint64_t first, std::span<std::byte> memory) {
  const std::size_t width = dtype_bytes(spec.dtype);
  for (std::size_t i = 0; i * width < memory.size(); ++i) {
    const std::uint64_t bits = encode_value(spec.dtype, input_value(spec, rank, first + i));
    std::memcpy(memory.data() + i * width, &bits, width);  // little-endian hosts only, as the library
  }
}

std::uint64_t count_wrong_input(const ValueSpec& spec, Rank rank, std::uint64_t first,
                                std::span<const std::byte> memory) {
  return count_wrong(spec.dtype, memory, [&](std::size_t i) { return input_value(spec, rank, first + i); });
}

std::uint64_t count_wrong_reduced(const ValueSpec& spec, std::uint64_t first,
                                  std::span<const std::byte> memory) {
  return count_wrong(spec.dtype, memory, [&](std::size_t i) { return reduced_value(spec, first + i); });
}

}  // namespace sealring
