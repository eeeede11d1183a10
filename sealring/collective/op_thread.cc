#include "sealring/collective/op_thread.h"

#include <pthread.h>

#include <utility>

namespace sealring {

OpThread::~OpThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void OpThread::issue(std::function<void()> op) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(op));
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { loop(); });
      (void)pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
    }
  }
  changed_.notify_all();
}

bool OpThread::drain(Deadline deadline) {
  std::unique_lock lock(mutex_);
  while (running_ || !queue_.empty()) {
    if (changed_.wait_for(lock, deadline.left()) == std::cv_status::timeout && deadline.expired())
      return false;
  }
  return true;
}

void OpThread::forget() noexcept {
  if (thread_.joinable()) thread_.detach();
}

void OpThread::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto op = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    lock.unlock();
    op();
    op = nullptr;
    lock.lock();
    running_ = false;
    changed_.notify_all();
  }
}

}  // namespace sealring
