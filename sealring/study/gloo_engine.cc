#include <fmt/format.h>

#include <cstdlib>

#include "sealring/study/bench_engine.h"
#include "sealring/study/process.h"
#include "sealring/study/python_place.h"

namespace sealring {
namespace {

/// Protocol with `python3 -m sealring.train --mode allreduce-bench`, a line each way: "ready" once the group
/// exists; "run BYTES CALLS" is answered by "NANOSECONDS CPU_NANOSECONDS" (the latter since the start of the
/// process).
class GlooEngine final : public Engine {
 public:
  GlooEngine(Process process, std::chrono::milliseconds timeout)
      : process_(std::move(process)), timeout_(timeout) {}

  Result<void> ready() {
    SR_TRY(const std::string line, process_.read_line(Deadline::in(timeout_)));
    if (line == "ready") return {};
    return fail(Code::malformed, "bench.gloo", "the Gloo worker said \"" + line.substr(0, 200) + "\"");
  }

  Result<std::uint64_t> run(const BenchCall& call, unsigned calls) override {
    SR_TRY(process_.write_line(fmt::format("run {} {}", call.size.size_bytes, calls)));
    SR_TRY(const std::string line, process_.read_line(Deadline::in(timeout_)));
    char* end = nullptr;
    const std::uint64_t ns = std::strtoull(line.c_str(), &end, 10);
    if (end == line.c_str() || *end != ' ' || ns == 0) {
      return fail(Code::malformed, "bench.gloo", "the Gloo worker said \"" + line.substr(0, 200) + "\"");
    }
    cpu_ns_ += std::strtoull(end, nullptr, 10);
    return ns;
  }

  bool checkable() const override { return false; }

 private:
  Process process_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

Result<std::unique_ptr<Engine>> make_gloo_engine(const BenchSpec& spec, const RankPlace& place) {
  if (place.rendezvous_directory.empty()) {
    return fail(Code::unsupported, "bench.gloo", "Gloo is compared among local processes only",
                "use --ranks N");
  }
  ProcessSpec child;
  child.arguments =
      python_command(spec.python, "sealring.train",
                     {"--mode", "allreduce-bench", "--rank", fmt::format("{}", place.rank), "--world",
                      fmt::format("{}", spec.ranks), "--store", place.rendezvous_directory + "/gloo",
                      "--dtype", std::string(to_string(spec.dtype))});
  if (!spec.python_path.empty()) child.environment["PYTHONPATH"] = spec.python_path;
  child.environment["GLOO_SOCKET_IFNAME"] = "lo";
  child.pipe_input = true;
  child.pipe_output = true;
  const std::chrono::milliseconds timeout(static_cast<std::int64_t>(spec.timeout_s * 1000));
  SR_TRY(Process process, Process::start(child));
  auto engine = std::make_unique<GlooEngine>(std::move(process), timeout);
  if (auto ready = engine->ready(); !ready) {
    Error error = std::move(ready).error();
    error.next = "Gloo rows need PyTorch: name its interpreter with --python, or leave gloo out of --suite";
    return tl::unexpected(std::move(error));
  }
  return engine;
}

}  // namespace sealring
