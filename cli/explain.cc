#include <fmt/format.h>

#include <cstdio>

#include "cli/verbs.h"
#include "sealring/base/suggest.h"

namespace sealring::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  sealring explain 602            by number
  sealring explain SR-E602        as it stands in the message (E602 will do)
  sealring explain DATA_TAG       by name
  sealring explain --all          every code in a line)";

/// Where in the life of a job codes of this range come from.
std::string_view origin_of(Code code) {
  switch (static_cast<unsigned>(code) / 100) {
    case 0:
      return "";
    case 1:
      return "this process: its arguments, environment, files, ports or memory";
    case 2:
      return "the start of a session: the ranks' first messages; no key existed yet";
    case 3:
      return "the start of a session: a CPU's attestation evidence; no key was released";
    case 4:
      return "the start of a session: a GPU's attestation evidence; no key was released";
    case 5:
      return "the start of a session: proof of the keys between two ranks; no key was released";
    case 6:
      return "the running session: data or control; the session is over on every rank.\n"
             "  The output of the operation that failed is poisoned as a whole, so that nobody goes on with "
             "it:\n"
             "  NaN where it holds floats, all ones where it holds integers, true where it holds bools";
    case 7:
      return "the running session: refused locally before anything was sealed";
    default:
      return "";
  }
}

void print_long(const CodeInfo& info) {
  fmt::print("SR-E{}  {}\n\n  {}\n", static_cast<unsigned>(info.code), info.name, info.meaning);
  if (!info.hint.empty()) fmt::print("\n  What to do: {}.\n", info.hint);
  const std::string_view origin = origin_of(info.code);
  if (!origin.empty()) fmt::print("  Comes from: {}.\n", origin);
}

int explain(const std::string& text, bool all) {
  if (all) {
    for (const CodeInfo& info : all_codes()) {
      fmt::print("{:>4}  {:<20} {}\n", static_cast<unsigned>(info.code), info.name, info.meaning);
    }
    return kExitDone;
  }
  if (text.empty()) return print_usage("explain", "give a code, or --all");
  if (const CodeInfo* info = find_code(text)) {
    print_long(*info);
    return kExitDone;
  }
  std::vector<std::string> names;
  for (const CodeInfo& info : all_codes()) names.emplace_back(info.name);
  std::string upper = text;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const std::string near = nearest_word(upper, names);
  return print_usage("explain",
                     fmt::format("there is no code \"{}\"{}", text,
                                 near.empty() ? "; --all lists them" : "; did you mean " + near + "?"));
}

}  // namespace

void add_explain(CLI::App& app, Action& chosen) {
  CLI::App* verb = app.add_subcommand("explain", "what an error code means and what to do about it");
  verb->footer(kFooter);
  const auto text = std::make_shared<std::string>();
  const auto all = std::make_shared<bool>(false);
  verb->add_option("CODE", *text, "602, SR-E602 or DATA_TAG");
  verb->add_flag("--all", *all, "list every code");
  verb->callback([text, all, &chosen] { chosen = [text, all] { return explain(*text, *all); }; });
}

}  // namespace sealring::cli
