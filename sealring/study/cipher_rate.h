// How fast one core of this machine seals and opens: the yardstick beside which sealed collectives are
// judged.
#pragma once

#include <cstdint>

#include "sealring/base/result.h"
#include "sealring/base/types.h"

namespace sealring {

struct CipherRateSpec {
  Suite suite = Suite::aes_256_gcm;
  std::uint32_t segment_bytes = 256 * 1024;
  std::uint64_t total_bytes = 64u << 20;  ///< walked through once a pass, as a tensor of that size would be
  std::uint64_t least_ns = 100'000'000;  ///< passes until this much time, at least one (after one to warm up)
};

/// Median pass of each, payload bytes per nanosecond.
struct CipherRate {
  double seal_gb_s = 0, open_gb_s = 0;
};

/// Seals `total_bytes` segment by segment into one packed buffer and opens it again, in the calling thread,
/// with a throwaway key. The records are opened with `replace`, as an all-gather does. Errors: those of
/// BulkCipher.
Result<CipherRate> measure_cipher_rate(const CipherRateSpec& spec);

}  // namespace sealring
