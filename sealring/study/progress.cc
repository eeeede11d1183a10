#include "sealring/study/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace sealring {
namespace {

std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

}  // namespace

Progress::Progress(std::uint32_t steps_expected, bool quiet)
    : steps_(steps_expected), quiet_(quiet), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

std::string Progress::state() const {
  std::string out = fmt::format("{:.0f} s", seconds_since(start_));
  if (steps_ == 0) return out;
  const std::uint32_t steps = std::max(steps_, done_);
  out = fmt::format("{}/{}, {}", done_, steps, out);
  if (done_ == 0 || !first_step_) return out;
  return out + fmt::format(", about {:.0f} s left", seconds_since(*first_step_) * (steps - done_) / done_);
}

void Progress::begin(const std::string& what) {
  if (quiet_) return;
  if (steps_ > 0 && !first_step_) first_step_ = Clock::now();
  if (!terminal_) {
    if (!last_line_ || Clock::now() - *last_line_ >= kLineEvery) line(fmt::format("{}: {}", state(), what));
    return;
  }
  constexpr std::uint32_t kWidth = 10;
  const std::uint32_t filled = kWidth * done_ / std::max(steps_, done_ + 1);
  const std::string bar = fmt::format("[{:=<{}}{:{}}] {}", "", filled, "", kWidth - filled, state());
  const std::size_t columns = std::max<std::size_t>(terminal_columns(), 20) - 1;
  std::string text = bar + "  " + what;
  if (text.size() > columns) text = text.substr(0, columns - 3) + "...";
  fmt::print(stderr, "\r\x1b[K{}", text);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::note(const std::string& text) {
  if (quiet_) return;
  clear();
  line(text);
}

void Progress::log(const std::string& text) {
  if (quiet_ || terminal_) return;
  line(fmt::format("{}: {}", state(), text));
}

void Progress::line(const std::string& text) {
  fmt::print(stderr, "{}\n", text);
  std::fflush(stderr);
  last_line_ = Clock::now();
}

void Progress::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace sealring
