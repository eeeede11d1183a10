// `sealring bench --targets`: the project's speed targets for CPU ranks, measured in one run and judged.
//
// 2 ranks, one pinned core each, aes-256-gcm, all_reduce of fp32. Own plain, sealed and Gloo are interleaved
// block by block; the seal and open rate of one core is measured in every block of the same run, by rank 0
// while the others wait.
#pragma once

#include "sealring/study/bench_run.h"
#include "sealring/study/statistics.h"

namespace sealring {

/// Sizes that the targets name, below `spec`'s largest: 4 KiB, then 16 to 256 MiB.
std::vector<std::uint64_t> target_sizes(const BenchSpec& spec);

/// One size: block medians (us) of each engine, and rates of one core (GB/s) at that size.
struct TargetBlocks {
  std::uint64_t size_bytes = 0;
  unsigned workers = 0;  ///< crypto threads a rank beside its own, on cores of their own
  std::vector<double> gloo_us, plain_us, sealed_us, seal_gb_s, open_gb_s;
};

/// One target with its ratio over blocks and the verdict by the interval's bound.
struct TargetRow {
  std::string name;  ///< "sealed / Gloo, time"
  std::uint64_t size_bytes = 0;
  bool at_most = true;
  double limit = 0;
  RatioSummary ratio;
  Verdict verdict = Verdict::undecided;
  std::string note;
};

struct TargetsResult {
  std::vector<TargetBlocks> sizes;
  std::vector<TargetRow> rows;
  double memory_mib = 0;  ///< the largest rank's peak beyond its tensors, sealed session alone
};

/// Runs spec.target_blocks blocks on every rank, each with a share of the cores; the result is rank 0's. The
/// ranks use one core each; where a rank's share is 3 or more, own plain and sealed run once more with 2
/// crypto threads.
Result<TargetsResult> run_targets_rank(const BenchSpec& spec, const RankPlace& place, const JobKey& key);

/// The targets' arithmetic alone: ratios, limits, verdicts. `memory_mib` as in the result.
std::vector<TargetRow> judge_targets(const BenchSpec& spec, const std::vector<TargetBlocks>& sizes,
                                     double memory_mib);

std::string targets_text(const BenchSpec& spec, const Machine& machine, const TargetsResult& result);
std::string targets_json(const BenchSpec& spec, const Machine& machine, const TargetsResult& result);

}  // namespace sealring
