// A small, wholly made-up study: the fixed input of the report tests.
#pragma once

#include "sealring/study/results.h"

namespace sealring {

/// Two models, five blocks of three iterations; sealed ring 1.25x, one-hop 1.15x, A/A 1.00x, emulation 0.98
/// of sealed.
StudyResults example_results();

}  // namespace sealring
