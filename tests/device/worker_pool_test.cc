// Claim: every submitted job runs exactly once, its result reaches wait(), and nothing is lost when the pool
// ends. How: counters over many jobs with 0, 1 and 4 workers; failing jobs; a pool destroyed with a full
// queue.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <new>
#include <thread>

#include "sealring/device/bulk_cipher.h"

namespace sealring {
namespace {

class Workers : public testing::TestWithParam<unsigned> {};

TEST_P(Workers, RunEveryJobOnce) {
  WorkerPool pool(GetParam());
  EXPECT_EQ(GetParam(), pool.workers());
  std::vector<std::atomic<int>> runs(500);
  std::vector<std::shared_ptr<WorkerPool::Task>> tasks;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    tasks.push_back(pool.run([&runs, i]() -> Result<void> {
      ++runs[i];
      if (i % 7 == 3) return fail(Code::data_tag, "test", std::to_string(i));
      return {};
    }));
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Result<void> result = pool.wait(tasks[i]);
    EXPECT_EQ(i % 7 != 3, result.has_value()) << i;
    if (!result) {
      EXPECT_EQ(std::to_string(i), result.error().what);
    }
    EXPECT_EQ(1, runs[i].load());
  }
}

TEST_P(Workers, ExhaustedMemoryIsAnError) {
  WorkerPool pool(GetParam());
  const Result<void> result = pool.wait(pool.run([]() -> Result<void> { throw std::bad_alloc(); }));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(Code::out_of_memory, result.error().code);
}

TEST_P(Workers, DestructionFinishesTheQueue) {
  std::atomic<int> done{0};
  {
    WorkerPool pool(GetParam());
    for (int i = 0; i < 100; ++i) {
      pool.run([&done]() -> Result<void> {
        ++done;
        return {};
      });
    }
  }
  EXPECT_EQ(100, done.load());
}

INSTANTIATE_TEST_SUITE_P(Counts, Workers, testing::Values(0u, 1u, 4u));

TEST(WorkerPool, NoWorkersMeansTheCaller) {
  WorkerPool pool(0);
  const auto caller = std::this_thread::get_id();
  std::thread::id ran;
  const auto task = pool.run([&]() -> Result<void> {
    ran = std::this_thread::get_id();
    return {};
  });
  EXPECT_EQ(caller, ran);  // before wait()
  EXPECT_TRUE(pool.wait(task).has_value());
}

TEST(WorkerPool, WorkersRunAtTheSameTime) {
  WorkerPool pool(2);
  std::latch both(2);
  const auto meet = [&both]() -> Result<void> {
    both.arrive_and_wait();  // hangs unless two threads are here
    return {};
  };
  const auto first = pool.run(meet);
  const auto second = pool.run(meet);
  EXPECT_TRUE(pool.wait(first).has_value());
  EXPECT_TRUE(pool.wait(second).has_value());
}

}  // namespace
}  // namespace sealring
