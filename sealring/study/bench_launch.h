// Starts the ranks of a benchmark: local processes, threads on loopback, or the ranks that torchrun started.
#pragma once

#include "sealring/study/bench_run.h"
#include "sealring/study/bench_targets.h"

namespace sealring {

/// The hidden verb that a local rank runs, and its options (see cli/bench.cc).
inline constexpr const char* kBenchRankVerb = "bench-rank";

/// Starts spec.ranks copies of this program, each pinned if wanted, with a throwaway job key by an inherited
/// pipe, and waits. They meet in a private directory; rank 0 prints to our standard output. Gives the exit
/// status: the worst of the ranks. Must run before this process has threads of its own.
Result<int> launch_local_bench(const BenchSpec& spec);
/// What such a copy does with its spec file, its rank and the pipe's descriptor: a benchmark, or the targets.
Result<void> run_local_bench_rank(const BenchSpec& spec, Rank rank, int key_descriptor,
                                  const std::string& directory, const BenchReporter& reporter);

Result<TargetsResult> run_local_targets_rank(const BenchSpec& spec, Rank rank, int key_descriptor,
                                             const std::string& directory);

/// All ranks as threads of this process, over loopback.
Result<void> run_loopback_bench(const BenchSpec& spec, const BenchReporter& reporter);

/// The ranks of somebody's launcher: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
struct LaunchedRank {
  Rank rank = 0;
  std::uint16_t world = 1;
  unsigned local_rank = 0, local_world = 1;  ///< on this host, for pinning; LOCAL_RANK, LOCAL_WORLD_SIZE
  std::string host;
  std::uint16_t port = 0;  ///< one above MASTER_PORT where torchrun's agent holds that port itself
};
/// nullopt without RANK and WORLD_SIZE. Errors: ENVIRONMENT naming the variable.
Result<std::optional<LaunchedRank>> read_launched_rank();
/// Errors: NO_IDENTITY without SEALRING_JOB_KEY_FILE; those of the session.
Result<void> run_launched_bench_rank(const BenchSpec& spec, const LaunchedRank& launched,
                                     const Environment& environment, const BenchReporter& reporter);

}  // namespace sealring
