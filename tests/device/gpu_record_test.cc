// Claim: the GPU bench's record states median, spread and machine, is JSON whatever the names hold, and says
// "CC off" only when the driver said so.
// How: samples whose order statistics are known, made-up machines, and the text that comes out.
#include <gtest/gtest.h>

#include <numeric>

#include "bench/gpu/record.h"

namespace sealring::bench {
namespace {

TEST(GpuRecord, MedianMadAndTheIntervalOfTheMedian) {
  std::vector<double> samples(21);
  std::iota(samples.rbegin(), samples.rend(), 1.0);  // 1..21, in falling order
  const Spread spread = spread_of(samples);
  EXPECT_EQ(spread.median, 11);
  EXPECT_EQ(spread.mad, 5);
  // Of 21 samples the 6th and the 16th: 97.3 %, while the 7th and the 15th would be 92.2 %.
  EXPECT_EQ(spread.low, 6);
  EXPECT_EQ(spread.high, 16);
  EXPECT_EQ(spread_of({4, 2}).median, 3);
  const Spread few = spread_of({1, 2, 3, 4, 5});  // too few to cut anything off
  EXPECT_EQ(few.low, 1);
  EXPECT_EQ(few.high, 5);
  EXPECT_EQ(spread_of({7}).low, 7);
  EXPECT_EQ(spread_of({}).median, 0);
}

TEST(GpuRecord, ConfidentialComputingIsOffOnlyWhenTheDriverSaidSo) {
  const auto mode = [](bool nvml, std::optional<unsigned> feature, std::optional<unsigned> multi_gpu) {
    return confidential_mode({nvml, feature, multi_gpu}).first;
  };
  EXPECT_EQ(mode(false, {}, {}), "unknown");
  EXPECT_EQ(mode(true, {}, 0), "unknown");
  EXPECT_EQ(mode(true, 0, 0), "CC off (not attested)");
  EXPECT_EQ(mode(true, 0, {}), "CC off (not attested)");
  EXPECT_EQ(mode(true, 1, 0), "CC on (not attested)");
  EXPECT_NE(mode(true, 0, 1), "CC off (not attested)");
  EXPECT_NE(confidential_mode({true, 0, {}}).second.find("Settings gave no answer"), std::string::npos);
}

TEST(GpuRecord, EveryFieldIsThere) {
  Machine machine;
  machine.commit = "abc123";
  machine.gpu = "A \"quoted\" \\ name\n";
  Row row;
  row.name = "seal";
  row.payload_bytes = 2000;
  row.samples = {1, 2, 3};
  row.time = spread_of(row.samples);
  const std::string text = json_of(machine, 4000, {row, row});
  for (const char* const part :
       {"\"commit\": \"abc123\"", "\"device\": \"A \\\"quoted\\\" \\\\ name\"", "\"clock_now_mhz\": null",
        "\"confidential_computing\": \"unknown\"", "\"us\": 2,", "\"us_mad\": 1,", "\"us_low\": 1,",
        "\"us_high\": 3,", "\"gbps\": 1,", "\"gbps_low\": 0.6666666667,", "\"samples_us\": [1, 2, 3]}"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

}  // namespace
}  // namespace sealring::bench
