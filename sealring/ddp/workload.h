// Workload: a model as the study sees it, the list of its parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sealring/base/result.h"
#include "sealring/base/types.h"

namespace sealring {

struct Parameter {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::uint64_t elements = 0;
};

struct Workload {
  std::string id, name, provenance, sample;
  std::uint32_t batch_per_gpu = 0;
  DType dtype = DType::f32;
  std::vector<Parameter> parameters;  ///< in the order of registration

  std::uint64_t elements() const;
  std::vector<std::uint64_t> parameter_bytes() const;
};

/// Parses data/workloads/*.json ("sealring-workload-1"). Errors: MALFORMED naming what is wrong.
Result<Workload> parse_workload(const std::string& text);
/// Errors: FILE, MALFORMED.
Result<Workload> load_workload(const std::string& path);
/// The six models of the study, by rising size.
const std::vector<std::string>& paper_models();

}  // namespace sealring
