// Drives a study: starts the Python workers, tells them what to train, keeps what they measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sealring/study/cases.h"
#include "sealring/study/progress.h"
#include "sealring/study/results.h"

namespace sealring {

struct StudyOptions {
  std::string preset = "laptop";
  std::uint16_t ranks = 2;
  std::uint32_t blocks = 10;      ///< of stage 2
  std::uint32_t iterations = 10;  ///< of a case in a block
  std::uint64_t seed = 1;
  double budget_s = 0;  ///< no block is begun after this much time; 0: no limit
  std::string only;     ///< one model; empty: all
  std::string resume;   ///< results of an earlier call, whose blocks are kept
  std::string output;   ///< results.json; written after every block
  std::string python;   ///< interpreter of the workers; empty: find_python's
  bool pin = true;
  bool quiet = false;
  double timeout_s = 300;  ///< of one case
};

/// Runs a preset. What was measured is in `output` even when a later block fails.
///
/// Must be called before this process has threads of its own (workers are forked). Errors: GPU_ABSENT (preset
/// paper where there is none), UNSUPPORTED, those of the workers with the end of their log, FILE and
/// NO_SPACE.
Result<StudyResults> run_study(const StudyOptions& options);

}  // namespace sealring
