// The engines and cases of a preset, the choice of each engine's best cap, and the order within a block.
#pragma once

#include <string>
#include <vector>

#include "sealring/study/results.h"

namespace sealring {

/// A way to run all-reduce under DDP.
struct EngineSpec {
  std::string id;    ///< "sealed-one-hop"
  std::string name;  ///< "sealed, one-hop": for tables
  bool gloo = false;
  std::string suite = "aes-256-gcm", algorithm = "ring";
  bool searched = true;   ///< has a best cap of its own, found in stage 1
  bool emulated = false;  ///< plain with the measured cost of a crypto operation added
  std::string follows;    ///< not searched: runs at the best cap of this engine; empty: in stage 1 only
};

/// The engines of the laptop preset, in the order of tables: Gloo, own plain, sealed ring, sealed one-hop,
/// then the checks: own plain again (A/A) and the emulation of the sealed ring.
const std::vector<EngineSpec>& laptop_engines();
const EngineSpec* find_engine(const std::string& id);
/// kEmulated where a cost is added; plain-copy only copies, so it is kMeasured.
const char* origin_of(const EngineSpec& engine);
const std::vector<double>& laptop_caps_mib();

/// Stage 1: every searched engine at every cap, and plain-copy for the fit below.
std::vector<CaseRecord> search_cases(const std::string& model, const std::vector<double>& caps_mib);
/// Marks, for every searched engine of `model`, the case with the least median iteration in stage 1.
void choose_best_caps(StudyResults& results, const std::string& model);
/// Stage 2: best cap and cap 25 of every searched engine, then the checks. Adds missing cases to `results`.
std::vector<CaseRecord> final_cases(StudyResults& results, const std::string& model);

/// a and b of our own sealing under training. a: the suite's 64-byte record, from `ciphers`. b: median over
/// stage 1 of what the sealed ring's seal and open timers exceed plain-copy's by, less a for each crypto
/// operation, per payload byte (an emulated run copies where a sealed one seals, so only what sealing takes
/// beyond a copy is to be added). Falls back to the rates in `ciphers` when stage 1 has too few runs, and
/// says which in `source`.
EmulationRecord fit_emulation(const StudyResults& results);

/// A permutation of 0..count-1 drawn from the seed and the block's place in the study, the same everywhere.
std::vector<std::size_t> block_order(std::uint64_t seed, const std::string& block_name, std::size_t count);

}  // namespace sealring
