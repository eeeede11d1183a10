// OpThread: runs operations one after the other, in the order in which they were issued.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "sealring/base/deadline.h"

namespace sealring {

/// The thread starts with the first operation. Thread-safe.
class OpThread {
 public:
  explicit OpThread(std::string name) : name_(std::move(name)) {}
  ~OpThread();  ///< runs what was issued, then joins
  OpThread(const OpThread&) = delete;
  OpThread& operator=(const OpThread&) = delete;

  void issue(std::function<void()> op);
  /// Waits until nothing is queued or running; false when the deadline passed first.
  bool drain(Deadline deadline);
  /// In a forked child there is no thread to join: forgets it.
  void forget() noexcept;

 private:
  void loop();

  std::string name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool running_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace sealring
