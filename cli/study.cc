#include <fmt/format.h>
#include <signal.h>

#include <filesystem>
#include <memory>

#include "cli/verbs.h"
#include "sealring/study/measure.h"
#include "sealring/study/process.h"
#include "sealring/study/report.h"

namespace sealring::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  sealring study                              preset laptop: a small ResNet and a small GPT-2, 2 ranks, CPU
  sealring study --only gpt2 --blocks 5       one model
  sealring study --budget 300                 begin no block after 300 s
  sealring study --resume out/results.json --blocks 10      add blocks to an earlier run
  sealring study --preset paper               the six models of the published study (GPUs; refuses without)

What is measured: real PyTorch DDP training with Gloo, with our own plain ring, and with the ring
and the one-hop schedule sealed by aes-256-gcm, each at its best bucket size (searched first) and at
25 MiB; the baseline against itself (A/A); and an emulation of our own seal cost on the plain ring,
to check the method of the published study. All cases of a block run in the same processes in an
order drawn from the seed; a result is the median of at least 5 blocks with a 95 % interval, less is
marked preview.

The results are written after every block. Ctrl-C ends a study with what it has; --resume goes on.)";

constexpr const char* kDefaultOutput = "out/results.json";

int finish(const StudyOptions& options, const StudyResults& results) {
  const std::string directory = std::filesystem::path(options.output).parent_path().string();
  const auto written = write_report(results, directory.empty() ? "." : directory, options.python);
  if (!written) return print_error(written.error());
  fmt::print("{}\n", summary_text(results));
  fmt::print("results  {}\nreport   {}\n", options.output, written->markdown_path);
  if (!written->html_path.empty()) fmt::print("report   {}\n", written->html_path);
  if (!written->html_problem.empty()) fmt::print(stderr, "no HTML: {}\n", written->html_problem);
  const auto gpus = results.machines.empty() ? std::vector<std::string>{} : results.machines.back().gpus;
  if (!gpus.empty()) {
    fmt::print(
        "This machine has {} x {}; the six models of preset paper need them, and do not run yet: this "
        "release seals CPU tensors only.\n",
        gpus.size(), gpus.front());
  }
  return kExitDone;
}

/// Says what is kept and how to go on with it.
int say_interrupted(const StudyOptions& options) {
  std::size_t blocks = 0;
  if (const auto kept = load_results(options.output)) blocks = kept->blocks.size();
  std::string command = "sealring study --resume " + options.output;
  if (options.output != kDefaultOutput) command += " -o " + options.output;
  const StudyOptions usual;
  if (!options.only.empty()) command += " --only " + options.only;
  if (options.ranks != usual.ranks) command += fmt::format(" --ranks {}", options.ranks);
  if (options.blocks != usual.blocks) command += fmt::format(" --blocks {}", options.blocks);
  if (options.iterations != usual.iterations) command += fmt::format(" --iterations {}", options.iterations);
  const std::string kept =
      blocks == 0
          ? "; no block was finished, so none is kept. Start again with the same command."
          : fmt::format(". The {} finished so far {} kept in {}; go on with\n  {}", counted(blocks, "block"),
                        blocks == 1 ? "is" : "are", options.output, command);
  return print_interrupted("study", kept);
}

int study(const StudyOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);
  std::error_code problem;
  const auto directory = std::filesystem::path(options.output).parent_path();
  if (!directory.empty()) std::filesystem::create_directories(directory, problem);
  const auto results = run_study(options);
  if (!results) return interrupted() ? say_interrupted(options) : print_error(results.error());
  return finish(options, *results);
}

}  // namespace

void add_study(CLI::App& app, Action& chosen) {
  CLI::App* verb = app.add_subcommand("study", "train with and without sealing, and report what it costs");
  verb->footer(kFooter);
  const auto o = std::make_shared<StudyOptions>();
  o->output = kDefaultOutput;
  verb->add_option("--preset", o->preset, "laptop or paper (laptop)")
      ->check(CLI::IsMember({"laptop", "paper"}));
  verb->add_option("--ranks", o->ranks, "ranks, each on its share of the cores (2)")->check(CLI::Range(2, 8));
  verb->add_option("--blocks", o->blocks, "blocks of the final stage (10); fewer than 5 give a preview")
      ->check(CLI::Range(1, 1000));
  verb->add_option("--iterations", o->iterations, "iterations of a case in a block (10)")
      ->check(CLI::Range(1, 1000));
  verb->add_option("--only", o->only, "one model: resnet or gpt2");
  verb->add_option("--budget", o->budget_s, "begin no block after this many seconds");
  verb->add_option("--resume", o->resume, "go on with the blocks of an earlier results file");
  verb->add_option("--seed", o->seed, "draws the order of the cases (1)");
  verb->add_option("-o,--output", o->output, "results file; reports go beside it (out/results.json)");
  verb->add_option("--python", o->python,
                   "interpreter with PyTorch (the one beside this program, .venv's, python3)");
  verb->add_option("--timeout", o->timeout_s, "seconds for one case (300)");
  verb->add_flag("!--no-pin", o->pin, "do not pin ranks to cores");
  verb->add_flag("--quiet", o->quiet, "no progress");
  verb->callback([o, &chosen] { chosen = [o] { return study(*o); }; });
}

}  // namespace sealring::cli
