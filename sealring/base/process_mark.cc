#include "sealring/base/process_mark.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "sealring/base/result.h"

namespace sealring {
namespace {

using Mark = std::atomic<std::uint64_t>;

/// On a page of its own: 0 in a child until it makes a mark of its own.
Mark& page() {
  static Mark* const mark = [] {
    void* memory = mmap(nullptr, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SR_CHECK(memory != MAP_FAILED, "no memory for the process's mark");
    (void)madvise(memory, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), MADV_WIPEONFORK);
    (void)pthread_atfork(nullptr, nullptr, [] { page().store(0); });
    return new (memory) Mark(0);
  }();
  return *mark;
}

/// Of this line of processes: a child goes on counting where its parent was, so its mark is new.
std::uint64_t current() {
  static std::atomic<std::uint64_t> marks{0};
  Mark& mark = page();
  std::uint64_t value = mark.load();
  while (value == 0) {
    const std::uint64_t fresh = marks.fetch_add(1) + 1;
    if (mark.compare_exchange_strong(value, fresh)) return fresh;
  }
  return value;
}

}  // namespace

ProcessMark::ProcessMark() : mark_(current()), pid_(getpid()) {}

bool ProcessMark::forked() const noexcept { return page().load() != mark_ || getpid() != pid_; }

}  // namespace sealring
