#include <algorithm>
#include <cmath>
#include <map>

#include "sealring/study/cases.h"
#include "sealring/study/report_data.h"

namespace sealring {
namespace {

/// Stage 2 blocks of a model as case id -> run, in block order.
using BlockRuns = std::vector<std::map<std::string, const RunRecord*>>;

BlockRuns final_blocks(const StudyResults& results, const std::string& model) {
  BlockRuns out;
  for (const BlockRecord& block : results.blocks) {
    if (block.stage != 2 || block.model != model) continue;
    out.emplace_back();
    for (const RunRecord& run : block.runs) out.back()[run.case_id] = &run;
  }
  return out;
}

/// Median iteration of `above` over that of `below` in every block that has both.
std::optional<RatioSummary> ratio_over_blocks(const BlockRuns& blocks, const std::string& above,
                                              const std::string& below) {
  std::vector<double> ratios;
  for (const auto& runs : blocks) {
    const auto a = runs.find(above), b = runs.find(below);
    if (a == runs.end() || b == runs.end()) continue;
    ratios.push_back(median(a->second->iteration_ms) / median(b->second->iteration_ms));
  }
  if (ratios.empty()) return std::nullopt;
  return summarize_ratios(ratios);
}

std::string best_case_id(const StudyResults& results, const std::string& model, const std::string& engine) {
  for (const CaseRecord& each : results.cases) {
    if (each.model == model && each.engine == engine && each.best) return each.id;
  }
  return {};
}

std::string case_id_at(const StudyResults& results, const std::string& model, const std::string& engine,
                       double cap) {
  for (const CaseRecord& each : results.cases) {
    if (each.model == model && each.engine == engine && each.cap_mib == cap) return each.id;
  }
  return {};
}

/// Compares with own plain at the same cap; at 2 ranks any cap will do, as a sum of two does not depend on
/// the cut.
std::optional<bool> same_bits(const BlockRuns& blocks, const StudyResults& results,
                              const CaseRecord& record) {
  std::optional<bool> out;
  for (const auto& runs : blocks) {
    const auto mine = runs.find(record.id);
    if (mine == runs.end()) continue;
    for (const auto& [id, run] : runs) {
      const CaseRecord* other = results.find_case(id);
      if (other->engine != "plain-ring" || (results.ranks > 2 && other->cap_mib != record.cap_mib)) continue;
      out = out.value_or(true) && run->parameters_sha256 == mine->second->parameters_sha256;
    }
  }
  return out;
}

double median_of(const std::vector<const RunRecord*>& runs, double RunRecord::*field) {
  std::vector<double> values;
  for (const RunRecord* run : runs) values.push_back(run->*field);
  return median(values);
}

double median_of_medians(const std::vector<const RunRecord*>& runs, std::vector<double> RunRecord::*field) {
  std::vector<double> values;
  for (const RunRecord* run : runs) values.push_back(median(run->*field));
  return median(values);
}

CaseSummary summarize_case(const CaseRecord& record, const std::vector<const RunRecord*>& runs) {
  CaseSummary out;
  out.record = &record;
  const EngineSpec* engine = find_engine(record.engine);
  out.engine_name = engine == nullptr ? record.engine : engine->name;
  out.blocks = runs.size();
  out.iteration_ms = median_of_medians(runs, &RunRecord::iteration_ms);
  out.compute_ms = median_of_medians(runs, &RunRecord::no_sync_ms);
  out.exposed_ms = out.iteration_ms - out.compute_ms;
  for (const RunRecord* run : runs) {
    const double mad = median_absolute_deviation(run->iteration_ms) / median(run->iteration_ms);
    out.mad_percent = std::max(out.mad_percent, 100 * mad);
  }
  out.seal_ms = median_of(runs, &RunRecord::seal_ms);
  out.open_ms = median_of(runs, &RunRecord::open_ms);
  out.wire_ms = median_of(runs, &RunRecord::wire_ms);
  out.cpu_ms = median_of(runs, &RunRecord::cpu_ms);
  out.seals = median_of(runs, &RunRecord::seals);
  out.opens = median_of(runs, &RunRecord::opens);
  out.sealed_bytes = median_of(runs, &RunRecord::sealed_bytes);
  out.opened_bytes = median_of(runs, &RunRecord::opened_bytes);
  out.buckets_before = runs.front()->buckets_before;
  out.buckets_after = runs.front()->buckets_after;
  return out;
}

}  // namespace

std::vector<CaseSummary> summarize_model(const StudyResults& results, const std::string& model) {
  const BlockRuns blocks = final_blocks(results, model);
  const std::string gloo = best_case_id(results, model, "gloo"),
                    plain = best_case_id(results, model, "plain-ring");
  const std::string gloo_25 = case_id_at(results, model, "gloo", 25);
  const std::string plain_25 = case_id_at(results, model, "plain-ring", 25);
  std::vector<CaseSummary> out;
  for (const EngineSpec& engine : laptop_engines()) {
    for (const CaseRecord& record : results.cases) {
      if (record.model != model || record.engine != engine.id) continue;
      std::vector<const RunRecord*> runs;
      for (const auto& block : blocks) {
        if (const auto at = block.find(record.id); at != block.end()) runs.push_back(at->second);
      }
      if (runs.empty()) continue;
      CaseSummary summary = summarize_case(record, runs);
      summary.to_gloo = ratio_over_blocks(blocks, record.id, gloo);
      summary.to_plain = ratio_over_blocks(blocks, record.id, plain);
      if (record.cap_mib == 25) {
        summary.to_gloo_25 = ratio_over_blocks(blocks, record.id, gloo_25);
        summary.to_plain_25 = ratio_over_blocks(blocks, record.id, plain_25);
      }
      summary.same_bits = same_bits(blocks, results, record);
      out.push_back(std::move(summary));
    }
  }
  return out;
}

const CaseSummary* best_of(const std::vector<CaseSummary>& summaries, const std::string& engine) {
  for (const CaseSummary& each : summaries) {
    if (each.record->engine == engine && each.record->best) return &each;
  }
  return nullptr;
}

std::optional<RatioSummary> emulation_check(const StudyResults& results, const std::string& model) {
  for (const CaseRecord& each : results.cases) {
    if (each.model != model || each.engine != "emulated-ring") continue;
    const std::string sealed = case_id_at(results, model, "sealed-ring", each.cap_mib);
    return ratio_over_blocks(final_blocks(results, model), each.id, sealed);
  }
  return std::nullopt;
}

}  // namespace sealring
