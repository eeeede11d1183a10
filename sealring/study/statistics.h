// Medians, ratios within blocks and their 95 % t-interval: the arithmetic behind every number of the study.
//
// A block runs all cases once, interleaved. A case's ratio in a block is its median over its baseline's
// median of the SAME block; the result is the median of the ratios over blocks, with a t-interval on their
// logarithms.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace sealring {

/// Middle value, mean of the two middle ones for an even count; NaN for none.
double median(std::span<const double> values);
/// Median distance from the median; NaN for none.
double median_absolute_deviation(std::span<const double> values);
double arithmetic_mean(std::span<const double> values);
/// Of positive values; NaN when one is not, or for none.
double geometric_mean(std::span<const double> values);
/// Unbiased; NaN for fewer than two.
double standard_deviation(std::span<const double> values);

/// P(T <= t) of Student's distribution by its regularised incomplete beta function.
double student_t_cdf(double t, double degrees);
/// The t with P(T <= t) = p, 0 < p < 1, to 1e-9.
double student_t_quantile(double p, double degrees);

struct Interval {
  double low = 0, high = 0;
};
/// exp(mean(log) +- t(0.975, n-1) * s / sqrt(n)); nullopt for fewer than two values or one that is not
/// positive.
std::optional<Interval> log_ratio_interval(std::span<const double> ratios);

inline constexpr std::size_t kBlocksForResult = 5;  ///< fewer is a preview, without an interval
inline constexpr std::size_t kBlocksForHeadline = 10;

/// The verdict on one case against its baseline.
struct RatioSummary {
  double ratio = 0;                  ///< median over blocks
  std::optional<Interval> interval;  ///< only with kBlocksForResult blocks or more
  std::size_t blocks = 0;
  bool preview() const { return blocks < kBlocksForResult; }
};
RatioSummary summarize_ratios(std::span<const double> block_ratios);

/// True when `summary` cannot be told from no effect: its own interval holds 1, or its ratio lies inside the
/// interval of the A/A row. A preview is never distinguishable.
bool indistinguishable(const RatioSummary& summary, const std::optional<Interval>& same_against_same);

/// "at most" is met by the interval's upper bound, "at least" by its lower; a preview meets nothing.
enum class Verdict : std::uint8_t { met, missed, undecided, not_run };
Verdict judge_at_most(const RatioSummary& summary, double limit);
Verdict judge_at_least(const RatioSummary& summary, double limit);
std::string_view to_string(Verdict verdict);

/// The least-squares line y = a + b x and its coefficient of determination.
struct Line {
  double a = 0, b = 0, r2 = 0;
};
/// nullopt for fewer than two distinct x.
std::optional<Line> fit_line(std::span<const std::pair<double, double>> points);

}  // namespace sealring
