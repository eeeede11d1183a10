// Claim: each way in which CUDA can refuse gets its own code, the two numbers that explain it, and what to
// do; and the device's verdict on an op is told in the same way. How: the pure functions are given CUDA's
// numbers and made-up facts, case by case.
#include "sealring/device/cuda/cuda_problem.h"

#include <gtest/gtest.h>

#include <set>

#include "sealring/device/cuda/verdict.h"

namespace sealring::cuda {
namespace {

CudaFacts some_facts() {
  CudaFacts facts;
  facts.doing = "key state";
  facts.name = "cudaErrorSomething";
  facts.text = "some sentence";
  facts.device = 3;
  facts.devices = 2;
  facts.driver_version = 12040;
  facts.built_version = 13020;
  facts.wanted_bytes = 512ull << 20;
  facts.free_bytes = 100ull << 20;
  facts.total_bytes = 141ull << 30;
  facts.gpu = "Some GPU";
  facts.major = 8;
  facts.minor = 9;
  facts.built_for = "sm_90a";
  return facts;
}

bool says(const Error& error, const std::string& text) {
  return error.message().find(text) != std::string::npos;
}

TEST(CudaProblem, NoGpu) {
  for (const int status : {100, 101}) {
    const Error error = cuda_problem(status, some_facts());
    EXPECT_EQ(error.code, Code::gpu_absent);
    EXPECT_TRUE(says(error, "CUDA device 3 was asked for, this process sees 2")) << error.message();
    EXPECT_TRUE(says(error, "CUDA_VISIBLE_DEVICES"));
  }
}

TEST(CudaProblem, NoDriver) {
  CudaFacts facts = some_facts();
  facts.driver_version = 0;
  const Error error = cuda_problem(35, facts);
  EXPECT_EQ(error.code, Code::gpu_absent);
  EXPECT_TRUE(says(error, "no NVIDIA driver is loaded"));
}

TEST(CudaProblem, DriverTooOld) {
  for (const int status : {35, 222, 803, 804}) {
    const Error error = cuda_problem(status, some_facts());
    EXPECT_EQ(error.code, Code::gpu_unsupported);
    EXPECT_TRUE(says(error, "the driver serves CUDA 12.4, this build needs 13.0 or newer"))
        << error.message();
    EXPECT_TRUE(says(error, "update the driver"));
  }
}

TEST(CudaProblem, OutOfMemory) {
  const Error error = cuda_problem(2, some_facts());
  EXPECT_EQ(error.code, Code::out_of_memory);
  EXPECT_TRUE(
      says(error, "key state: 512 MiB of device memory were asked for; 100 MiB of 144384 MiB are free"))
      << error.message();
  CudaFacts facts = some_facts();
  facts.wanted_bytes = 300;
  facts.total_bytes = 0;
  EXPECT_TRUE(says(cuda_problem(2, facts), "300 bytes of device memory were asked for;"));
  EXPECT_FALSE(says(cuda_problem(2, facts), "are free"));
  facts.wanted_bytes = 0;
  EXPECT_TRUE(says(cuda_problem(2, facts), "no memory left"));
}

TEST(CudaProblem, WrongArchitecture) {
  for (const int status : {98, 209}) {
    const Error error = cuda_problem(status, some_facts());
    EXPECT_EQ(error.code, Code::gpu_unsupported);
    EXPECT_TRUE(says(error, "Some GPU is of architecture sm_89, this build holds code for sm_90a"));
    EXPECT_TRUE(says(error, "-DSEALRING_CUDA_ARCHITECTURES=89"));
  }
}

TEST(CudaProblem, BusyOrNotReady) {
  EXPECT_EQ(cuda_problem(46, some_facts()).code, Code::gpu_absent);
  EXPECT_TRUE(says(cuda_problem(46, some_facts()), "another process holds it alone"));
  EXPECT_EQ(cuda_problem(802, some_facts()).code, Code::gpu_absent);
  EXPECT_TRUE(says(cuda_problem(802, some_facts()), "fabric manager"));
}

TEST(CudaProblem, WhatIsLeftQuotesCudaAndSaysWhatToDo) {
  std::set<std::string> advice;
  for (const int status : {900, 214, 719}) {
    const Error error = cuda_problem(status, some_facts());
    EXPECT_EQ(error.code, Code::cuda);
    EXPECT_TRUE(says(error, "key state: cudaErrorSomething: some sentence"));
    EXPECT_FALSE(error.next.empty());
    advice.insert(error.next);
  }
  EXPECT_EQ(advice.size(), 3u);
  for (const int status : {901, 906, 908})
    EXPECT_EQ(cuda_problem(status, {}).next, cuda_problem(900, {}).next);
  for (const int status : {700, 702, 714, 715, 716, 717, 718})
    EXPECT_EQ(cuda_problem(status, {}).next, cuda_problem(719, {}).next);
  const Error unknown = cuda_problem(12345, some_facts());
  EXPECT_EQ(unknown.code, Code::cuda);
  EXPECT_TRUE(says(unknown, "cudaErrorSomething"));
}

TEST(DeviceVerdict, SaysWhichRuleRefused) {
  const auto verdict = [](Code code) { return DeviceVerdict{static_cast<std::uint32_t>(code), 17}; };
  EXPECT_TRUE(says(verdict_error(verdict(Code::data_tag), {}), "segment 17 of its job"));
  EXPECT_TRUE(says(verdict_error(verdict(Code::key_limit), {}), "leave 100 ms or more to an epoch"));
  EXPECT_TRUE(says(verdict_error(verdict(Code::seq_reuse_guard), {}), "before it sealed"));
  for (const Code code : {Code::data_tag, Code::key_limit, Code::seq_reuse_guard, Code::seq_exhausted})
    EXPECT_EQ(verdict_error(verdict(code), {}).code, code);
  const Result<void> ended = fail(Code::cuda, "device.cuda", "the device is gone");
  EXPECT_TRUE(says(verdict_error(verdict(Code::key_limit), ended), "the refill of keys had ended"));
  EXPECT_TRUE(says(verdict_error(verdict(Code::key_limit), ended), "the device is gone"));
}

}  // namespace
}  // namespace sealring::cuda
