// The count law with real seals and opens, and the time to set a session up: what needs no training.
#pragma once

#include <vector>

#include "sealring/study/results.h"

namespace sealring {

/// Runs `all_reduces` sealed all-reduces of `elements` fp32 on `ranks` threads over loopback and counts what
/// was sealed and opened. Nothing is timed. Errors: the first of any rank; RESULTS when a sum is wrong.
Result<CountRecord> count_operations(std::uint16_t ranks, std::uint32_t all_reduces,
                                     const std::string& algorithm, std::uint64_t elements);
/// n = 2, 3, 4, 8 with 5 all-reduces, and 4 ranks with the study's 142; ring, one-hop and one-shot.
Result<std::vector<CountRecord>> count_law();
/// Sessions of 2, 3, 4 and 8 ranks, threads of this process over tcp on loopback, `repetitions` times each.
Result<std::vector<SetupRecord>> measure_setups(std::uint32_t repetitions);

}  // namespace sealring
