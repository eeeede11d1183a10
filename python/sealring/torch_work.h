// SealedWork: the handle of one operation as PyTorch wants it, and the threads that complete Futures.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "python/sealring/torch_tensors.h"
#include "sealring/base/process_mark.h"

namespace sealring::torch_backend {

namespace py = pybind11;

/// Frees the GIL if this thread has it: whatever waits for other threads must not hold it.
class WithoutGil {
 public:
  WithoutGil() {
    if (Py_IsInitialized() && PyGILState_Check()) release_.emplace();
  }

 private:
  std::optional<py::gil_scoped_release> release_;
};

/// Runs what may block: callbacks of Futures are users' code, take the GIL, and may wait for a further
/// operation. So it never runs in the communicator's thread, and a new thread is made when all are busy.
class CompletionThreads {
 public:
  /// Never destroyed: its threads may outlive static destructors.
  static CompletionThreads& instance() {
    static auto* threads = new CompletionThreads;
    return *threads;
  }
  void run(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
      if (tasks_.size() > idle_) std::thread([this] { serve(); }).detach();
    }
    changed_.notify_one();
  }

 private:
  static constexpr std::size_t kIdleMax = 4;
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      --idle_;
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
      if (idle_ >= kIdleMax) return;
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::size_t idle_ = 0;
};

/// What every operation of a group knows of it.
struct GroupLabel {
  std::string name;  ///< for messages only
  ProcessMark process;
  std::atomic<std::int64_t> timeout_ms{0};
  bool blocking_wait = false;  ///< SEALRING_BLOCKING_WAIT
  void refuse_in_child(const char* op) const {
    // A forked child has a copy of keys and counters: using them would repeat nonces.
    if (process.forked())
      raise(Code::forked, op, "this process was forked from the one that made the group '" + name + "'",
            "call collectives in the parent only, or start workers with the spawn method and a group of "
            "their own");
  }
};

/// Completes when all its tickets (or children) have. Thread-safe.
class SealedWork : public c10d::Work {
 public:
  SealedWork(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> outputs,
             std::shared_ptr<const GroupLabel> group, std::uint64_t seq)
      : Work(rank, type, title, outputs), outputs_(std::move(outputs)), group_(std::move(group)), seq_(seq) {}

  Staging staging;
  std::shared_ptr<Rank> source;  ///< of a receive from any source

  /// One more part must complete. Begins at one: the issuing call's own part, given back by issued().
  void expect_part() { ++parts_; }
  void part_done(const Result<void>& result) {
    if (!result) note(std::make_exception_ptr(std::runtime_error(with_context(result.error()).message())));
    end_part();
  }
  void part_done(std::exception_ptr problem) {
    if (problem) note(std::move(problem));
    end_part();
  }
  void issued() { end_part(); }
  /// Called once when this has completed, from the thread that completes it; at once if it has.
  void on_finish(std::function<void(std::exception_ptr)> callback) {
    std::unique_lock lock(mutex_);
    if (!completed_) {
      watchers_.push_back(std::move(callback));
      return;
    }
    lock.unlock();
    callback(exception_);
  }

  bool wait(std::chrono::milliseconds timeout) override {
    group_->refuse_in_child("torch.wait");
    std::unique_lock lock(mutex_);
    if (timeout <= std::chrono::milliseconds(0)) {  // the group's own timeout ends the operation
      cv_.wait(lock, [this] { return completed_; });
    } else if (!cv_.wait_for(lock, timeout, [this] { return completed_; })) {
      lock.unlock();
      raise(Code::timeout, "torch.wait",
            "an operation of group '" + group_->name + "' is not done after the " +
                std::to_string(timeout.count()) + " ms that wait() was given");
    }
    if (exception_) std::rethrow_exception(exception_);
    return true;
  }
  void synchronize() override {}  // CPU tensors: complete is complete
  std::vector<at::Tensor> result() override { return outputs_; }
  int sourceRank() const override { return source ? static_cast<int>(*source) : -1; }
  std::uint64_t getSequencenumber() const override { return seq_; }
  void abort() override {}  // ended with its session alone

  /// With SEALRING_BLOCKING_WAIT=1 it is complete when it is handed out. Callbacks that call collectives
  /// themselves (PowerSGD) need that: then they run in the thread that adds them, and so in the same order on
  /// every rank.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    if (group_->blocking_wait) {
      const WithoutGil free_gil;
      std::unique_lock lock(mutex_);
      cv_.wait(lock, [this] { return completed_; });
    }
    bool mine = false;
    {
      const std::lock_guard lock(mutex_);
      if (!future_)
        future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
      mine = completed_ && !std::exchange(future_claimed_, completed_);
    }
    if (mine) resolve();
    return future_;
  }

 private:
  Error with_context(Error error) const {
    if (error.code == Code::timeout)
      error.what += " (group '" + group_->name + "', timeout " + std::to_string(group_->timeout_ms) + " ms)";
    return error;
  }
  void note(std::exception_ptr problem) {
    const std::lock_guard lock(mutex_);
    if (!problem_) problem_ = std::move(problem);
  }
  void end_part() {
    if (--parts_ != 0) return;
    try {
      staging.finish(problem_ != nullptr);
    } catch (const std::exception& problem) {
      note(std::make_exception_ptr(std::runtime_error(problem.what())));
    }
    finish(problem_);  // sets completed_ and exception_, wakes waiters, ends the profiler's range
    std::vector<std::function<void(std::exception_ptr)>> watchers;
    bool resolve_future = false;
    {
      const std::lock_guard lock(mutex_);
      watchers.swap(watchers_);
      if (future_) resolve_future = !std::exchange(future_claimed_, true);
    }
    for (const auto& watcher : watchers) watcher(exception_);
    if (resolve_future)
      CompletionThreads::instance().run(
          [self = c10::intrusive_ptr<SealedWork>::reclaim_copy(this)] { self->resolve(); });
  }
  // No lock is held here: completing a Future runs its callbacks.
  void resolve() {
    if (exception_)
      future_->setError(exception_);
    else
      future_->markCompleted(c10::IValue(outputs_));
  }

  std::vector<at::Tensor> outputs_;
  std::shared_ptr<const GroupLabel> group_;
  const std::uint64_t seq_;
  std::atomic<int> parts_{1};
  std::exception_ptr problem_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool future_claimed_ = false;
  std::vector<std::function<void(std::exception_ptr)>> watchers_;
};

}  // namespace sealring::torch_backend
