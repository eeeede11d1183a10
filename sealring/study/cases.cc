#include "sealring/study/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "sealring/study/statistics.h"

namespace sealring {
namespace {

constexpr double kEqualCapMib = 25;

CaseRecord case_of(const std::string& model, const EngineSpec& engine, double cap_mib) {
  CaseRecord out;
  out.id = fmt::format("{}/{}@{:g}", model, engine.id, cap_mib);
  out.model = model;
  out.engine = engine.id;
  out.suite = engine.gloo ? "-" : engine.suite;
  out.algorithm = engine.gloo ? "-" : engine.algorithm;
  out.cap_mib = cap_mib;
  out.origin = origin_of(engine);
  return out;
}

CaseRecord& find_or_add(StudyResults& results, const CaseRecord& wanted) {
  for (CaseRecord& each : results.cases) {
    if (each.id == wanted.id) return each;
  }
  results.cases.push_back(wanted);
  return results.cases.back();
}

const CaseRecord* best_case(const StudyResults& results, const std::string& model,
                            const std::string& engine) {
  for (const CaseRecord& each : results.cases) {
    if (each.model == model && each.engine == engine && each.best) return &each;
  }
  return nullptr;
}

}  // namespace

const std::vector<EngineSpec>& laptop_engines() {
  static const std::vector<EngineSpec> engines = [] {
    std::vector<EngineSpec> out;
    out.push_back({"gloo", "Gloo", true, "-", "-", true, false, ""});
    out.push_back({"plain-ring", "own plain, ring", false, "plain", "ring", true, false, ""});
    out.push_back({"sealed-ring", "sealed, ring", false, "aes-256-gcm", "ring", true, false, ""});
    out.push_back({"sealed-one-hop", "sealed, one-hop", false, "aes-256-gcm", "one-hop", true, false, ""});
    out.push_back({"plain-ring-again", "own plain, ring, again (A/A)", false, "plain", "ring", false, false,
                   "plain-ring"});
    out.push_back(
        {"emulated-ring", "emulated seal of the ring", false, "plain", "ring", false, true, "sealed-ring"});
    out.push_back({"plain-copy", "own plain, ring, with copies", false, "plain", "ring", false, true, ""});
    return out;
  }();
  return engines;
}

const char* origin_of(const EngineSpec& engine) {
  return engine.emulated && !engine.follows.empty() ? kEmulated : kMeasured;
}

const EngineSpec* find_engine(const std::string& id) {
  for (const EngineSpec& each : laptop_engines()) {
    if (each.id == id) return &each;
  }
  return nullptr;
}

const std::vector<double>& laptop_caps_mib() {
  static const std::vector<double> caps{1, 5, 25};
  return caps;
}

std::vector<CaseRecord> search_cases(const std::string& model, const std::vector<double>& caps_mib) {
  std::vector<CaseRecord> out;
  for (const EngineSpec& engine : laptop_engines()) {
    if (!engine.searched && !engine.follows.empty()) continue;
    for (const double cap : caps_mib) out.push_back(case_of(model, engine, cap));
  }
  return out;
}

void choose_best_caps(StudyResults& results, const std::string& model) {
  std::map<std::string, std::pair<double, std::string>> best;  // engine -> its least median and that case
  for (const BlockRecord& block : results.blocks) {
    if (block.stage != 1 || block.model != model) continue;
    for (const RunRecord& run : block.runs) {
      const CaseRecord* record = results.find_case(run.case_id);
      const EngineSpec* engine = find_engine(record->engine);
      if (engine == nullptr || !engine->searched) continue;
      const double middle = median(run.iteration_ms);
      const auto at = best.find(record->engine);
      if (at == best.end() || middle < at->second.first) best[record->engine] = {middle, run.case_id};
    }
  }
  for (CaseRecord& each : results.cases) {
    if (each.model == model && best.count(each.engine) > 0) each.best = best[each.engine].second == each.id;
  }
}

std::vector<CaseRecord> final_cases(StudyResults& results, const std::string& model) {
  std::vector<CaseRecord> out;
  const auto add = [&](const CaseRecord& wanted) {
    const CaseRecord& record = find_or_add(results, wanted);
    const auto same = [&](const CaseRecord& each) { return each.id == record.id; };
    if (std::none_of(out.begin(), out.end(), same)) out.push_back(record);
  };
  for (const EngineSpec& engine : laptop_engines()) {
    if (!engine.searched && engine.follows.empty()) continue;
    const CaseRecord* best = best_case(results, model, engine.searched ? engine.id : engine.follows);
    if (best != nullptr) add(case_of(model, engine, best->cap_mib));
    if (engine.searched) add(case_of(model, engine, kEqualCapMib));
  }
  return out;
}

EmulationRecord fit_emulation(const StudyResults& results) {
  std::map<std::string, const RunRecord*> plain, sealed;  // "model@cap" -> run
  for (const BlockRecord& block : results.blocks) {
    if (block.stage != 1) continue;
    for (const RunRecord& run : block.runs) {
      const CaseRecord* record = results.find_case(run.case_id);
      const std::string key = fmt::format("{}@{:g}", record->model, record->cap_mib);
      if (record->engine == "plain-copy") plain[key] = &run;
      if (record->engine == "sealed-ring") sealed[key] = &run;
    }
  }
  EmulationRecord out;
  for (const CipherRecord& cipher : results.ciphers) {
    if (cipher.suite != "aes-256-gcm") continue;
    out.a_us = cipher.record_us;
    out.b_ns_per_kib = 1024 * (1 / cipher.seal_gb_s + 1 / cipher.open_gb_s) / 2;
    out.source = "from one core's rates, measured apart from training";
  }
  std::vector<double> ns_per_byte;
  for (const auto& [key, run] : sealed) {
    const double operations = run->seals + run->opens, bytes = run->sealed_bytes + run->opened_bytes;
    if (plain.count(key) == 0 || !(bytes > 0)) continue;
    const double extra_ms = run->seal_ms + run->open_ms - plain[key]->seal_ms - plain[key]->open_ms;
    ns_per_byte.push_back((extra_ms * 1e6 - out.a_us * 1e3 * operations) / bytes);
  }
  if (const double b = median(ns_per_byte); ns_per_byte.size() >= 3 && b > 0) {
    out.b_ns_per_kib = b * 1024;
    out.spread_percent = 100 * median_absolute_deviation(ns_per_byte) / b;
    out.source =
        fmt::format("the median of {} pairs of stage 1 runs, sealed and plain with copies, spread {:.0f} %",
                    ns_per_byte.size(), out.spread_percent);
  }
  return out;
}

std::vector<std::size_t> block_order(std::uint64_t seed, const std::string& block_name, std::size_t count) {
  std::uint64_t hash =
      0xcbf29ce484222325ull ^ seed;  // FNV-1a, so that the order is the same with every library
  for (const char c : block_name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  std::mt19937_64 source(hash);
  std::vector<std::size_t> out(count);
  std::iota(out.begin(), out.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i) std::swap(out[i - 1], out[source() % i]);
  return out;
}

}  // namespace sealring
