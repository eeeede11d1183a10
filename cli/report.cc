#include "sealring/study/report.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/verbs.h"

namespace sealring::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  sealring report out/results.json            writes out/report.md and out/report.html
  sealring report results.json -o somewhere

A results file that was cut off or edited by hand is refused (RESULTS): every number of a report
must be one that was measured. The HTML needs Python with altair and vl-convert-python; the Markdown
needs nothing.)";

struct Options {
  std::string results, directory, python;
};

int report(const Options& options) {
  ::signal(SIGPIPE, SIG_IGN);
  const auto results = load_results(options.results);
  if (!results) return print_error(results.error());
  std::string directory = options.directory;
  if (directory.empty()) directory = std::filesystem::path(options.results).parent_path().string();
  if (directory.empty()) directory = ".";
  std::error_code problem;
  std::filesystem::create_directories(directory, problem);
  const auto written = write_report(*results, directory, options.python);
  if (!written) return print_error(written.error());
  const auto final_block = [](const BlockRecord& block) { return block.stage == 2; };
  if (std::none_of(results->blocks.begin(), results->blocks.end(), final_block)) {
    fmt::print(stderr,
               "{} holds no finished block of the final stage: the report has no result yet.\n"
               "Go on with: sealring study --resume {} -o {}\n",
               options.results, options.results, options.results);
  }
  fmt::print("{}\n", written->markdown_path);
  if (!written->html_path.empty()) fmt::print("{}\n", written->html_path);
  if (!written->html_problem.empty()) fmt::print(stderr, "no HTML: {}\n", written->html_problem);
  return kExitDone;
}

}  // namespace

void add_report(CLI::App& app, Action& chosen) {
  CLI::App* verb =
      app.add_subcommand("report", "write the report of a study's results, as Markdown and HTML");
  verb->footer(kFooter);
  const auto options = std::make_shared<Options>();
  verb->add_option("RESULTS", options->results, "results.json as `sealring study` wrote it")->required();
  verb->add_option("-o,--output", options->directory, "folder to write to (that of the results)");
  verb->add_option("--python", options->python, "interpreter for the HTML");
  verb->callback([options, &chosen] { chosen = [options] { return report(*options); }; });
}

}  // namespace sealring::cli
