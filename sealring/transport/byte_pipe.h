// BytePipe: a bounded one-way byte ring between two threads. Signal: how they sleep.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>

#include "sealring/base/bytes.h"
#include "sealring/base/deadline.h"

namespace sealring {

/// A counter of events that threads wait to see rise; an event between the look and the wait is not missed.
class Signal {
 public:
  void raise() noexcept {
    {
      const std::lock_guard lock(mutex_);
      ++events_;
    }
    raised_.notify_all();
  }
  std::uint64_t events() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }
  /// Returns once more than `seen` events have happened, or at the deadline.
  void wait_past(std::uint64_t seen, Deadline deadline) {
    std::unique_lock lock(mutex_);
    raised_.wait_until(lock, Clock::now() + deadline.left(), [&] { return events_ != seen; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable raised_;
  std::uint64_t events_ = 0;
};

/// One writer thread, one reader thread, no lock: positions only rise. Memory is touched as it is used.
class BytePipe {
 public:
  explicit BytePipe(std::size_t capacity_bytes)
      : capacity_(capacity_bytes), ring_(std::make_unique_for_overwrite<std::byte[]>(capacity_bytes)) {}

  std::size_t readable() const { return written_.load() - read_.load(); }
  std::size_t writable() const { return capacity_ - readable(); }

  /// Copies what fits; 0 when full.
  std::size_t write(ByteView bytes) {
    const std::size_t count = std::min(writable(), bytes.size());
    const std::size_t written = written_.load(std::memory_order_relaxed), at = written % capacity_;
    const std::size_t head = std::min(count, capacity_ - at);
    if (head > 0) std::memcpy(ring_.get() + at, bytes.data(), head);
    if (count > head) std::memcpy(ring_.get(), bytes.data() + head, count - head);
    written_.store(written + count);
    return count;
  }
  /// Copies what there is; 0 when empty.
  std::size_t read(std::span<std::byte> buffer) {
    const std::size_t count = std::min(readable(), buffer.size());
    const std::size_t done = read_.load(std::memory_order_relaxed), at = done % capacity_;
    const std::size_t head = std::min(count, capacity_ - at);
    if (head > 0) std::memcpy(buffer.data(), ring_.get() + at, head);
    if (count > head) std::memcpy(buffer.data() + head, ring_.get(), count - head);
    read_.store(done + count);
    return count;
  }
  /// Says that this side is going to sleep, then looks once more: the other side may have moved before it
  /// could see the flag. Gives what readable() (writable()) is after that.
  std::size_t arm_reader() {
    reader_waits_.store(true);
    return readable();
  }
  std::size_t arm_writer() {
    writer_waits_.store(true);
    return writable();
  }
  /// Whether the other side sleeps and must be woken after a write (a read).
  bool take_reader_waits() { return reader_waits_.exchange(false); }
  bool take_writer_waits() { return writer_waits_.exchange(false); }

 private:
  const std::size_t capacity_;
  std::unique_ptr<std::byte[]> ring_;
  std::atomic<std::size_t> written_{0}, read_{0};
  std::atomic<bool> reader_waits_{false}, writer_waits_{false};
};

}  // namespace sealring
