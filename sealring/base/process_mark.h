// ProcessMark: remembers the process that made it, so that a forked child knows that it is another.
#pragma once

#include <cstdint>

namespace sealring {

/// A child has a copy of its parent's keys and counters, and would repeat nonces with them. Process ids do
/// not tell the two apart where both are the first of a PID namespace; a page that the kernel zeroes in every
/// child does (MADV_WIPEONFORK, Linux 4.14; before it pthread_atfork). Copyable; thread-safe.
class ProcessMark {
 public:
  ProcessMark();
  /// True in every process but the one that made this.
  bool forked() const noexcept;

 private:
  std::uint64_t mark_;
  std::int64_t pid_;
};

}  // namespace sealring
