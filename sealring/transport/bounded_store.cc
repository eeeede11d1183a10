// A store that may fall silent, asked by a thread that may be left behind.
#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "sealring/base/process_mark.h"
#include "sealring/transport/store.h"

namespace sealring {
namespace {

/// Beyond the deadline a call still has this long: the note that tells why a rank gave up comes after it.
constexpr std::chrono::milliseconds kGrace{500};

/// What the caller and the thread share; whoever lets go last destroys the store.
struct Asked {
  explicit Asked(std::shared_ptr<Store> asked_store) : store(std::move(asked_store)) {}
  const std::shared_ptr<Store> store;
  std::mutex mutex;
  std::condition_variable changed;
  std::function<void(Store&)> work;  ///< empty: nothing to do; stays until it was done
  bool ending = false;
};

void serve(const std::shared_ptr<Asked>& asked) {
  std::unique_lock lock(asked->mutex);
  while (true) {
    asked->changed.wait(lock, [&] { return asked->work || asked->ending; });
    if (!asked->work) return;
    lock.unlock();
    try {
      asked->work(*asked->store);
    } catch (const std::exception&) {  // memory: the answer stays absent
    }
    lock.lock();
    asked->work = nullptr;
    asked->changed.notify_all();
  }
}

class BoundedStore final : public Store {
 public:
  BoundedStore(std::shared_ptr<Store> inner, Deadline deadline)
      : description_(inner->describe()),
        deadline_(deadline),
        asked_(std::make_shared<Asked>(std::move(inner))),
        thread_([asked = asked_] { serve(asked); }) {}
  ~BoundedStore() override {
    if (process_.forked()) {  // the thread is the parent's, and what it held at the fork it holds for ever
      new std::shared_ptr<Asked>(std::move(asked_));
      new std::thread(std::move(thread_));
      return;
    }
    bool silent = false;
    {
      const std::lock_guard lock(asked_->mutex);
      asked_->ending = true;
      silent = static_cast<bool>(asked_->work);
    }
    asked_->changed.notify_all();
    silent ? thread_.detach() : thread_.join();
  }

  Result<void> set(const std::string& key, ByteView value) override {
    return call<void>("store.set", key,
                      [key, bytes = to_bytes(value)](Store& store) { return store.set(key, bytes); });
  }
  Result<std::optional<Bytes>> try_get(const std::string& key) override {
    return call<std::optional<Bytes>>("store.get", key, [key](Store& store) { return store.try_get(key); });
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    return call<std::int64_t>("store.add", key,
                              [key, amount](Store& store) { return store.add(key, amount); });
  }
  Result<void> remove(const std::string& key) override {
    return call<void>("store.remove", key, [key](Store& store) { return store.remove(key); });
  }
  std::string describe() const override { return description_; }

 private:
  template <class T, class Work>
  Result<T> call(const char* stage, const std::string& key, Work work) {
    if (process_.forked()) {
      return fail(Code::forked, stage, "this process was forked from the one that uses the store");
    }
    const std::lock_guard one_at_a_time(callers_);
    // Shared: the caller may be gone when the answer comes.
    const auto answer = std::make_shared<std::optional<Result<T>>>();
    std::unique_lock lock(asked_->mutex);
    if (silent_) return fail(silence(stage, key));
    asked_->work = [answer, work = std::move(work)](Store& store) { *answer = work(store); };
    asked_->changed.notify_all();
    const auto until = std::max(deadline_.when(), Clock::now() + kGrace);
    silent_ = !asked_->changed.wait_until(lock, until, [this] { return !asked_->work; });
    if (silent_) return fail(silence(stage, key));
    if (!*answer) return fail(Code::store, stage, "there was no memory for the store's answer");
    return std::move(**answer);
  }
  Error silence(const char* stage, const std::string& key) const {
    Error error;
    error.code = Code::timeout;
    error.stage = stage;
    error.what = description_ + " did not answer in time; it was asked for \"" + key + "\"";
    error.next = "look at the process that serves the store (rank 0's), and at the way to it";
    return error;
  }

  const std::string description_;
  const Deadline deadline_;
  const ProcessMark process_;
  std::mutex callers_;
  bool silent_ = false;  ///< a call was not answered: final
  std::shared_ptr<Asked> asked_;
  std::thread thread_;
};

}  // namespace

Result<std::shared_ptr<Store>> make_bounded_store(std::shared_ptr<Store> inner, Deadline deadline) {
  SR_CHECK(inner != nullptr);
  try {
    return std::make_shared<BoundedStore>(std::move(inner), deadline);
  } catch (const std::system_error& problem) {
    return fail(Code::out_of_memory, "store.open",
                std::string("no thread could be started: ") + problem.what());
  }
}

}  // namespace sealring
