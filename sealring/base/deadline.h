// Deadlines on the monotonic clock: every wait takes one.
#pragma once

#include <chrono>
#include <cstdint>

namespace sealring {

using Clock = std::chrono::steady_clock;

/// A point on the monotonic clock after which a wait gives up. Copyable; never() waits for ever (tests only).
class Deadline {
 public:
  static Deadline in(std::chrono::nanoseconds span) { return Deadline(Clock::now() + span); }
  static Deadline at(Clock::time_point when) { return Deadline(when); }
  static Deadline never() { return Deadline(Clock::time_point::max()); }
  bool expired() const { return Clock::now() >= when_; }
  Clock::time_point when() const { return when_; }
  /// Time left, at least zero, at most an hour: ready for poll(2).
  std::chrono::milliseconds left() const {
    const auto now = Clock::now();
    if (now >= when_) return std::chrono::milliseconds(0);
    const auto span = when_ - now;
    if (span > std::chrono::hours(1)) return std::chrono::hours(1);
    return std::chrono::ceil<std::chrono::milliseconds>(span);
  }
  Deadline earlier(Deadline other) const { return other.when_ < when_ ? other : *this; }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

/// Nanoseconds on the monotonic clock, for timers.
inline std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(Clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

}  // namespace sealring
