// Inputs that are small integers regenerated from (seed, rank, index), so that every result is known exactly.
//
// Sums stay inside what 16-bit floats and int8 hold exactly, so any order of additions gives the same bits
// and a wrong element is a wrong element, never rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sealring/base/types.h"

namespace sealring {

struct ValueSpec {
  std::uint64_t seed = 1;
  std::uint16_t ranks = 2;
  DType dtype = DType::f32;
  RedOp redop = RedOp::none;  ///< shapes the inputs: e.g. avg's are such that the mean is a whole number
};

/// premul_sum's factor here: inputs are even, so halves are whole.
inline constexpr double kPremulFactor = 0.5;

/// Element `index` of what `rank` contributes.
std::int64_t input_value(const ValueSpec& spec, Rank rank, std::uint64_t index);
/// Element `index` of the reduction over all ranks.
std::int64_t reduced_value(const ValueSpec& spec, std::uint64_t index);

/// Writes elements first..first+n of `rank`'s contribution, n = memory.size() / element bytes.
void fill_input(const ValueSpec& spec, Rank rank, std::uint64_t first, std::span<std::byte> memory);
/// How many elements of `memory` differ from elements first.. of `rank`'s contribution, or of the reduction.
std::uint64_t count_wrong_input(const ValueSpec& spec, Rank rank, std::uint64_t first,
                                std::span<const std::byte> memory);
std::uint64_t count_wrong_reduced(const ValueSpec& spec, std::uint64_t first,
                                  std::span<const std::byte> memory);

/// The bits of a whole number in an element type, low byte first as in memory here; |value| <= 256 for bf16,
/// 2048 for fp16. bool: value != 0.
std::uint64_t encode_value(DType dtype, std::int64_t value);

}  // namespace sealring
