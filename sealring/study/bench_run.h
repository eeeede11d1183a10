// One rank of a benchmark, and what rank 0 makes of all of them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sealring/study/bench_engine.h"
#include "sealring/study/bench_spec.h"
#include "sealring/study/machine.h"
#include "sealring/study/statistics.h"

namespace sealring {

/// One case at one size and placement, over all ranks.
struct BenchRow {
  BenchSize size;
  std::size_t case_index = 0;
  bool in_place = false;
  unsigned calls = 1;              ///< operations in one sample
  std::vector<double> samples_us;  ///< time of one operation: the slowest rank's in that sample
  double median_us = 0, mad_percent = 0;
  double algbw_gb_s = 0, busbw_gb_s = 0;  ///< 1e9 bytes a second, of the median
  std::optional<std::uint64_t> wrong;     ///< elements, over all ranks; nullopt: not checked
  std::optional<double>
      ratio_to_plain;                   ///< median over samples of case / first plain case of the same sample
  std::optional<double> ratio_to_nccl;  ///< the same to the NCCL case with the lowest median
  std::optional<Interval> nccl_interval;                            ///< 95 % of those ratios' geometric mean
  double seals = 0, opens = 0, sealed_bytes = 0, opened_bytes = 0;  ///< an operation, on the busiest rank
  double seal_us = 0, open_us = 0, wire_us = 0, cpu_us = 0;         ///< an operation, mean over ranks
  bool noisy(const BenchSpec& spec) const { return mad_percent > spec.mark_mad_percent; }
};

/// Called on rank 0 only.
struct BenchReporter {
  std::function<void(const std::vector<SealringEngine*>&)>
      start;  ///< all engines are connected; nullptr: Gloo
  std::function<void(const BenchRow&)> row;
};

/// Runs the whole spec on this rank; every rank calls it. Rows come as sizes are done.
///
/// Per size and placement the samples of all cases are interleaved: in sample i every case runs once, in an
/// order drawn from (seed, size, i), alike on all ranks. Errors: the first of any operation; all ranks end
/// then.
Result<void> run_bench_rank(const BenchSpec& spec, const RankPlace& place, const JobKey& key,
                            const BenchReporter& reporter);

}  // namespace sealring
