#include "sealring/study/workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "sealring/session/identity.h"
#include "sealring/study/machine.h"
#include "sealring/study/python_place.h"

namespace sealring {
namespace {

using nlohmann::json;

constexpr std::size_t kLogBytesMax = 64u << 20;
constexpr std::size_t kLogLines = 12;

/// Joined by " | ": a message has one line.
std::string last_lines(const std::string& text, std::size_t lines) {
  std::size_t at = text.size();
  for (std::size_t found = 0; at > 0; --at) {
    if (text[at - 1] == '\n' && at != text.size() && ++found == lines) break;
  }
  std::string out = text.substr(at);
  while (out.ends_with('\n')) out.pop_back();
  for (std::size_t end = 0; (end = out.find('\n', end)) != std::string::npos; end += 3) {
    out.replace(end, 1, " | ");
  }
  return out;
}

}  // namespace

std::string Workers::log_path(Rank rank) const {
  return fmt::format("{}/rank{}.log", directory_.path(), rank);
}

tl::unexpected<Error> Workers::failed(Rank rank, Error error) const {
  error.rank = rank;
  if (error.code == Code::aborted) return tl::unexpected(std::move(error));
  for (Rank other = 0; other < ranks_.size(); ++other) {
    // A rank that does not answer may only wait for another: show where each of them stands.
    if (other != rank && error.code != Code::timeout) continue;
    if (const auto log = read_file(log_path(other), kLogBytesMax); log && !log->empty()) {
      error.what += fmt::format("; the log of rank {} ends with: {}", other, last_lines(*log, kLogLines));
    }
  }
  return tl::unexpected(std::move(error));
}

void Workers::dump_stacks() {
  for (Process& rank : ranks_) rank.kill(SIGUSR1);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
}

Result<void> Workers::start_rank(Rank rank, const std::vector<unsigned>& cpus) {
  ProcessSpec child;
  child.arguments = python_command(
      spec_.python, "sealring.train",
      {"--mode", "study", "--rank", fmt::format("{}", rank), "--world", fmt::format("{}", spec_.ranks),
       "--store", directory_.path() + "/store", "--key", directory_.path() + "/job.key"});
  if (!spec_.python_path.empty()) child.environment["PYTHONPATH"] = spec_.python_path;
  child.environment["GLOO_SOCKET_IFNAME"] = "lo";
  child.environment["SEALRING_SOCKET_IFNAME"] = "lo";
  child.environment["OMP_NUM_THREADS"] = fmt::format("{}", cpus.size());
  child.environment["TORCH_CPP_LOG_LEVEL"] = "ERROR";
  if (spec_.pin) child.cpus = cpus;
  child.pipe_input = true;
  child.pipe_output = true;
  child.error_file = log_path(rank);
  SR_TRY(Process process, Process::start(child));
  ranks_.push_back(std::move(process));
  return {};
}

Result<Workers> Workers::start(const WorkersSpec& spec) {
  SR_TRY(PrivateDirectory directory, PrivateDirectory::make());
  Workers workers(std::move(directory), spec);
  SR_TRY(JobKey::generate().write(workers.directory_.path() + "/job.key"));
  const std::vector<unsigned> cpus = usable_cpus();
  for (Rank rank = 0; rank < spec.ranks; ++rank) {
    const std::vector<unsigned> own = cpus_of_rank(cpus, rank, spec.ranks);
    workers.cpus_per_rank_ = static_cast<std::uint32_t>(own.size());
    SR_TRY(workers.start_rank(rank, own));
  }
  for (Rank rank = 0; rank < spec.ranks; ++rank) {
    SR_TRY(json answer, workers.answer_of(rank));
    if (rank == 0) workers.ready_ = std::move(answer);
  }
  return workers;
}

Result<json> Workers::answer_of(Rank rank) {
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(spec_.timeout_s * 1000));
  auto line = ranks_[rank].read_line(Deadline::in(timeout));
  if (!line) {
    if (line.error().code == Code::timeout && !ready_.is_null()) dump_stacks();
    return failed(rank, std::move(line).error());
  }
  json answer = json::parse(*line, nullptr, false);
  if (answer.is_discarded() || !answer.is_object()) {
    return failed(
        rank,
        fail(Code::malformed, "study.worker", "a worker said \"" + line->substr(0, 200) + "\"").value());
  }
  if (answer.contains("error")) {
    const json& text = answer["error"];
    return failed(rank, fail(Code::peer_lost, "study.worker",
                             text.is_string() ? text.get<std::string>() : std::string("unknown error"),
                             "see the worker's log below")
                            .value());
  }
  return answer;
}

Result<std::vector<json>> Workers::ask(const json& command) {
  for (Rank rank = 0; rank < spec_.ranks; ++rank) {
    if (auto sent = ranks_[rank].write_line(command.dump()); !sent)
      return failed(rank, std::move(sent).error());
  }
  std::vector<json> out;
  for (Rank rank = 0; rank < spec_.ranks; ++rank) {
    SR_TRY(json answer, answer_of(rank));
    out.push_back(std::move(answer));
  }
  return out;
}

namespace {

using Lists = std::vector<std::vector<double>>;

std::vector<double> slowest(const Lists& ranks) {
  std::vector<double> out = ranks.at(0);
  for (const std::vector<double>& each : ranks) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::max(out[i], each.at(i));
  }
  return out;
}

RunRecord combine(const std::string& case_id, const std::vector<json>& answers) {
  const auto lists = [&](const char* name) {
    Lists out;
    for (const json& answer : answers) out.push_back(answer.at(name).get<std::vector<double>>());
    return out;
  };
  const auto mean = [&](const char* name) {
    double sum = 0;
    for (const json& answer : answers) sum += answer.at(name).get<double>();
    return sum / static_cast<double>(answers.size());
  };
  const auto most = [&](const char* name) {
    double out = 0;
    for (const json& answer : answers) out = std::max(out, answer.at(name).get<double>());
    return out;
  };
  RunRecord out;
  out.case_id = case_id;
  out.rank_iteration_ms = lists("iteration_ms");
  out.iteration_ms = slowest(out.rank_iteration_ms);
  out.forward_ms = slowest(lists("forward_ms"));
  out.backward_ms = slowest(lists("backward_ms"));
  out.no_sync_ms = slowest(lists("no_sync_ms"));
  out.cpu_ms = mean("cpu_ms");
  out.seal_ms = mean("seal_ns") / 1e6;
  out.open_ms = mean("open_ns") / 1e6;
  out.wire_ms = mean("wire_ns") / 1e6;
  out.seals = most("seals");
  out.opens = most("opens");
  out.sealed_bytes = most("sealed_bytes");
  out.opened_bytes = most("opened_bytes");
  const json& first = answers.at(0);
  out.buckets_before = first.at("buckets_before").get<std::vector<std::uint64_t>>();
  out.buckets_after = first.at("buckets_after").get<std::vector<std::uint64_t>>();
  out.setup_ms = first.at("setup_ms");
  out.loss = first.at("loss");
  out.parameters_sha256 = first.at("parameters_sha256");
  return out;
}

}  // namespace

Result<RunRecord> combine_answers(const std::string& case_id, const std::vector<json>& answers) {
  try {
    RunRecord out = combine(case_id, answers);
    for (const json& answer : answers) {
      if (answer.at("parameters_sha256") == out.parameters_sha256) continue;
      return fail(Code::results, "study.measure", "the ranks' parameters differ after " + case_id);
    }
    return out;
  } catch (const std::exception& problem) {
    return fail(Code::malformed, "study.worker",
                fmt::format("a worker's answer is not whole: {}", problem.what()));
  }
}

}  // namespace sealring
