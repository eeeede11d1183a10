#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "sealring/study/report_marks.h"
#include "sealring/study/report_sections.h"

namespace sealring {
namespace {

using nlohmann::json;

std::string value_text(const json& number) {
  const std::string unit = number.at("unit");
  const std::string space = unit == "x" || unit == "%" ? "" : " ";
  if (number.contains("low")) {
    return fmt::format("{:g} to {:g}{}{}", number.at("low").get<double>(), number.at("high").get<double>(),
                       space, unit);
  }
  return fmt::format("{:g}{}{}", number.at("value").get<double>(), space, unit);
}

/// Ours of the same n: every model's best sealed engine against Gloo.
std::vector<std::vector<std::string>> own_rows(const StudyResults& results, const ModelSummaries& models) {
  std::vector<std::vector<std::string>> out;
  for (const auto& [model, summaries] : models) {
    for (const char* engine : {"sealed-ring", "sealed-one-hop"}) {
      const CaseSummary* best = best_of(summaries, engine);
      if (best == nullptr || !best->to_gloo) continue;
      out.push_back({model->name, fmt::format("slowdown to Gloo, {}, CPU ranks, no GPU", best->engine_name),
                     ratio_text(best->to_gloo, same_against_same(summaries)),
                     fmt::format("{}", results.ranks), kMeasured});
    }
  }
  return out;
}

ReportSection sections_of_numbers(const StudyResults& results, const ModelSummaries& models,
                                  const json& quoted) {
  ReportSection out;
  out.title = "Published numbers";
  out.chart = "quoted";
  out.paragraphs.push_back(
      fmt::format("Quoted from {}: {}. None of them was measured here, and nothing here was measured on a "
                  "GPU: they stand beside ours "
                  "only where n is the same, to show how far apart the settings are, not to be compared.",
                  quoted.at("source").get<std::string>(), quoted.at("label").get<std::string>()));
  ReportTable same, other;
  same.columns = other.columns = {"model", "what", "value", "n", "origin"};
  json data = json::array();
  same.rows = own_rows(results, models);
  for (const json& number : quoted.at("numbers")) {
    const std::uint32_t n = number.at("n");
    const std::vector<std::string> row{number.value("model", "-"), number.at("what"), value_text(number),
                                       n == 0 ? std::string("-") : fmt::format("{}", n), kQuoted};
    (n == results.ranks ? same : other).rows.push_back(row);
    if (number.at("unit") != "x" || !number.contains("value")) continue;
    data.push_back({{"label", number.at("label")}, {"value", number.at("value")}, {"n", n}});
  }
  same.note = fmt::format("n = {}: ours and the published ones.", results.ranks);
  other.note = "Published, other n, other GPUs, emulated.";
  out.tables = {same, other};
  out.remarks.emplace_back("What does not fit together in these published numbers:");
  for (const json& remark : quoted.at("remarks")) out.remarks.push_back("- " + remark.get<std::string>());
  out.data = data.dump();
  return out;
}

ReportSection workloads_section(const StudyResults& results) {
  ReportSection out;
  out.title = "The published study's models: crypto operations by their shapes";
  ReportTable table;
  table.columns = {"model",          "parameters", "k, cap 25 MiB", "k, cap 400 MiB",
                   "4k(n-1), n = 2", "n = 4",      "n = 8",         "origin"};
  for (const WorkloadRecord& each : results.workloads) {
    std::vector<std::string> row{each.name,
                                 fmt::format("{:.1f} M", static_cast<double>(each.parameters) / 1e6),
                                 fmt::format("{}", each.buckets_25), fmt::format("{}", each.buckets_400)};
    for (const std::uint64_t n : {2u, 4u, 8u})
      row.push_back(fmt::format("{}", 4 * each.buckets_25 * (n - 1)));
    row.emplace_back(kPredicted);
    table.rows.push_back(std::move(row));
  }
  table.note =
      "Ring, per rank and iteration, fp32, PyTorch's bucket rule before its rebuild (first bucket 1 MiB); "
      "computed from the "
      "parameter lists in data/workloads.";
  out.tables.push_back(std::move(table));
  return out;
}

}  // namespace

Result<std::vector<ReportSection>> quoted_sections(const StudyResults& results, const ModelSummaries& models,
                                                   const std::string& quoted_json) {
  try {
    const json quoted = json::parse(quoted_json);
    if (quoted.at("schema") != "sealring-quoted-1")
      return fail(Code::malformed, "report.quoted", "unknown schema");
    std::vector<ReportSection> out{sections_of_numbers(results, models, quoted)};
    if (!results.workloads.empty()) out.push_back(workloads_section(results));
    return out;
  } catch (const std::exception& problem) {
    return fail(Code::malformed, "report.quoted", fmt::format("data/paper/quoted.json: {}", problem.what()));
  }
}

}  // namespace sealring
