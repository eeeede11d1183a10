// How far a study is: a bar on a terminal, lines elsewhere; on standard error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sealring/base/deadline.h"

namespace sealring {

/// Not thread-safe. The bar is cleared when the object ends.
///
/// Where standard error is no terminal, note() prints its line, and begin() prints one when the last line is
/// kLineEvery old: a log shows that the study lives, and is not flooded.
class Progress {
 public:
  static constexpr auto kLineEvery = std::chrono::seconds(20);

  /// `steps_expected` may be corrected later; `quiet` prints nothing.
  Progress(std::uint32_t steps_expected, bool quiet);
  ~Progress();
  void expect(std::uint32_t steps) { steps_ = done_ + steps; }
  /// Step `done_` begins; `what` is shown beside the bar.
  void begin(const std::string& what);
  void finish_step() { ++done_; }
  /// A line that stays, above the bar.
  void note(const std::string& text);
  /// A line for a log; a terminal, which has the bar, does not show it.
  void log(const std::string& text);

 private:
  void clear();
  /// "3/42, 12 s, about 160 s left": estimated from the steps done since the first of them began.
  std::string state() const;
  void line(const std::string& text);

  std::uint32_t steps_ = 0, done_ = 0;
  bool quiet_ = false, terminal_ = false, shown_ = false;
  Clock::time_point start_ = Clock::now();
  std::optional<Clock::time_point> first_step_, last_line_;
};

}  // namespace sealring
