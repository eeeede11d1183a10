// What a study measured, whole: every sample of every block, and where it came from. Kept as one JSON file.
//
// A file is {"schema", "digest", "content"}; the digest is SHA-256 over the content's canonical text
// (compact, keys sorted), so a file that was cut off or edited by hand is refused. It guards against
// accidents, not against a forger.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sealring/base/result.h"
#include "sealring/study/machine.h"

namespace sealring {

inline constexpr const char* kResultsSchema = "sealring-study-1";

/// Where a number comes from; every number of a report carries one.
inline constexpr const char* kMeasured = "measured";
inline constexpr const char* kEmulated = "emulated";
inline constexpr const char* kPredicted = "predicted";
inline constexpr const char* kQuoted = "quoted";

/// One engine with its setting; runs once in every block of its stage.
struct CaseRecord {
  std::string id;     ///< "resnet/sealed-one-hop@5"
  std::string model;  ///< "resnet", "gpt2"
  std::string
      engine;  ///< "gloo", "plain-ring", "sealed-ring", "sealed-one-hop", "emulated-ring", "plain-ring-again"
  std::string suite, algorithm;
  double cap_mib = 25;
  std::string origin = kMeasured;
  bool best = false;  ///< stage 1 chose this cap for this engine: its stage 2 samples are "best against best"
};

/// One case in one block. Times per iteration are those of the slowest rank of that iteration.
struct RunRecord {
  std::string case_id;
  std::vector<double> iteration_ms, forward_ms, backward_ms;
  std::vector<double> no_sync_ms;  ///< iterations without communication, in the same process
  std::vector<std::vector<double>> rank_iteration_ms;  ///< [rank][iteration]
  double cpu_ms = 0;  ///< CPU time of a rank in an iteration, all its threads, mean over ranks
  double seal_ms = 0, open_ms = 0, wire_ms = 0;  ///< in an iteration, mean over ranks; 0 for gloo
  double seals = 0, opens = 0, sealed_bytes = 0, opened_bytes = 0;  ///< of a rank in an iteration
  std::vector<std::uint64_t> buckets_before,
      buckets_after;              ///< bytes, in order, before and after DDP's rebuild
  double setup_ms = 0;            ///< making the process group and the model's wrapper, rank 0
  double loss = 0;                ///< of the last iteration, rank 0
  std::string parameters_sha256;  ///< after the last iteration, equal on all ranks
};

struct BlockRecord {
  int stage = 2;
  std::uint32_t block = 0;
  std::string model;
  std::uint32_t machine = 0;    ///< index into machines
  std::vector<RunRecord> runs;  ///< in the order in which they ran
};

/// Counted by real seals and opens on loopback beside what the schedule says.
struct CountRecord {
  std::uint32_t ranks = 0, all_reduces = 0;
  std::string suite, algorithm;
  std::uint64_t counted_per_rank = 0, predicted_per_rank = 0;  ///< seals + opens
  std::uint64_t counted_cluster = 0;
  std::uint64_t sealed_bytes_per_rank = 0, predicted_sealed_bytes = 0;
};

struct SetupRecord {
  std::uint32_t ranks = 0;
  std::vector<double> setup_ms;  ///< handshake and connections, slowest rank; ranks as threads over tcp
};

struct ModelRecord {
  std::string id, name, description;
  std::uint64_t parameters = 0;
  std::uint32_t batch = 0;
};

/// The cost of a crypto operation that the emulated rows add: a + b * bytes.
struct EmulationRecord {
  double a_us = 0, b_ns_per_kib = 0;
  double spread_percent = 0;  ///< median distance of the runs' own b from it
  std::string source;
};

struct CipherRecord {
  std::string suite;
  double seal_gb_s = 0, open_gb_s = 0;
  double record_us = 0;  ///< a record of 64 bytes, mean of sealing and opening: what a record costs at least
};

/// A model of the published study: its buckets follow from its parameters' shapes.
struct WorkloadRecord {
  std::string id, name;
  std::uint64_t parameters = 0, buckets_25 = 0, buckets_400 = 0;
};

struct StudyResults {
  std::string preset;
  std::string date;   ///< when the study was first started
  std::string ended;  ///< when the newest block was kept; empty in files of before it was recorded
  std::string commit, torch, python;
  std::uint64_t seed = 0;
  std::uint32_t ranks = 2, iterations = 10, cpus_per_rank = 1;
  double wall_s = 0;
  std::vector<Machine> machines;
  std::vector<ModelRecord> models;
  std::vector<CaseRecord> cases;
  std::vector<BlockRecord> blocks;
  std::vector<CountRecord> counts;
  std::vector<SetupRecord> setups;
  std::vector<CipherRecord> ciphers;
  std::vector<WorkloadRecord> workloads;
  EmulationRecord emulation;

  const CaseRecord* find_case(const std::string& id) const;
};

std::string results_to_text(const StudyResults& results);
/// What comes back has at least one machine, and no reference that points nowhere. Errors: RESULTS (no JSON,
/// nested too deep, another schema, digest differs, a field is missing or of the wrong type).
Result<StudyResults> results_from_text(const std::string& text);
/// Errors: FILE, RESULTS.
Result<StudyResults> load_results(const std::string& path);
/// Errors: FILE, NO_SPACE; an older file stays whole then.
Result<void> save_results(const StudyResults& results, const std::string& path);

}  // namespace sealring
