#include "sealring/study/bench_launch.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <thread>

#include "sealring/study/key_text.h"
#include "sealring/study/process.h"

namespace sealring {
namespace {

Result<std::unique_ptr<Transport>> tcp_on(const std::string& interface_name, const std::string& reach_host) {
  TcpConfig config;
  config.interface_name = interface_name;
  config.reach_host = reach_host;
  return make_tcp_transport(config);
}

Result<RankPlace> local_place(Rank rank, const std::string& directory) {
  RankPlace place;
  place.rank = rank;
  place.local_rank = rank;
  SR_TRY(place.store, make_file_store(directory + "/store"));
  place.prefix = "bench";
  place.rendezvous_directory = directory;
  place.make_transport = [] { return tcp_on("lo", {}); };
  return place;
}

/// Waits for all ranks; once one has failed the others get `kGrace` to end by themselves.
int await_ranks(std::vector<Process>& ranks) {
  constexpr auto kGrace = std::chrono::seconds(10);
  int worst = 0;
  std::optional<Deadline> give_up;
  std::vector<bool> done(ranks.size(), false);
  while (std::count(done.begin(), done.end(), false) > 0) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (done[i]) continue;
      const auto status = ranks[i].wait(Deadline::in(std::chrono::milliseconds(5)));
      if (!status) continue;
      done[i] = true;
      if (*status > 128 && !interrupted())
        fmt::print(stderr, "rank {} was killed by signal {}\n", i, *status - 128);
      worst = std::max(worst, *status > 3 ? 1 : *status);
      if (*status != 0 && *status != 3 && !give_up) give_up = Deadline::in(kGrace);
    }
    if (interrupted() && !give_up) {
      worst = std::max(worst, 1);
      give_up = Deadline::in(std::chrono::seconds(0));
    }
    if (give_up && give_up->expired()) {
      for (Process& rank : ranks) rank.kill(SIGKILL);
    }
  }
  return worst;
}

template <class Number>
Result<std::optional<Number>> variable(const char* name, Number most) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return std::optional<Number>();
  Number value{};
  const std::string_view view(text);
  const auto [end, problem] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (problem == std::errc{} && end == view.data() + view.size() && value <= most)
    return std::optional(value);
  return fail(Code::environment, "bench.launch",
              fmt::format("{}=\"{}\" is not a number up to {}", name, view, most));
}

}  // namespace

Result<int> launch_local_bench(const BenchSpec& spec) {
  catch_interrupts();
  SR_TRY(const PrivateDirectory directory, PrivateDirectory::make());
  const std::string spec_path = directory.path() + "/spec.json";
  SR_TRY(write_file(spec_path, spec.to_json()));
  const JobKey key = JobKey::generate();
  const std::vector<unsigned> cpus = usable_cpus();
  std::vector<Process> ranks;
  for (unsigned rank = 0; rank < spec.ranks; ++rank) {
    ProcessSpec child;
    SR_TRY(const int descriptor, pipe_with(job_key_text(key)));
    child.arguments = {own_program(), kBenchRankVerb,          "--spec",   spec_path,
                       "--rank",      fmt::format("{}", rank), "--key-fd", fmt::format("{}", descriptor),
                       "--directory", directory.path()};
    child.keep = {descriptor};
    if (spec.pin) child.cpus = cpus_of_rank(cpus, rank, spec.ranks);
    auto process = Process::start(child);
    ::close(descriptor);
    if (!process) return tl::unexpected(std::move(process).error());
    ranks.push_back(*std::move(process));
  }
  return await_ranks(ranks);
}

Result<void> run_local_bench_rank(const BenchSpec& spec, Rank rank, int key_descriptor,
                                  const std::string& directory, const BenchReporter& reporter) {
  SR_TRY(const JobKey key, read_job_key(key_descriptor));
  SR_TRY(const RankPlace place, local_place(rank, directory));
  return run_bench_rank(spec, place, key, reporter);
}

Result<TargetsResult> run_local_targets_rank(const BenchSpec& spec, Rank rank, int key_descriptor,
                                             const std::string& directory) {
  SR_TRY(const JobKey key, read_job_key(key_descriptor));
  SR_TRY(const RankPlace place, local_place(rank, directory));
  return run_targets_rank(spec, place, key);
}

Result<void> run_loopback_bench(const BenchSpec& spec, const BenchReporter& reporter) {
  const JobKey key = JobKey::generate();
  const std::shared_ptr<Store> store = make_memory_store();
  std::vector<std::shared_ptr<LoopbackHub>> hubs;
  for (std::size_t i = 0; i < spec.cases.size(); ++i) hubs.push_back(LoopbackHub::make(spec.ranks));
  std::vector<Result<void>> results(spec.ranks);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < spec.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RankPlace place;
      place.rank = rank;
      place.local_rank = rank;
      place.store = store;
      place.prefix = "bench";
      std::size_t next_hub = 0;
      place.make_transport = [&]() -> Result<std::unique_ptr<Transport>> {
        return hubs[next_hub++]->transport(rank);
      };
      results[rank] = run_bench_rank(spec, place, key, reporter);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Result<void>& result : results) {
    if (!result) return std::move(result);
  }
  return {};
}

Result<std::optional<LaunchedRank>> read_launched_rank() {
  SR_TRY(const auto rank, variable<std::uint16_t>("RANK", kRanksMax - 1));
  SR_TRY(const auto world, variable<std::uint16_t>("WORLD_SIZE", kRanksMax));
  if (!rank || !world) return std::optional<LaunchedRank>();
  SR_TRY(const auto port, variable<std::uint16_t>("MASTER_PORT", 65534));
  SR_TRY(const auto local_rank, variable<std::uint16_t>("LOCAL_RANK", kRanksMax - 1));
  SR_TRY(const auto local_world, variable<std::uint16_t>("LOCAL_WORLD_SIZE", kRanksMax));
  const char* host = std::getenv("MASTER_ADDR");
  if (host == nullptr || !port) {
    return fail(Code::environment, "bench.launch",
                "RANK and WORLD_SIZE are set, MASTER_ADDR or MASTER_PORT is not",
                "set all four, as torchrun does, or unset RANK and use --ranks N");
  }
  if (*rank >= *world) {
    return fail(Code::environment, "bench.launch",
                fmt::format("RANK={} is outside WORLD_SIZE={}", *rank, *world));
  }
  LaunchedRank out{*rank, *world, local_rank.value_or(*rank), local_world.value_or(*world), host, *port};
  // torchrun's agent listens on MASTER_PORT itself then, with a store of another protocol.
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (agent != nullptr && std::string_view(agent) == "True") ++out.port;
  return std::optional(out);
}

Result<void> run_launched_bench_rank(const BenchSpec& spec, const LaunchedRank& launched,
                                     const Environment& environment, const BenchReporter& reporter) {
  if (environment.job_key_file.empty())
    return fail(Code::no_identity, "bench.launch", "SEALRING_JOB_KEY_FILE is not set");
  SR_TRY(const JobKey key, JobKey::read(environment.job_key_file));
  if (spec.pin) SR_TRY(pin_process(cpus_of_rank(usable_cpus(), launched.local_rank, launched.local_world)));
  const Identity identity = make_job_key_identity(key);
  TcpStoreConfig store;
  store.host = launched.host;
  store.port = launched.port;
  store.serve = launched.rank == 0;
  store.prefix = "bench";
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(spec.timeout_s * 1000));
  RankPlace place;
  place.rank = launched.rank;
  place.local_rank = launched.local_rank;
  SR_TRY(place.store, make_tcp_store(store, identity.store_secret, Deadline::in(timeout)));
  place.prefix = "bench";
  place.make_transport = [&] { return tcp_on(environment.socket_ifname, launched.host); };
  return run_bench_rank(spec, place, key, reporter);
}

}  // namespace sealring
