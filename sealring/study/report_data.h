// A report as data: sections of text, tables and charts, from which Markdown and HTML are both written.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sealring/study/results.h"
#include "sealring/study/statistics.h"

namespace sealring {

/// What the final stage says about one case.
struct CaseSummary {
  const CaseRecord* record = nullptr;
  std::string engine_name;
  std::size_t blocks = 0;
  double iteration_ms = 0;  ///< median over blocks of the block's median
  double mad_percent = 0;   ///< largest of the blocks' medians' relative deviation
  double compute_ms = 0;    ///< the same of the iterations without communication
  double exposed_ms = 0;    ///< iteration - compute; not above 0 where it is lost in the noise
  double seal_ms = 0, open_ms = 0, wire_ms = 0, cpu_ms = 0;
  double seals = 0, opens = 0, sealed_bytes = 0, opened_bytes = 0;
  std::vector<std::uint64_t> buckets_before, buckets_after;
  std::optional<RatioSummary> to_gloo, to_plain;        ///< best against best
  std::optional<RatioSummary> to_gloo_25, to_plain_25;  ///< both at cap 25; only for cases at cap 25
  std::optional<bool>
      same_bits;  ///< parameters equal to own plain's after the same iterations (same cap, or 2 ranks)
};

/// All stage 2 cases of a model, in the order of the engines.
std::vector<CaseSummary> summarize_model(const StudyResults& results, const std::string& model);
/// The case of `engine` at its best cap; nullptr when it was not measured.
const CaseSummary* best_of(const std::vector<CaseSummary>& summaries, const std::string& engine);

/// Emulated over really sealed, best cap of the sealed ring: how well adding a + b*bytes foretells sealing.
std::optional<RatioSummary> emulation_check(const StudyResults& results, const std::string& model);

struct ReportTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::string note;
};

/// "1 block", "10 blocks".
std::string counted(std::size_t number, const std::string& what);

/// `chart` names what plots.py draws ("slowdown", "breakdown", "buckets", "counts", "quoted"; empty: none);
/// `data` is its JSON.
struct ReportSection {
  std::string title;
  std::vector<std::string> paragraphs;
  std::vector<ReportTable> tables;
  std::string chart, data;
  std::vector<std::string> remarks;  ///< paragraphs after the tables
};

struct Report {
  std::string title, subtitle;
  std::vector<ReportSection> sections;
};

/// `quoted_json`: data/paper/quoted.json; empty: the sections with quoted numbers are left out.
Report build_report(const StudyResults& results, const std::string& quoted_json);
std::string to_markdown(const Report& report);
std::string to_json(const Report& report);

}  // namespace sealring
