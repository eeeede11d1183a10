// Which vector instructions the reductions use. Chosen at run time; every level gives the same bits.
#pragma once

#include "sealring/base/result.h"
#include "sealring/device/bulk_cipher.h"

namespace sealring::cpu {

enum class VectorLevel {
  portable,  ///< what the compiler makes for the build's own target
  avx2,      ///< AVX2 and F16C
  avx512,    ///< AVX-512 F, BW, DQ, VL
};

/// The highest level that this processor runs. Asked once.
VectorLevel vector_level_max();
/// reduce_cpu at a given level, at most vector_level_max(): for tests.
Result<void> reduce_at(VectorLevel level, const ReduceJob& job);

}  // namespace sealring::cpu
