#include "sealring/study/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace sealring {

Progress::Progress(std::uint32_t steps_expected, bool quiet)
    : steps_(steps_expected), quiet_(quiet), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::begin(const std::string& what) {
  if (quiet_ || !terminal_) return;
  constexpr std::uint32_t kWidth = 30;
  const std::uint32_t steps = std::max(steps_, done_ + 1);
  const std::uint32_t filled = kWidth * done_ / steps;
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  std::string left;
  if (done_ > 2) left = fmt::format(", about {:.0f} s left", elapsed * (steps - done_) / done_);
  fmt::print(stderr, "\r\x1b[K[{:=<{}}{:{}}] {}/{} {:.0f} s{}  {}", "", filled, "", kWidth - filled, done_,
             steps, elapsed, left, what.substr(0, 40));
  std::fflush(stderr);
  shown_ = true;
}

void Progress::note(const std::string& text) {
  if (quiet_) return;
  clear();
  fmt::print(stderr, "{}\n", text);
}

void Progress::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace sealring
