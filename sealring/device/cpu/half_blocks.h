// Runs of binary16 to and from binary32, by the F16C instructions where the processor has them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sealring/device/cpu/vector_level.h"

namespace sealring::cpu {

/// Bit-equal to reductions::f32_of_f16 and f16_of_f32 (tested for all inputs). Any alignment of the bytes.
struct HalfBlocks {
  void (*widen)(const std::byte* halves, float* out, std::uint64_t elements);
  void (*narrow)(const float* in, std::byte* halves, std::uint64_t elements);
};

const HalfBlocks& half_blocks(VectorLevel level);

}  // namespace sealring::cpu
