// Claim: the first error wins and stays, callbacks run once in their order outside the lock, the diagnosis
// comes once. How: every order of set, on_death and set_diagnosis; callbacks that call back; many threads
// that race to be first.
#include "sealring/base/verdict.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace sealring {
namespace {

Error error_of(std::string what, Code code = Code::data_tag) {
  Error error;
  error.code = code;
  error.what = std::move(what);
  return error;
}

TEST(Verdict, TheFirstErrorStays) {
  Verdict verdict;
  EXPECT_FALSE(verdict.dead());
  EXPECT_FALSE(verdict.error().has_value());
  EXPECT_TRUE(verdict.set(error_of("first")));
  EXPECT_TRUE(verdict.dead());
  EXPECT_FALSE(verdict.set(error_of("second", Code::timeout)));
  EXPECT_EQ(verdict.error()->what, "first");
  EXPECT_EQ(verdict.error()->code, Code::data_tag);
}

TEST(Verdict, CallbacksRunOnceInTheirOrderInTheSettersThread) {
  Verdict verdict;
  std::vector<std::string> calls;
  const auto me = std::this_thread::get_id();
  for (int i = 0; i < 3; ++i) {
    verdict.on_death([&calls, i, me](const Error& error) {
      EXPECT_EQ(std::this_thread::get_id(), me);
      calls.push_back(std::to_string(i) + error.what);
    });
  }
  EXPECT_TRUE(calls.empty());
  (void)verdict.set(error_of("x"));
  (void)verdict.set(error_of("y"));
  EXPECT_EQ(calls, (std::vector<std::string>{"0x", "1x", "2x"}));
  verdict.on_death([&calls](const Error& error) { calls.push_back("late" + error.what); });
  EXPECT_EQ(calls.back(), "latex");
}

TEST(Verdict, CallbacksMayCallBack) {
  Verdict verdict;
  int inner = 0;
  verdict.on_death([&](const Error&) {
    EXPECT_TRUE(verdict.dead());
    EXPECT_EQ(verdict.error()->what, "outer");
    EXPECT_FALSE(verdict.set(error_of("inner")));
    verdict.set_diagnosis("line");
    verdict.on_death([&](const Error&) { ++inner; });
  });
  (void)verdict.set(error_of("outer"));
  EXPECT_EQ(inner, 1);
  EXPECT_EQ(verdict.error()->diagnosis, "line");
}

TEST(Verdict, TheDiagnosisComesOnceAndOnlyAfterDeath) {
  Verdict verdict;
  verdict.set_diagnosis("too early");
  (void)verdict.set(error_of("x"));
  EXPECT_EQ(verdict.error()->diagnosis, "");
  verdict.set_diagnosis("first");
  verdict.set_diagnosis("second");
  EXPECT_EQ(verdict.error()->diagnosis, "first");
  Verdict given;
  Error error = error_of("x");
  error.diagnosis = "brought along";
  (void)given.set(error);
  given.set_diagnosis("later");
  EXPECT_EQ(given.error()->diagnosis, "brought along");
}

TEST(Verdict, OfManyThreadsExactlyOneIsFirst) {
  for (int round = 0; round < 50; ++round) {
    Verdict verdict;
    std::atomic<int> firsts{0}, calls{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        verdict.on_death([&calls](const Error&) { ++calls; });
        if (verdict.set(error_of(std::to_string(i)))) ++firsts;
        EXPECT_TRUE(verdict.dead());
        EXPECT_TRUE(verdict.error().has_value());
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(firsts, 1);
    EXPECT_EQ(calls, 4);
  }
}

}  // namespace
}  // namespace sealring
