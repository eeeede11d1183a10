#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "cli/verbs.h"
#include "sealring/base/log.h"
#include "sealring/base/suggest.h"
#include "sealring/collective/schedule.h"
#include "sealring/device/backend.h"
#include "sealring/device/bulk_cipher.h"
#include "sealring/study/bench_launch.h"
#include "sealring/study/bench_table.h"
#include "sealring/study/process.h"
#include "sealring/study/python_place.h"

namespace sealring::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  sealring bench all_reduce --ranks 2 -b 1K -e 64M -f 4          plain and aes-256-gcm, interleaved
  sealring bench all_reduce --ranks 2 --suite all -b 16M -e 16M  every suite at one size
  sealring bench all_reduce --suite gloo,plain,aes-256-gcm --pin    next to Gloo, a core a rank
  sealring bench all_gather --ranks 4 --dtype bf16 --algorithm ring,one-hop
  sealring bench all_reduce --ranks 4 --node-ranks 2 --algorithm one-hop,two-level   two pretended nodes
  sealring bench all_reduce --device cuda --ranks 2 --suite nccl,nccl-windows,chacha20-poly1305 -e 1G
  sealring bench all_reduce --device cuda --ranks-per-gpu 2 --columns 16,32,66   two ranks on one GPU
  sealring bench --targets --json targets.json                   this project's speed targets, judged
  SEALRING_JOB_KEY_FILE=job.key torchrun --no-python --nproc-per-node 2 sealring bench all_reduce

With --ranks the ranks are processes of this machine that share a throwaway job key. Without it,
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (as torchrun sets them) place this process in a job,
whose key comes from SEALRING_JOB_KEY_FILE. Busbw factors are those that nccl-tests derives in
doc/PERFORMANCE.md.

On GPUs (--device cuda) a sample is timed by the device. NCCL is compared as nccl (as it comes),
nccl-windows (its own registered memory) and nccl-blocks (32 thread blocks or more), with NVLink
multicast off (NCCL_NVLS_ENABLE=0), which it is under confidential computing.

Suites: aes-256-gcm, aes-128-gcm and chacha20-poly1305 seal. For comparison only, under an identity that
secured ranks refuse: plain (our schedules, nothing sealed) and chained-gmac (the published
study's scheme: AES-256-GCM on small pieces, each with its tag, chained to a record).

Columns:
)";

struct Options {
  std::string op = "all_reduce", begin = "1K", end = "64M", dtype = "fp32", redop = "sum", transport = "tcp",
              json, device = "cpu";
  std::vector<std::string> suites, algorithms{"auto"};  ///< no suites: plain and the device's default
  double factor = 4;
  std::string increment;
  unsigned ranks = 0, node_ranks = 0, iterations = 20, warmup = 5, check = 1, root = 0, lanes = 1,
           workers = 0;
  std::string segment = "256K", python, commit;
  std::uint64_t seed = 1;
  double timeout_s = 120, mark_mad = 5;
  std::optional<double> max_mad;
  bool pin = false, targets = false, graph = false;
  std::vector<unsigned> columns{0};
  unsigned ranks_per_gpu = 0;
  unsigned blocks = 10;
};

std::string columns_text() {
  std::string out = kExamples;
  for (const BenchColumn& column : bench_columns())
    out += fmt::format("  {:<10} {}\n", column.name, column.meaning);
  return out;
}

Result<std::vector<std::uint64_t>> sizes_of(const Options& options) {
  SR_TRY(const std::uint64_t begin, parse_bytes(options.begin));
  SR_TRY(const std::uint64_t end, parse_bytes(options.end));
  std::uint64_t step = 0;
  if (!options.increment.empty()) {
    SR_TRY(step, parse_bytes(options.increment));
  }
  if (begin > end || begin == 0 || (step == 0 && !(options.factor > 1))) {
    return fail(Code::invalid_argument, "bench.size",
                "sizes must rise from -b to -e, by -f above 1 or -i above 0");
  }
  std::vector<std::uint64_t> out;
  for (std::uint64_t at = begin; at <= end;) {
    out.push_back(at);
    const auto next =
        step > 0 ? at + step
                 : static_cast<std::uint64_t>(std::llround(options.factor * static_cast<double>(at)));
    if (next <= at || out.size() > 1000) break;
    at = next;
  }
  return out;
}

tl::unexpected<Error> unknown(const std::string& what, const std::string& word,
                              const std::vector<std::string>& known) {
  const std::string near = nearest_word(word, known);
  return fail(Code::invalid_argument, "bench.options", fmt::format("there is no {} \"{}\"", what, word),
              near.empty() ? fmt::format("known: {}", fmt::join(known, ", ")) : "did you mean " + near + "?");
}

template <class Values>
std::vector<std::string> names_of(const Values& values) {
  std::vector<std::string> out;
  for (const auto& each : values) out.emplace_back(to_string(each));
  return out;
}

/// "all" and "auto" expanded, every suite with every algorithm, Gloo once.
Result<std::vector<BenchCase>> cases_of(const Options& options, Op op) {
  std::vector<std::string> suites = options.suites;
  if (suites.empty()) suites = {"plain", options.device == "cuda" ? "chacha20-poly1305" : "aes-256-gcm"};
  if (suites == std::vector<std::string>{"all"}) {
    suites = {"plain", "aes-256-gcm", "aes-128-gcm", "chacha20-poly1305"};
  }
  std::vector<std::optional<Algorithm>> algorithms;
  for (const std::string& name : options.algorithms) {
    const auto algorithm = parse_algorithm(name);
    if (name != "auto" && !algorithm) {
      std::vector<std::string> known = names_of(all_algorithms());
      known.emplace_back("auto");
      return unknown("algorithm", name, known);
    }
    if (algorithm && !algorithm_supported(op, *algorithm)) {
      return fail(Code::unsupported, "bench.options",
                  fmt::format("{} has no algorithm {}", to_string(op), name));
    }
    algorithms.push_back(algorithm);
  }
  std::vector<BenchCase> out;
  for (const std::string& name : suites) {
    if (name == "gloo") {
      if (op != Op::all_reduce)
        return fail(Code::unsupported, "bench.options", "gloo is compared for all_reduce only");
      out.push_back({.gloo = true, .suite = Suite::plain, .algorithm = {}});
      continue;
    }
    if (const auto nccl = parse_nccl(name)) {
      out.push_back({.nccl = nccl, .suite = Suite::plain, .algorithm = {}});
      continue;
    }
    const auto suite = parse_suite(name);
    if (!suite) {
      std::vector<std::string> known = names_of(all_suites());
      known.insert(known.end(), {"gloo", "nccl", "nccl-windows", "nccl-blocks", "all"});
      return unknown("suite", name, known);
    }
    for (const auto& algorithm : algorithms) {
      for (const unsigned columns : options.columns)
        out.push_back({.suite = *suite, .algorithm = algorithm, .columns = columns});
    }
  }
  if (std::none_of(out.begin(), out.end(), [](const BenchCase& each) { return each.sealring(); })) {
    return fail(Code::invalid_argument, "bench.options",
                "gloo or nccl alone is no comparison; add plain or a suite");
  }
  return out;
}

/// What runs on CPUs, what on GPUs, and where the ranks then lie.
Result<void> place_on_device(const Options& options, BenchSpec& spec) {
  if (options.device != "cpu" && options.device != "cuda")
    return unknown("device", options.device, {"cpu", "cuda"});
  spec.cuda = options.device == "cuda";
  spec.graph = options.graph;
  spec.ranks_per_gpu = options.ranks_per_gpu;
  const auto any = [&](auto is) { return std::any_of(spec.cases.begin(), spec.cases.end(), is); };
  const bool nccl = any([](const BenchCase& each) { return each.nccl.has_value(); });
  const bool gloo = any([](const BenchCase& each) { return each.gloo; });
  const bool gpu_only = spec.graph || spec.ranks_per_gpu != 0 || options.columns != std::vector<unsigned>{0};
  if (!spec.cuda && (nccl || gpu_only))
    return fail(Code::invalid_argument, "bench.options",
                "nccl, --graph, --columns and --ranks-per-gpu are of GPUs", "add --device cuda");
  if (!spec.cuda) return {};
  // Each rank's streams have a queue of the GPU of their own; CUDA reads this when it starts.
  if (spec.ranks_per_gpu != 0) ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (gloo) return fail(Code::unsupported, "bench.options", "gloo is compared on CPUs only");
  if (nccl && spec.ranks_per_gpu != 0)
    return fail(Code::unsupported, "bench.options", "NCCL needs a GPU for each rank",
                "leave --ranks-per-gpu out, or nccl out of --suite");
  const unsigned gpus = cuda_device_count();
  if (gpus == 0)
    return fail(Code::gpu_absent, "bench.options",
                cuda_built() ? "this machine has no CUDA device" : "this build has no CUDA code");
  // Ranks of one process share one GPU: their windows are its memory.
  if (spec.ranks == 0)
    spec.ranks = static_cast<std::uint16_t>(spec.ranks_per_gpu == 0 ? gpus : spec.ranks_per_gpu);
  if (spec.ranks < 2)
    return fail(Code::invalid_argument, "bench.options", "this machine has one GPU",
                "put two ranks on it with --ranks-per-gpu 2");
  if (spec.ranks > (spec.ranks_per_gpu == 0 ? gpus : spec.ranks_per_gpu))
    return fail(Code::invalid_argument, "bench.options",
                fmt::format("{} ranks do not fit on {} GPUs", spec.ranks, spec.ranks_per_gpu == 0 ? gpus : 1),
                "put all of them on one GPU with --ranks-per-gpu");
  spec.loopback = spec.ranks_per_gpu != 0;
  return {};
}

Result<BenchSpec> spec_of(const Options& options) {
  BenchSpec spec;
  const std::vector<std::string> ops{"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                     "reduce",     "all_to_all",     "sendrecv"};
  if (std::find(ops.begin(), ops.end(), options.op) == ops.end())
    return unknown("operation", options.op, ops);
  spec.op = options.op == "sendrecv" ? Op::send : *parse_op(options.op);
  const auto dtype = parse_dtype(options.dtype);
  if (!dtype) return unknown("type", options.dtype, names_of(all_dtypes()));
  const auto redop = parse_redop(options.redop);
  if (!redop || *redop == RedOp::none)
    return unknown("reduction", options.redop, names_of(all_redops().subspan(1)));
  const bool reduces = spec.op == Op::all_reduce || spec.op == Op::reduce || spec.op == Op::reduce_scatter;
  if (reduces && !reduction_supported(*dtype, *redop)) {
    return fail(Code::unsupported, "bench.options",
                fmt::format("{} of {} does not exist", options.redop, options.dtype));
  }
  spec.dtype = *dtype;
  spec.redop = *redop;
  SR_TRY(spec.sizes_bytes, sizes_of(options));
  SR_TRY(spec.cases, cases_of(options, spec.op));
  SR_TRY(const std::uint64_t segment, parse_bytes(options.segment));
  if (segment < 16 * 1024 || segment > 1024 * 1024 || segment % 64 != 0) {
    return fail(Code::invalid_argument, "bench.options", "--segment must be 16K to 1M and a multiple of 64");
  }
  if (options.transport != "tcp" && options.transport != "loopback") {
    return unknown("transport", options.transport, {"tcp", "loopback"});
  }
  spec.loopback = options.transport == "loopback";
  spec.ranks = static_cast<std::uint16_t>(options.ranks);
  spec.node_ranks = static_cast<std::uint16_t>(options.node_ranks);
  spec.segment_bytes = static_cast<std::uint32_t>(segment);
  spec.iterations = options.iterations;
  spec.warmup = options.warmup;
  spec.check = options.check != 0;
  spec.root = static_cast<Rank>(options.root);
  spec.pin = options.pin;
  spec.seed = options.seed;
  spec.lanes = options.lanes;
  spec.workers = options.workers;
  spec.timeout_s = options.timeout_s;
  spec.mark_mad_percent = options.mark_mad;
  spec.max_mad_percent = options.max_mad;
  spec.json_path = options.json;
  SR_TRY(place_on_device(options, spec));
  const PythonPlace python = find_python(options.python);
  spec.python = python.interpreter;
  spec.python_path = python.path;
  spec.commit = options.commit.empty() ? commit_of(python.root.empty() ? "." : python.root) : options.commit;
  return spec;
}

/// Rank 0's side: prints rows as they come, keeps them for the JSON.
struct Printer {
  const BenchSpec& spec;
  Machine machine;
  std::vector<BenchRow> rows = {};

  BenchReporter reporter() {
    BenchReporter out;
    out.start = [this](const std::vector<SealringEngine*>& engines) {
      fmt::print("{}", bench_head(spec, machine, engines));
      std::fflush(stdout);
    };
    out.row = [this](const BenchRow& row) {
      fmt::print("{}", bench_line(spec, row));
      std::fflush(stdout);
      rows.push_back(row);
    };
    return out;
  }

  /// Exit status of a run that measured everything.
  int finish() const {
    fmt::print("{}", bench_foot(spec, rows));
    if (!spec.json_path.empty()) {
      if (const auto written = write_file(spec.json_path, bench_json(spec, machine, rows)); !written) {
        return print_error(written.error());
      }
    }
    double worst = 0;
    std::uint64_t wrong = 0;
    for (const BenchRow& row : rows) {
      worst = std::max(worst, row.mad_percent);
      wrong += row.wrong.value_or(0);
    }
    if (wrong > 0) return kExitError;
    if (!spec.max_mad_percent || worst <= *spec.max_mad_percent) return kExitDone;
    Error error;
    error.code = Code::noise;
    error.stage = "bench";
    error.what = fmt::format("a row's median absolute deviation is {:.1f} %", worst);
    error.expected = fmt::format("{}%", *spec.max_mad_percent);
    print_error(error);
    return kExitNoise;
  }
};

int launch_local(const BenchSpec& spec) {
  const auto status = launch_local_bench(spec);
  if (interrupted())
    return print_interrupted("bench", "; rows printed so far are whole, no file was written");
  return status ? *status : print_error(status.error());
}

/// For ranks in this very process, which no launcher of ours watches.
void end_with_a_line(int signal) {
  constexpr std::string_view kLine = "sealring bench: interrupted; rows printed so far are whole\n";
  if (::write(STDERR_FILENO, kLine.data(), kLine.size()) < 0) ::_exit(kExitError);
  ::_exit(128 + signal);
}

int launch_targets(const Options& options, BenchSpec spec) {
  if (spec.op != Op::all_reduce || spec.loopback || spec.cuda)
    return print_usage("bench", "--targets are of all_reduce on CPUs over tcp");
  spec.target_blocks = options.blocks;
  spec.pin = true;
  if (options.end == Options().end) spec.sizes_bytes = {256u << 20};
  if (usable_cpus().size() < spec.ranks) return print_usage("bench", "--targets need a core for each rank");
  return launch_local(spec);
}

/// Once the number of ranks is known.
Result<void> check_nodes(const BenchSpec& spec) {
  if (spec.node_ranks > 0 && spec.ranks % spec.node_ranks != 0)
    return fail(Code::invalid_argument, "bench.options",
                fmt::format("{} ranks do not lie on nodes of {} ranks each", spec.ranks, spec.node_ranks),
                "give --node-ranks a divisor of the number of ranks");
  const auto levels = [](const BenchCase& each) { return each.algorithm == Algorithm::two_level; };
  if (spec.node_ranks == 0 && std::any_of(spec.cases.begin(), spec.cases.end(), levels))
    return fail(Code::invalid_argument, "bench.options",
                "algorithm two-level needs to know how many ranks lie on a node",
                "give --node-ranks; with --ranks the nodes are pretended");
  return {};
}

int run_bench(const Options& options) {
  auto spec = spec_of(options);
  if (!spec) {
    fmt::print(stderr, "{}\n", spec.error().message());
    return kExitUsage;
  }
  ::signal(SIGPIPE, SIG_IGN);
  const auto launched = read_launched_rank();
  if (!launched) return print_error(launched.error());
  if (options.ranks == 0 && options.ranks_per_gpu == 0 && *launched) {
    const auto environment = Environment::read();
    if (!environment) return print_error(environment.error());
    spec->ranks = (*launched)->world;
    if (spec->node_ranks == 0) spec->node_ranks = environment->node_ranks;
    if (const auto right = check_nodes(*spec); !right) return print_error(right.error());
    if ((*launched)->rank == 0) ::signal(SIGINT, end_with_a_line);
    Printer printer{*spec, read_machine()};
    const auto done = run_launched_bench_rank(*spec, **launched, *environment, printer.reporter());
    if (!done) return print_error(done.error());
    return (*launched)->rank == 0 ? printer.finish() : kExitDone;
  }
  if (spec->ranks == 0) spec->ranks = 2;
  if (const auto right = check_nodes(*spec); !right) {
    fmt::print(stderr, "{}\n", right.error().message());
    return kExitUsage;
  }
  spec->usable_threads = static_cast<std::uint32_t>(usable_cpus().size());
  if (options.targets) return launch_targets(options, *spec);
  if (spec->root >= spec->ranks) return print_usage("bench", "--root must be a rank");
  if (!spec->loopback) {
    return launch_local(*spec);
  }
  ::signal(SIGINT, end_with_a_line);
  Printer printer{*spec, read_machine()};
  const auto done = run_loopback_bench(*spec, printer.reporter());
  return done ? printer.finish() : print_error(done.error());
}

/// A pinned rank sees its own CPUs only; the launcher saw them all.
Machine machine_of(const BenchSpec& spec) {
  Machine machine = read_machine();
  if (spec.usable_threads > 0) machine.usable_threads = spec.usable_threads;
  return machine;
}

struct RankOptions {
  std::string spec, directory;
  unsigned rank = 0;
  int key_descriptor = -1;
};

int run_targets(const BenchSpec& spec, const RankOptions& options) {
  const auto rank = static_cast<Rank>(options.rank);
  const Machine machine = rank == 0 ? machine_of(spec) : Machine{};
  const auto result = run_local_targets_rank(spec, rank, options.key_descriptor, options.directory);
  if (!result) return print_error(result.error());
  if (rank != 0) return kExitDone;
  fmt::print("{}", targets_text(spec, machine, *result));
  if (spec.json_path.empty()) return kExitDone;
  const auto written = write_file(spec.json_path, targets_json(spec, machine, *result));
  return written ? kExitDone : print_error(written.error());
}

int run_rank(const RankOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);
  const auto text = read_file(options.spec, 1u << 20);
  if (!text) return print_error(text.error());
  const auto spec = BenchSpec::from_json(*text);
  if (!spec) return print_error(spec.error());
  const auto rank = static_cast<Rank>(options.rank);
  if (spec->target_blocks > 0) return run_targets(*spec, options);
  Printer printer{*spec, rank == 0 ? machine_of(*spec) : Machine{}};
  const auto done =
      run_local_bench_rank(*spec, rank, options.key_descriptor, options.directory, printer.reporter());
  if (!done) return print_error(done.error());
  return rank == 0 ? printer.finish() : kExitDone;
}

void add_options(CLI::App* verb, Options& o) {
  verb->add_option(
      "OPERATION", o.op,
      "all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all or sendrecv (all_reduce)");
  verb->add_option("--ranks", o.ranks, "start this many local ranks (2 without a launcher)")
      ->check(CLI::Range(2, 64));
  verb->add_option("--node-ranks", o.node_ranks,
                   "ranks of each node, for the two-level schedule; of local ranks the nodes are pretended: "
                   "nothing is slower between them (one node, or SEALRING_NODE_RANKS of launched ranks)")
      ->check(CLI::Range(1, 1024));
  verb->add_option("-b,--begin", o.begin, "smallest size (1K)");
  verb->add_option("-e,--end", o.end, "largest size (64M)");
  verb->add_option("-f,--factor", o.factor, "multiply sizes by this (4)");
  verb->add_option("-i,--increment", o.increment, "add this to sizes instead");
  verb->add_option("-n,--iterations", o.iterations, "samples a case (20)")->check(CLI::Range(1, 100000));
  verb->add_option("-w,--warmup", o.warmup, "operations before measuring (5)")->check(CLI::Range(0, 10000));
  verb->add_option("-c,--check", o.check, "1: check results exactly, 0: do not (1)")->check(CLI::Range(0, 1));
  verb->add_option(
          "--suite", o.suites,
          "suites, or all; gloo and nccl add those (plain,aes-256-gcm; on GPUs plain,chacha20-poly1305)")
      ->delimiter(',');
  verb->add_option("--algorithm", o.algorithms,
                   "schedules: auto, ring, one-hop, one-shot, two-level, ... (auto)")
      ->delimiter(',');
  verb->add_option("--dtype", o.dtype,
                   "fp32, fp64, fp16, bf16, int8, int16, int32, int64, uint8 or bool (fp32)");
  verb->add_option("--redop", o.redop, "sum, avg, premul_sum, min, max or product (sum)");
  verb->add_option("--root", o.root, "root of broadcast and reduce (0)");
  verb->add_option("--transport", o.transport, "tcp, or loopback: ranks as threads of one process (tcp)");
  verb->add_option("--device", o.device, "where the tensors lie: cpu, or cuda (cpu)");
  verb->add_option("--ranks-per-gpu", o.ranks_per_gpu,
                   "so many ranks share the first GPU, as threads of one process (a process and a GPU each)")
      ->check(CLI::Range(1, 8));
  verb->add_option("--columns", o.columns,
                   "thread blocks of an operation at most, one row each (library's choice)")
      ->delimiter(',');
  verb->add_flag("--graph", o.graph, "replay the operations of a sample as one CUDA graph");
  verb->add_option("--segment", o.segment, "bytes sealed under one tag (256K)");
  verb->add_option("--lanes", o.lanes, "connections a peer (1)")->check(CLI::Range(1, 16));
  verb->add_option("--workers", o.workers, "crypto threads a rank beside its own (0)")
      ->check(CLI::Range(0, 64));
  verb->add_flag("--pin", o.pin, "pin each rank to its share of the cores");
  verb->add_option("--seed", o.seed, "draws the order of the cases and the values (1)");
  verb->add_option("--mark-mad", o.mark_mad, "mark rows noisier than this many percent (5)");
  verb->add_option("--max-mad", o.max_mad, "exit with 3 if a row is noisier than this many percent");
  verb->add_option("--json", o.json, "write all samples and the machine record to this file");
  verb->add_option("--commit", o.commit, "of the measured tree, for the record (what git says here)");
  verb->add_flag(
      "--targets", o.targets,
      "measure and judge this project's speed targets (-e: largest size, 256M); needs PyTorch for Gloo");
  verb->add_option("--blocks", o.blocks, "blocks of --targets (10); below 5 nothing is judged")
      ->check(CLI::Range(1, 1000));
  verb->add_option("--timeout", o.timeout_s, "seconds for each operation and for the start (120)");
  verb->add_option("--python", o.python,
                   "interpreter with PyTorch, for gloo (.venv of the source tree, else python3)");
}

}  // namespace

void add_bench(CLI::App& app, Action& chosen) {
  CLI::App* verb = app.add_subcommand("bench", "time the collectives, sealed and plain");
  verb->footer([] { return columns_text(); });
  verb->footer(std::string());  // else the tool's own footer follows
  const auto options = std::make_shared<Options>();
  add_options(verb, *options);
  verb->callback([options, &chosen] { chosen = [options] { return run_bench(*options); }; });

  CLI::App* rank = app.add_subcommand(kBenchRankVerb, "one rank of a local benchmark")->group("");
  const auto rank_options = std::make_shared<RankOptions>();
  rank->add_option("--spec", rank_options->spec)->required();
  rank->add_option("--directory", rank_options->directory)->required();
  rank->add_option("--rank", rank_options->rank)->required();
  rank->add_option("--key-fd", rank_options->key_descriptor)->required();
  rank->callback([rank_options, &chosen] { chosen = [rank_options] { return run_rank(*rank_options); }; });
}

}  // namespace sealring::cli
