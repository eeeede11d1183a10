#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include "sealring/device/bulk_cipher.h"

namespace sealring {

class WorkerPool::Task {
 public:
  explicit Task(std::function<Result<void>()> work) : work_(std::move(work)) {}

  void execute() {
    Result<void> outcome;
    try {
      outcome = work_();
    } catch (const std::bad_alloc&) {
      outcome = fail(Code::out_of_memory, "device.worker", "no memory for a job");
    }
    work_ = nullptr;  // what it captured goes before anybody hears that it is done
    {
      const std::lock_guard lock(mutex_);
      outcome_ = std::move(outcome);
    }
    done_.notify_one();
  }

  Result<void> wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return outcome_.has_value(); });
    SR_CHECK(!taken_, "a task is waited for once");
    taken_ = true;
    return *std::move(outcome_);
  }

 private:
  std::function<Result<void>()> work_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::optional<Result<void>> outcome_;
  bool taken_ = false;
};

struct WorkerPool::State {
  std::mutex mutex;
  std::condition_variable ready;
  std::deque<std::shared_ptr<Task>> queue;
  bool closing = false;
  std::vector<std::thread> threads;

  // Runs until the pool closes and the queue is empty: what was submitted is always executed.
  void serve() {
    for (;;) {
      std::shared_ptr<Task> task;
      {
        std::unique_lock lock(mutex);
        ready.wait(lock, [this] { return closing || !queue.empty(); });
        if (queue.empty()) return;
        task = std::move(queue.front());
        queue.pop_front();
      }
      task->execute();
    }
  }
};

WorkerPool::WorkerPool(unsigned workers) : state_(std::make_unique<State>()) {
  State* const state = state_.get();
  for (unsigned i = 0; i < workers; ++i) {
    try {
      state->threads.emplace_back([state] { state->serve(); });
    } catch (const std::exception&) {
      break;  // fewer threads than asked for: slower, never wrong; workers() tells
    }
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
  }
  state_->ready.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

unsigned WorkerPool::workers() const { return static_cast<unsigned>(state_->threads.size()); }

std::shared_ptr<WorkerPool::Task> WorkerPool::run(std::function<Result<void>()> work) {
  auto task = std::make_shared<Task>(std::move(work));
  if (state_->threads.empty()) {
    task->execute();
    return task;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->queue.push_back(task);
  }
  state_->ready.notify_one();
  return task;
}

Result<void> WorkerPool::wait(const std::shared_ptr<Task>& task) { return task->wait(); }

}  // namespace sealring
