// Claim: a store that falls silent costs no more than the deadline, once; one that answers is just itself.
// How: a store whose calls wait for a gate; what each call gives and how long it takes; a fork; a late
// answer.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "sealring/transport/store.h"
#include "tests/transport/ranks.h"

namespace sealring::testing {
namespace {

using std::chrono::milliseconds;

/// Open, or shut: then calls wait.
class Gate {
 public:
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
};

struct Gated {
  explicit Gated(Deadline deadline) {
    const std::shared_ptr<Store> memory = make_memory_store();
    const auto at = gate;
    const auto token = std::make_shared<int>(0);
    alive = token;
    const std::shared_ptr<Store> inner = make_callback_store(
        {[at, memory, token](const std::string& k, ByteView v) { return at->pass(), memory->set(k, v); },
         [at, memory](const std::string& k) { return at->pass(), memory->try_get(k); },
         [at, memory](const std::string& k, std::int64_t n) { return at->pass(), memory->add(k, n); },
         [at, memory](const std::string& k) { return at->pass(), memory->remove(k); }, "theirs"});
    store = *make_bounded_store(inner, deadline);
  }
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  std::weak_ptr<int> alive;  ///< expired when the inner store is destroyed
  std::shared_ptr<Store> store;
};

milliseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
}

TEST(BoundedStore, AnswersAreTheInnerStores) {
  Gated gated(seconds(20));
  EXPECT_TRUE(gated.store->set("a", as_bytes("1")).has_value());
  EXPECT_EQ(gated.store->set("a", as_bytes("2")).error().code, Code::store);
  EXPECT_EQ(**gated.store->try_get("a"), to_bytes(as_bytes("1")));
  EXPECT_FALSE(gated.store->try_get("b")->has_value());
  EXPECT_EQ(*gated.store->add("n", 3), 3);
  EXPECT_TRUE(gated.store->remove("a").has_value());
  EXPECT_FALSE(gated.store->try_get("a")->has_value());
  EXPECT_EQ(gated.store->describe(), "theirs");
  gated.store.reset();
  EXPECT_TRUE(gated.alive.expired());
}

TEST(BoundedStore, SilenceIsATimeoutAtTheDeadlineAndThenAtOnce) {
  const auto begin = Clock::now();
  Gated gated(Deadline::in(milliseconds(700)));
  gated.gate->set(false);
  const auto silent = gated.store->try_get("job/0/hello/1");
  const auto first = since(begin);
  ASSERT_FALSE(silent.has_value());
  EXPECT_EQ(silent.error().code, Code::timeout);
  EXPECT_EQ(silent.error().stage, "store.get");
  EXPECT_NE(silent.error().what.find("theirs did not answer"), std::string::npos) << silent.error().what;
  EXPECT_NE(silent.error().what.find("job/0/hello/1"), std::string::npos) << silent.error().what;
  EXPECT_GE(first, milliseconds(690));
  EXPECT_LT(first, milliseconds(2000 * slowness()));
  const auto again = Clock::now();
  EXPECT_EQ(gated.store->set("a", {}).error().code, Code::timeout);
  EXPECT_EQ(gated.store->add("n", 1).error().code, Code::timeout);
  EXPECT_EQ(gated.store->remove("a").error().stage, "store.remove");
  EXPECT_LT(since(again), milliseconds(300 * slowness()));
  const auto ending = Clock::now();
  gated.store.reset();
  EXPECT_LT(since(ending), milliseconds(300 * slowness()));
  EXPECT_FALSE(gated.alive.expired()) << "the thread is inside it";
  gated.gate->set(true);
  for (int i = 0; i < 1000 && !gated.alive.expired(); ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(gated.alive.expired());
}

TEST(BoundedStore, AnAnswerThatComesTooLateIsNotTaken) {
  Gated gated(Deadline::in(milliseconds(100)));
  gated.gate->set(false);
  EXPECT_EQ(gated.store->add("n", 1).error().code, Code::timeout);
  gated.gate->set(true);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(gated.store->add("n", 1).error().code, Code::timeout);
}

TEST(BoundedStore, BehindTheDeadlineANoteCanStillBePosted) {
  Gated gated(Deadline::in(milliseconds(0)));
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_TRUE(gated.store->set("note", as_bytes("why")).has_value());
}

TEST(BoundedStore, IsNotAForkedChilds) {
  Gated gated(seconds(20));
  ASSERT_TRUE(gated.store->set("a", {}).has_value());
  const pid_t child = ::fork();
  if (child == 0) {
    const auto result = gated.store->try_get("a");
    const bool forked = !result && result.error().code == Code::forked;
    gated.store.reset();
    ::_exit(forked ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(gated.store->try_get("a")->has_value());
}

}  // namespace
}  // namespace sealring::testing
