// Threads that stay from one run to the next: to make and end one takes longer than most ops of a test.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sealring::cuda::test {

/// One run at a time, from one thread.
class Crew {
 public:
  Crew() = default;
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew() { dismiss(); }

  /// Calls `work` with each number below `count`, each on a thread of its own, all at once; waits for all.
  void run(int count, const std::function<void(int)>& work) {
    while (static_cast<int>(threads_.size()) < count)
      threads_.emplace_back([this, me = static_cast<int>(threads_.size())] { serve(me); });
    std::unique_lock lock(mutex_);
    work_ = &work;
    count_ = left_ = count;
    ++round_;
    begin_.notify_all();
    done_.wait(lock, [this] { return left_ == 0; });
    count_ = 0;  // who wakes late finds nothing to do
  }
  /// Ends the threads; the next run makes new ones.
  void dismiss() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    begin_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    closing_ = false;
  }

 private:
  void serve(int me) {
    std::uint64_t seen = 0;  // rounds count from 1
    std::unique_lock lock(mutex_);
    while (true) {
      begin_.wait(lock, [&] { return closing_ || (me < count_ && round_ != seen); });
      if (closing_) return;
      seen = round_;
      const std::function<void(int)>& work = *work_;
      lock.unlock();
      work(me);
      lock.lock();
      if (--left_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable begin_, done_;
  const std::function<void(int)>* work_ = nullptr;
  int count_ = 0, left_ = 0;
  std::uint64_t round_ = 0;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sealring::cuda::test
