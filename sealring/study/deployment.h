// Which deployment gets what: the table that README, `sealring doctor` and every report carry.
#pragma once

#include <span>
#include <string_view>

#include "sealring/study/machine.h"

namespace sealring {

struct Deployment {
  std::string_view name;      ///< "CC off"
  std::string_view path;      ///< the data path that runs there
  std::string_view protects;  ///< against whom the messages are protected
  std::string_view notes;
  bool available;  ///< in this release
};

std::span<const Deployment> deployments();
/// The row that applies to a machine as far as it can be seen from here: "CPU ranks" without a GPU. The
/// sentence says what was seen and what this tool cannot see.
struct DeploymentGuess {
  const Deployment* row = nullptr;
  std::string why;
};
DeploymentGuess deployment_of(const Machine& machine);

}  // namespace sealring
