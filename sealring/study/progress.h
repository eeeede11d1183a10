// A progress bar on a terminal, a line a step elsewhere; on standard error.
#pragma once

#include <cstdint>
#include <string>

#include "sealring/base/deadline.h"

namespace sealring {

/// Not thread-safe. The line is cleared when the object ends.
class Progress {
 public:
  /// `steps_expected` may be corrected later; `quiet` prints nothing.
  Progress(std::uint32_t steps_expected, bool quiet);
  ~Progress();
  void expect(std::uint32_t steps) { steps_ = steps; }
  /// Step `done_` begins; `what` is shown beside the bar.
  void begin(const std::string& what);
  void finish_step() { ++done_; }
  /// A line that stays, above the bar.
  void note(const std::string& text);

 private:
  void clear();
  std::uint32_t steps_ = 0, done_ = 0;
  bool quiet_ = false, terminal_ = false, shown_ = false;
  Clock::time_point start_ = Clock::now();
};

}  // namespace sealring
