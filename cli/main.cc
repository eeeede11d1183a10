// `sealring`: parse -> library -> print. Exceptions of the parser end here; the library throws none.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "cli/verbs.h"
#include "sealring/base/log.h"
#include "sealring/base/secret.h"
#include "sealring/base/suggest.h"
#include "sealring/collective/config.h"
#include "sealring/study/process.h"

namespace sealring::cli {
namespace {

constexpr const char* kFooter = R"(Start here:
  sealring doctor                         what this machine has, and what would be protected on it
  sealring keygen job.key                 the secret by which the ranks of a job know one another
  sealring bench all_reduce --ranks 2     what sealing costs, next to plain
  sealring study                          the same inside real PyTorch training
  sealring explain 602                    what an SR-E code means and what to do

`sealring VERB --help` has examples. Exit status: 0 done, 1 an error was printed, 2 wrong usage,
3 noisier than --max-mad allows, 130 interrupted by Ctrl-C.)";

/// Help in plain words: "--ranks N   ranks (2), 2 to 64" instead of the parser's "UINT:INT in [2 - 64]".
class PlainFormatter : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    const std::string name = CLI::Formatter::make_option_name(option, positional);
    return name.substr(0, name.find('{'));  // "--no-pin{false}"
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return {};
    const std::string type = option->get_type_name(), word = type.substr(0, type.find(':'));
    std::string out = word == "UINT" || word == "INT" ? " N" : word == "FLOAT" ? " NUMBER" : " " + word;
    if (option->get_expected_max() == CLI::detail::expected_max_vector_size) out += ",...";
    if (option->get_required()) out += " (required)";
    return out;
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string type = option->get_type_name();
    const auto open = type.find('['), middle = type.find(" - "), close = type.find(']');
    std::string out = option->get_description();
    if (open == std::string::npos || middle == std::string::npos || close == std::string::npos) return out;
    return out + fmt::format(", {} to {}", type.substr(open + 1, middle - open - 1),
                             type.substr(middle + 3, close - middle - 3));
  }
};

/// The words that the parser did not expect, with the nearest ones that it knows.
std::string suggestions(const CLI::App& app) {
  const CLI::App* verb = app.get_subcommands().empty() ? &app : app.get_subcommands().front();
  std::vector<std::string> known;
  for (const CLI::Option* option : verb->get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  if (verb == &app) {
    for (const CLI::App* each : app.get_subcommands({})) known.push_back(each->get_name());
  }
  std::string out;
  for (const std::string& extra : app.remaining(true)) {
    const std::string word = extra.substr(0, extra.find('='));
    const std::string near = nearest_word(word, known);
    if (!near.empty()) out += fmt::format("  {} is not known here; did you mean {}?\n", word, near);
  }
  return out;
}

int parse_problem(const CLI::App& app, const CLI::ParseError& problem) {
  if (problem.get_exit_code() == 0) return app.exit(problem);  // --help and --version
  const CLI::App* verb = app.get_subcommands().empty() ? nullptr : app.get_subcommands().front();
  const std::string name = verb == nullptr ? "sealring" : "sealring " + verb->get_name();
  std::string text = fmt::format("{}: {}\n", name, problem.what());
  text += suggestions(app);
  text += fmt::format("Run `{} --help` for what it takes.\n", name);
  std::fputs(text.c_str(), stderr);
  return kExitUsage;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Sealed collectives for distributed training: every message between ranks is encrypted and\n"
      "authenticated. This tool makes keys, measures what sealing costs and explains errors.",
      "sealring");
  app.footer(kFooter);
  app.set_version_flag("--version", "sealring 0.1.0");
  app.require_subcommand(1);
  app.formatter(std::make_shared<PlainFormatter>());
  app.get_formatter()->column_width(34);
  Action chosen;
  add_keygen(app, chosen);
  add_bench(app, chosen);
  add_study(app, chosen);
  add_report(app, chosen);
  add_doctor(app, chosen);
  add_explain(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return parse_problem(app, problem);
  }
  const auto environment = Environment::read();
  if (!environment) return print_error(environment.error());
  // The measuring verbs print tables: the library's own lines only when they were asked for.
  const bool asked = std::getenv("SEALRING_LOG") != nullptr;
  const std::string verb = app.get_subcommands().front()->get_name();
  const bool measures = verb.rfind("bench", 0) == 0 || verb == "study";
  log_setup(measures && !asked ? "off" : environment->log, -1);
  harden_process(environment->harden);
  return chosen ? chosen() : kExitUsage;
}

}  // namespace

int print_error(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message().c_str());
  return kExitError;
}

int print_interrupted(const std::string& verb, const std::string& what) {
  std::fprintf(stderr, "sealring %s: interrupted%s\n", verb.c_str(), what.c_str());
  return 128 + interrupt_signal();
}

int print_usage(const std::string& verb, const std::string& what) {
  std::fprintf(stderr, "sealring %s: %s\nRun `sealring %s --help` for what it takes.\n", verb.c_str(),
               what.c_str(), verb.c_str());
  return kExitUsage;
}

}  // namespace sealring::cli

int main(int argc, char** argv) {
  try {
    return sealring::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    sealring::Error error;
    error.code = sealring::Code::out_of_memory;
    return sealring::cli::print_error(error);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "sealring: unexpected: %s\n", problem.what());
    return sealring::cli::kExitError;
  }
}
