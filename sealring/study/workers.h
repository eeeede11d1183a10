// The Python workers of a study: one process a rank, commands and answers as lines of JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sealring/base/types.h"
#include "sealring/study/process.h"
#include "sealring/study/results.h"

namespace sealring {

struct WorkersSpec {
  std::string python, python_path;
  std::uint16_t ranks = 2;
  bool pin = true;
  double timeout_s = 300;
};

/// Alive until destroyed. Not thread-safe; after an error of ask() only destruction is left.
class Workers {
 public:
  /// Starts the ranks and waits until each has imported PyTorch. Errors: FILE without the interpreter;
  /// PEER_LOST with the end of the worker's log.
  static Result<Workers> start(const WorkersSpec& spec);
  Workers(Workers&&) noexcept = default;

  /// What rank 0 said when it was ready: versions and models.
  const nlohmann::json& ready() const { return ready_; }
  /// Sends one command to every rank and collects the answers, by rank. Errors: PEER_LOST, TIMEOUT,
  /// MALFORMED.
  Result<std::vector<nlohmann::json>> ask(const nlohmann::json& command);
  std::uint32_t cpus_per_rank() const { return cpus_per_rank_; }

 private:
  Workers(PrivateDirectory directory, WorkersSpec spec)
      : directory_(std::move(directory)), spec_(std::move(spec)) {}
  Result<void> start_rank(Rank rank, const std::vector<unsigned>& cpus);
  Result<nlohmann::json> answer_of(Rank rank);
  /// Asks every worker to write where it stands into its log.
  void dump_stacks();
  std::string log_path(Rank rank) const;
  tl::unexpected<Error> failed(Rank rank, Error error) const;

  PrivateDirectory directory_;  // outlives the processes
  WorkersSpec spec_;
  std::vector<Process> ranks_;
  nlohmann::json ready_;
  std::uint32_t cpus_per_rank_ = 1;
};

/// The record of a case from the ranks' answers: slowest rank's times, busiest rank's counts, means of
/// components. Errors: MALFORMED; RESULTS when the ranks' parameters differ after the last iteration.
Result<RunRecord> combine_answers(const std::string& case_id, const std::vector<nlohmann::json>& answers);

}  // namespace sealring
