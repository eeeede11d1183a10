#include "example_results.h"

#include "sealring/study/cases.h"

namespace sealring {
namespace {

/// Iteration time of an engine at a cap, before the block's own drift.
double base_ms(const std::string& engine, double cap_mib) {
  const double cap_cost = cap_mib == 5 ? 0 : 4;
  if (engine == "sealed-ring") return 125 + cap_cost;
  if (engine == "sealed-one-hop") return 115 + cap_cost;
  if (engine == "emulated-ring") return 122.5 + cap_cost;
  if (engine == "gloo") return 104 + cap_cost;
  return 100 + cap_cost;
}

RunRecord run_of(const CaseRecord& record, std::uint32_t block) {
  RunRecord run;
  run.case_id = record.id;
  const double middle = base_ms(record.engine, record.cap_mib) +
                        0.5 * static_cast<double>((block * 7 + record.engine.size()) % 5);
  run.iteration_ms = {middle - 0.5, middle, middle + 0.5};
  run.rank_iteration_ms = {run.iteration_ms, run.iteration_ms};
  run.forward_ms = {30, 30, 30};
  run.backward_ms = {60, 60, 60};
  run.no_sync_ms = {80, 80, 80};
  run.cpu_ms = middle - 2;
  const bool own = record.engine != "gloo", sealed = record.engine.rfind("sealed", 0) == 0;
  const auto k = static_cast<std::size_t>(record.cap_mib == 25 ? 1 : record.cap_mib == 5 ? 4 : 16);
  run.seal_ms = sealed ? 9 : 0;
  run.open_ms = sealed ? 12 : own ? 3 : 0;
  run.wire_ms = own ? 10 : 0;
  run.seals = run.opens = own ? 2.0 * static_cast<double>(k) : 0;
  run.sealed_bytes = run.opened_bytes = own ? 16.0 * (1 << 20) : 0;
  run.buckets_before = {16u << 20};
  run.buckets_after.assign(k, (16u << 20) / k);
  run.setup_ms = 20;
  run.loss = 4;
  run.parameters_sha256 = "00ff";
  return run;
}

Machine example_machine() {
  Machine machine;
  machine.cpu = "Example CPU";
  machine.architecture = "x86_64";
  machine.kernel = "Linux 6.1.0";
  machine.packages = 1;
  machine.cores = machine.threads = machine.usable_threads = 2;
  machine.crypto_features = {"aes", "vaes"};
  machine.openssl = "OpenSSL 3.0.0";
  machine.cc = "CC off";
  return machine;
}

void add_model(StudyResults& results, const std::string& id, const std::string& name) {
  results.models.push_back({id, name, "made up", 4'194'304, 4});
  const std::vector<CaseRecord> search = search_cases(id, {1, 5, 25});
  results.cases.insert(results.cases.end(), search.begin(), search.end());
  BlockRecord first;
  first.stage = 1;
  first.model = id;
  for (const CaseRecord& each : search) first.runs.push_back(run_of(each, 0));
  results.blocks.push_back(first);
  choose_best_caps(results, id);
  const std::vector<CaseRecord> final_ones = final_cases(results, id);
  for (std::uint32_t block = 0; block < 5; ++block) {
    BlockRecord record;
    record.block = block;
    record.model = id;
    for (const CaseRecord& each : final_ones) record.runs.push_back(run_of(each, block));
    results.blocks.push_back(record);
  }
}

}  // namespace

StudyResults example_results() {
  StudyResults results;
  results.preset = "laptop";
  results.date = "2026-01-02T03:04:05Z";
  results.ended = "2026-01-02T03:09:26Z";
  results.commit = "0123456789ab";
  results.torch = "2.13.0";
  results.python = "3.11.7";
  results.seed = 1;
  results.iterations = 3;
  results.wall_s = 321;
  results.machines = {example_machine()};
  add_model(results, "gpt2", "small GPT-2");
  add_model(results, "resnet", "small ResNet");
  results.emulation = {4, 260, 3, "made up"};
  results.counts = {{2, 5, "aes-256-gcm", "ring", 20, 20, 40, 1000, 1000},
                    {4, 142, "aes-256-gcm", "ring", 1704, 1704, 6816, 1000, 1000},
                    {4, 5, "aes-256-gcm", "one-hop", 50, 50, 200, 1000, 1000}};
  results.setups = {{2, {5, 6, 7}}, {4, {11, 12, 14}}};
  results.ciphers = {{"aes-256-gcm", 4.5, 4.25, 0.75}};
  results.workloads = {{"gpt2-xl", "GPT2-XL", 1'557'611'200, 145, 15}};
  return results;
}

}  // namespace sealring
