#include "sealring/study/report_marks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace sealring {

std::string counted(std::size_t number, const std::string& what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

std::optional<Interval> same_against_same(const std::vector<CaseSummary>& summaries) {
  for (const CaseSummary& each : summaries) {
    if (each.record->engine == "plain-ring-again" && each.to_plain) return each.to_plain->interval;
  }
  return std::nullopt;
}

std::string ratio_text(const std::optional<RatioSummary>& ratio, const std::optional<Interval>& same) {
  if (!ratio) return "-";
  if (!ratio->interval) return fmt::format("{:.2f}x (preview)", ratio->ratio);
  return fmt::format("{:.2f}x [{:.2f}, {:.2f}]{}", ratio->ratio, ratio->interval->low, ratio->interval->high,
                     indistinguishable(*ratio, same) ? " n.s." : "");
}

bool noisy(const CaseSummary& summary) { return summary.mad_percent > kNoisyPercent; }

std::string iteration_text(const CaseSummary& summary) {
  return fmt::format("{:.1f}{}", summary.iteration_ms, noisy(summary) ? " *" : "");
}

std::string caution_text(const CaseSummary& sealed, const CaseSummary& gloo, const CaseSummary& plain,
                         const std::optional<Interval>& same) {
  const auto unclear = [&](const std::optional<RatioSummary>& ratio) {
    return ratio && ratio->interval && indistinguishable(*ratio, same);
  };
  const bool to_gloo = unclear(sealed.to_gloo), to_plain = unclear(sealed.to_plain);
  std::string out;
  if (to_gloo || to_plain) {
    out += fmt::format(" n.s.: this study cannot tell it from {}.", !to_plain  ? "Gloo"
                                                                    : !to_gloo ? "our own plain ring"
                                                                               : "either of the two");
  }
  const double worst = std::max({sealed.mad_percent, gloo.mad_percent, plain.mad_percent});
  if (worst > kNoisyPercent) {
    out += fmt::format(
        " These rows are noisy (*): within a block their samples scatter by up to {:.0f} % (median "
        "deviation).",
        worst);
  }
  return out;
}

std::string when_text(const StudyResults& results) {
  return fmt::format("started {}, {}", results.date,
                     results.ended.empty() ? "end not recorded" : "ended " + results.ended);
}

std::string ratio_caption() {
  return "A ratio is formed in every block, median over median, and the median of the blocks' ratios is "
         "shown "
         "with its 95 % t-interval on log ratios: it is not the quotient of two cells of the ms column, "
         "which "
         "are medians over blocks by themselves";
}

ReportSection reading_section() {
  ReportSection out;
  out.title = "How to read this";
  out.paragraphs = {
      fmt::format(
          "- 1.07x [0.95, 1.10]: takes 1.07 times the baseline's time; in brackets the 95 % interval. "
          "{}. (preview): fewer than {} blocks, so no interval.",
          ratio_caption(), kBlocksForResult),
      "- n.s.: not distinguishable from no effect. The interval holds 1, or the ratio lies within the "
      "interval "
      "of the A/A row, which is the baseline run against itself.",
      fmt::format("- *: noisy. In some block the samples scatter by more than {:g} % (median deviation).",
                  kNoisyPercent),
      "- cap: the bucket size asked of DDP. k, \"1 -> 10\": all-reduces an iteration, before and after DDP's "
      "rebuild of its buckets. Best against best: each engine at the cap at which it was fastest. Same bits: "
      "the parameters after training equal those of our own plain ring.",
      "- origin: measured here; emulated (a cost added, nothing sealed); predicted (computed); quoted from "
      "the "
      "published study: Lee, Wang, Rajat, Annavaram, \"Characterization of GPU TEE Overheads in Distributed "
      "Data Parallel ML Training\", arXiv 2501.11771v3."};
  return out;
}

std::string legend_text() {
  const std::array<std::pair<const char*, std::string>, 9> lines{{
      {"1.07x [0.95, 1.10]",
       "time over the baseline's, and its 95 % interval: the median of the blocks' ratios,"},
      {"", "not the quotient of the ms column"},
      {"n.s.", "not distinguishable from the baseline, given its interval and the A/A row"},
      {"*", fmt::format("noisy: samples of a block scatter by more than {:g} %", kNoisyPercent)},
      {"cap", "bucket size asked of DDP; best against best: each engine at its fastest cap"},
      {"k, 1 -> 10", "all-reduces an iteration, before and after DDP's rebuild of its buckets"},
      {"A/A", "the baseline against itself: what lies inside its interval is no effect"},
      {"same bits", "parameters after training equal those of our own plain ring"},
      {"CPU ms", "CPU time of a rank in an iteration, all its threads"},
  }};
  std::string out;
  for (const auto& [mark, meaning] : lines) out += fmt::format("  {:<20}{}\n", mark, meaning);
  return out;
}

}  // namespace sealring
