#include "sealring/study/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sealring/base/result.h"

namespace sealring {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Continued fraction of the incomplete beta function [Abramowitz and Stegun 26.5.8], by Lentz's method.
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto away_from_zero = [](double v) { return std::fabs(v) < kTiny ? kTiny : v; };
  double c = 1;
  double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double value = d;
  for (int m = 1; m <= 500; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    value *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    value *= d * c;
    if (std::fabs(d * c - 1) < 1e-15) break;
  }
  return value;
}

double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

}  // namespace

double median(std::span<const double> values) {
  // A NaN has no place in an order: sorting with one is undefined.
  if (values.empty() || std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); }))
    return kNan;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double median_absolute_deviation(std::span<const double> values) {
  const double centre = median(values);
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::fabs(value - centre));
  return median(distances);
}

double arithmetic_mean(std::span<const double> values) {
  if (values.empty()) return kNan;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double geometric_mean(std::span<const double> values) {
  std::vector<double> logs;
  for (const double value : values) {
    if (!(value > 0)) return kNan;
    logs.push_back(std::log(value));
  }
  return std::exp(arithmetic_mean(logs));
}

double standard_deviation(std::span<const double> values) {
  if (values.size() < 2) return kNan;
  const double mean = arithmetic_mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double student_t_cdf(double t, double degrees) {
  const double tail = 0.5 * incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
  return t > 0 ? 1 - tail : tail;
}

double student_t_quantile(double p, double degrees) {
  SR_CHECK(p > 0 && p < 1 && degrees > 0, "p", p, "degrees", degrees);
  if (p < 0.5) return -student_t_quantile(1 - p, degrees);
  double low = 0, high = 1;
  while (student_t_cdf(high, degrees) < p && high < 1e12) high *= 2;
  while (high - low > 1e-10 * std::max(1.0, high)) {
    const double middle = (low + high) / 2;
    (student_t_cdf(middle, degrees) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::optional<Interval> log_ratio_interval(std::span<const double> ratios) {
  if (ratios.size() < 2) return std::nullopt;
  std::vector<double> logs;
  for (const double ratio : ratios) {
    if (!(ratio > 0) || !std::isfinite(ratio)) return std::nullopt;
    logs.push_back(std::log(ratio));
  }
  const double count = static_cast<double>(logs.size());
  const double mean = arithmetic_mean(logs);
  const double half = student_t_quantile(0.975, count - 1) * standard_deviation(logs) / std::sqrt(count);
  return Interval{std::exp(mean - half), std::exp(mean + half)};
}

RatioSummary summarize_ratios(std::span<const double> block_ratios) {
  RatioSummary out;
  out.ratio = median(block_ratios);
  out.blocks = block_ratios.size();
  if (!out.preview()) out.interval = log_ratio_interval(block_ratios);
  return out;
}

bool indistinguishable(const RatioSummary& summary, const std::optional<Interval>& same_against_same) {
  if (!summary.interval) return true;
  if (summary.interval->low <= 1 && 1 <= summary.interval->high) return true;
  return same_against_same && same_against_same->low <= summary.ratio &&
         summary.ratio <= same_against_same->high;
}

Verdict judge_at_most(const RatioSummary& summary, double limit) {
  if (!summary.interval) return Verdict::undecided;
  if (summary.interval->high <= limit) return Verdict::met;
  return summary.interval->low > limit ? Verdict::missed : Verdict::undecided;
}

Verdict judge_at_least(const RatioSummary& summary, double limit) {
  if (!summary.interval) return Verdict::undecided;
  if (summary.interval->low >= limit) return Verdict::met;
  return summary.interval->high < limit ? Verdict::missed : Verdict::undecided;
}

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::met:
      return "met";
    case Verdict::missed:
      return "missed";
    case Verdict::undecided:
      return "undecided";
    case Verdict::not_run:
      return "not run";
  }
  return "?";
}

std::optional<Line> fit_line(std::span<const std::pair<double, double>> points) {
  double sum_x = 0, sum_y = 0;
  for (const auto& [x, y] : points) {
    sum_x += x;
    sum_y += y;
  }
  const double count = static_cast<double>(points.size());
  double xx = 0, xy = 0, yy = 0;
  for (const auto& [x, y] : points) {
    xx += (x - sum_x / count) * (x - sum_x / count);
    xy += (x - sum_x / count) * (y - sum_y / count);
    yy += (y - sum_y / count) * (y - sum_y / count);
  }
  if (points.size() < 2 || !(xx > 0)) return std::nullopt;
  Line line;
  line.b = xy / xx;
  line.a = (sum_y - line.b * sum_x) / count;
  line.r2 = yy > 0 ? xy * xy / (xx * yy) : 1;
  return line;
}

}  // namespace sealring
