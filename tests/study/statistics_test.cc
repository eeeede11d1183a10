// Claim: medians, means, t quantiles, intervals and verdicts are the textbook's.
// How: published t-table values, a hand-computed interval, and truth tables around every threshold.
#include "sealring/study/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sealring {
namespace {

using Values = std::vector<double>;

TEST(Statistics, Centres) {
  EXPECT_TRUE(std::isnan(median(Values{})));
  EXPECT_EQ(median(Values{3}), 3);
  EXPECT_EQ(median(Values{5, 1, 3}), 3);
  EXPECT_EQ(median(Values{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median_absolute_deviation(Values{1, 1, 2, 2, 4, 6, 9}), 1);
  EXPECT_EQ(arithmetic_mean(Values{1, 2, 6}), 3);
  EXPECT_DOUBLE_EQ(geometric_mean(Values{1, 2, 4}), 2);
  EXPECT_TRUE(std::isnan(geometric_mean(Values{1, 0})));
  EXPECT_TRUE(std::isnan(geometric_mean(Values{})));
  EXPECT_DOUBLE_EQ(standard_deviation(Values{2, 4, 4, 4, 5, 5, 7, 9}), std::sqrt(32.0 / 7));
  EXPECT_TRUE(std::isnan(standard_deviation(Values{1})));
}

/// Table of Student's distribution, two-sided 95 % (p = 0.975) and others, as printed in textbooks.
TEST(Statistics, StudentTable) {
  struct Row {
    double p, degrees, t;
  };
  for (const Row& row :
       {Row{0.975, 1, 12.706}, Row{0.975, 2, 4.303}, Row{0.975, 4, 2.776}, Row{0.975, 9, 2.262},
        Row{0.975, 30, 2.042}, Row{0.975, 1e6, 1.960}, Row{0.95, 4, 2.132}, Row{0.995, 4, 4.604},
        Row{0.5, 3, 0.0}, Row{0.025, 4, -2.776}}) {
    EXPECT_NEAR(student_t_quantile(row.p, row.degrees), row.t, 5e-4) << row.p << " " << row.degrees;
  }
  EXPECT_NEAR(student_t_cdf(1, 1), 0.75, 1e-12);  // Cauchy: 1/2 + atan(t)/pi
  EXPECT_NEAR(student_t_cdf(-2, 1), 0.5 - std::atan(2.0) / M_PI, 1e-12);
  EXPECT_NEAR(student_t_cdf(std::sqrt(2.0), 2), 0.5 + std::sqrt(2.0) / (2 * std::sqrt(4.0)), 1e-12);
}

TEST(Statistics, IntervalOfKnownRatios) {
  // Logs -1, 0, 1 times 0.1: mean 0, s = 0.1, n = 3: half width 4.302653 * 0.1 / sqrt(3).
  const Values ratios{std::exp(-0.1), 1.0, std::exp(0.1)};
  const auto interval = log_ratio_interval(ratios);
  ASSERT_TRUE(interval);
  const double half = 4.30265273 * 0.1 / std::sqrt(3.0);
  EXPECT_NEAR(interval->low, std::exp(-half), 1e-8);
  EXPECT_NEAR(interval->high, std::exp(half), 1e-8);
  EXPECT_FALSE(log_ratio_interval(Values{1}));
  EXPECT_FALSE(log_ratio_interval(Values{1, 0}));
  EXPECT_FALSE(log_ratio_interval(Values{1, NAN}));
  EXPECT_FALSE(log_ratio_interval(Values{1, INFINITY}));
}

TEST(Statistics, FewerThanFiveBlocksIsAPreview) {
  const RatioSummary four = summarize_ratios(Values{1.2, 1.3, 1.1, 1.2});
  EXPECT_TRUE(four.preview());
  EXPECT_FALSE(four.interval);
  EXPECT_DOUBLE_EQ(four.ratio, 1.2);
  EXPECT_EQ(judge_at_most(four, 100), Verdict::undecided);
  const RatioSummary five = summarize_ratios(Values{1.2, 1.3, 1.1, 1.2, 1.2});
  EXPECT_FALSE(five.preview());
  ASSERT_TRUE(five.interval);
}

TEST(Statistics, VerdictsFollowTheIntervalsBounds) {
  RatioSummary summary;
  summary.ratio = 1.1;
  summary.blocks = 5;
  summary.interval = Interval{1.05, 1.15};
  EXPECT_EQ(judge_at_most(summary, 1.15), Verdict::met);
  EXPECT_EQ(judge_at_most(summary, 1.149), Verdict::undecided);
  EXPECT_EQ(judge_at_most(summary, 1.05), Verdict::undecided);
  EXPECT_EQ(judge_at_most(summary, 1.049), Verdict::missed);
  EXPECT_EQ(judge_at_least(summary, 1.05), Verdict::met);
  EXPECT_EQ(judge_at_least(summary, 1.051), Verdict::undecided);
  EXPECT_EQ(judge_at_least(summary, 1.15), Verdict::undecided);
  EXPECT_EQ(judge_at_least(summary, 1.151), Verdict::missed);
}

TEST(Statistics, SmallEffectsAreNotDistinguishable) {
  RatioSummary summary;
  summary.ratio = 1.02;
  summary.blocks = 5;
  EXPECT_TRUE(indistinguishable(summary, std::nullopt));  // a preview
  summary.interval = Interval{0.99, 1.05};
  EXPECT_TRUE(indistinguishable(summary, std::nullopt));  // holds 1
  summary.interval = Interval{1.01, 1.03};
  EXPECT_FALSE(indistinguishable(summary, std::nullopt));
  EXPECT_FALSE(indistinguishable(summary, Interval{0.99, 1.01}));
  EXPECT_TRUE(indistinguishable(summary, Interval{0.97, 1.03}));  // no more than the baseline against itself
}

TEST(Statistics, LineThroughPoints) {
  const std::vector<std::pair<double, double>> points{{0, 1}, {1, 3}, {2, 5}};
  const auto line = fit_line(points);
  ASSERT_TRUE(line);
  EXPECT_DOUBLE_EQ(line->a, 1);
  EXPECT_DOUBLE_EQ(line->b, 2);
  EXPECT_DOUBLE_EQ(line->r2, 1);
  const std::vector<std::pair<double, double>> same{{1, 1}, {1, 2}};
  EXPECT_FALSE(fit_line(same));
}

}  // namespace
}  // namespace sealring
