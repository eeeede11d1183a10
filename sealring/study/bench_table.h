// The printed table and the JSON record of a benchmark.
#pragma once

#include <string>
#include <vector>

#include "sealring/study/bench_run.h"

namespace sealring {

/// What a column holds, for the table's head and for --help.
struct BenchColumn {
  std::string_view name;
  int width;
  std::string_view meaning;
};
std::span<const BenchColumn> bench_columns();

/// Lines that begin with '#': what is measured, where, under which labels; then the columns' names.
std::string bench_head(const BenchSpec& spec, const Machine& machine,
                       const std::vector<SealringEngine*>& engines);
/// One line of the table, with its end.
std::string bench_line(const BenchSpec& spec, const BenchRow& row);
/// Notes below the table: marked rows, wrong elements, what "plain" is.
std::string bench_foot(const BenchSpec& spec, const std::vector<BenchRow>& rows);

/// All samples with the machine record, origin and scope; schema "sealring-bench-1".
std::string bench_json(const BenchSpec& spec, const Machine& machine, const std::vector<BenchRow>& rows);

/// The record of a machine as every JSON file of this project holds it.
std::string machine_json(const Machine& machine);

}  // namespace sealring
