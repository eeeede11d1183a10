#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "sealring/crypto/kdf.h"
#include "sealring/study/process.h"
#include "sealring/study/results.h"

namespace sealring {

// The library's generators of to_json and from_json; from_json demands every field.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Machine, cpu, architecture, kernel, packages, cores, threads,
                                   usable_threads, memory_bytes, l3_bytes, crypto_features, openssl,
                                   virtualization, gpus, cc, load_before)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CaseRecord, id, model, engine, suite, algorithm, cap_mib, origin, best)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunRecord, case_id, iteration_ms, forward_ms, backward_ms, no_sync_ms,
                                   rank_iteration_ms, cpu_ms, seal_ms, open_ms, wire_ms, seals, opens,
                                   sealed_bytes, opened_bytes, buckets_before, buckets_after, setup_ms, loss,
                                   parameters_sha256)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BlockRecord, stage, block, model, machine, runs)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CountRecord, ranks, all_reduces, suite, algorithm, counted_per_rank,
                                   predicted_per_rank, counted_cluster, sealed_bytes_per_rank,
                                   predicted_sealed_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SetupRecord, ranks, setup_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ModelRecord, id, name, description, parameters, batch)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EmulationRecord, a_us, b_ns_per_kib, spread_percent, source)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CipherRecord, suite, seal_gb_s, open_gb_s, record_us)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkloadRecord, id, name, parameters, buckets_25, buckets_400)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StudyResults, preset, date, ended, commit, torch, python, seed, ranks,
                                   iterations, cpus_per_rank, wall_s, machines, models, cases, blocks, counts,
                                   setups, ciphers, workloads, emulation)

namespace {

using nlohmann::json;

constexpr std::size_t kFileBytesMax = 256u << 20;
constexpr std::size_t kDepthMax = 32;  // a results file has 8

std::string digest_of(const json& content) { return to_hex(sha256({as_bytes(content.dump())})); }

tl::unexpected<Error> refused(const std::string& what) { return fail(Code::results, "results.load", what); }

/// How deep arrays and objects are nested. It is looked at before parsing: the library writes and destroys
/// values by recursion, which a deep file would make overflow the stack.
std::size_t nesting_depth(std::string_view text) {
  std::size_t depth = 0, deepest = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      deepest = std::max(deepest, ++depth);
    } else if (!quoted && depth > 0 && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return deepest;
}

/// What the types cannot say: indices that must point somewhere, names that must exist.
Result<void> check_references(const StudyResults& results) {
  if (results.machines.empty()) return refused("it names no machine that it was measured on");
  for (const BlockRecord& block : results.blocks) {
    if (block.machine >= results.machines.size()) return refused("a block names a machine that is not there");
    for (const RunRecord& run : block.runs) {
      if (results.find_case(run.case_id) == nullptr)
        return refused("a run names the unknown case " + run.case_id);
      if (run.iteration_ms.empty()) return refused("the run " + run.case_id + " has no iteration");
    }
  }
  return {};
}

}  // namespace

const CaseRecord* StudyResults::find_case(const std::string& id) const {
  for (const CaseRecord& each : cases) {
    if (each.id == id) return &each;
  }
  return nullptr;
}

std::string results_to_text(const StudyResults& results) {
  const json content = results;
  const json file{{"schema", kResultsSchema}, {"digest", digest_of(content)}, {"content", content}};
  return file.dump(1) + "\n";
}

Result<StudyResults> results_from_text(const std::string& text) {
  if (nesting_depth(text) > kDepthMax) return refused("it is nested deeper than any results file");
  try {
    const json file = json::parse(text);
    if (!file.is_object() || !file.contains("schema")) return refused("this is no results file");
    if (file.at("schema") != kResultsSchema) {
      Error error = refused("the file is of another version").value();
      error.expected = kResultsSchema;
      error.got = file.at("schema").is_string() ? file.at("schema").get<std::string>().substr(0, 40) : "?";
      return tl::unexpected(std::move(error));
    }
    if (file.at("digest") != digest_of(file.at("content"))) {
      return refused("the content does not fit its digest: the file was edited or damaged");
    }
    json content = file.at("content");
    content.emplace("ended", "");  // older files do not say
    auto results = content.get<StudyResults>();
    SR_TRY(check_references(results));
    return results;
  } catch (const json::parse_error& problem) {
    return refused(fmt::format("no whole JSON: it breaks off or is damaged at byte {}", problem.byte));
  } catch (const std::exception& problem) {
    return refused(fmt::format("a field is missing or of the wrong type: {}", problem.what()));
  }
}

Result<StudyResults> load_results(const std::string& path) {
  SR_TRY(const std::string text, read_file(path, kFileBytesMax));
  auto results = results_from_text(text);
  if (results) return results;
  Error error = std::move(results).error();
  error.what = path + ": " + error.what;
  return tl::unexpected(std::move(error));
}

Result<void> save_results(const StudyResults& results, const std::string& path) {
  return write_file(path, results_to_text(results));
}

}  // namespace sealring
