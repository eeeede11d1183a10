// The marks of a report ("n.s.", "*", "1 -> 10"), and the words that explain them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sealring/study/report_data.h"

namespace sealring {

inline constexpr double kNoisyPercent = 5;

/// The A/A row's interval of a model: what the baseline differs from itself.
std::optional<Interval> same_against_same(const std::vector<CaseSummary>& summaries);

/// "1.18x [1.15, 1.21]", with " n.s." behind it when not distinguishable, "1.18x (preview)" without an
/// interval.
std::string ratio_text(const std::optional<RatioSummary>& ratio, const std::optional<Interval>& same);

/// A block's samples scatter by more than kNoisyPercent.
bool noisy(const CaseSummary& summary);

/// "83.5 *": iteration time, marked when noisy.
std::string iteration_text(const CaseSummary& summary);

/// What a headline owes beside its two ratios: which of them mean nothing, and how noisy the rows are. Begins
/// with a space; empty when there is nothing to say.
std::string caution_text(const CaseSummary& sealed, const CaseSummary& gloo, const CaseSummary& plain,
                         const std::optional<Interval>& same);

/// "started 2026-01-02T03:04:05Z, ended ...".
std::string when_text(const StudyResults& results);

/// How the ratios of a table come about, for its caption.
std::string ratio_caption();

/// The report's first section: every mark before it is used.
ReportSection reading_section();
/// The same for below a terminal's table: a mark a line.
std::string legend_text();

}  // namespace sealring
