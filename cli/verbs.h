// The verbs of `sealring`: one file each, which parses, calls the library and prints.
//
// A verb registers its options with the parser and, when it is chosen, leaves an action that main() runs
// after the whole command line was accepted. An action gives the process's exit status: 0 done, 1 an Error
// was printed, 2 wrong usage, 3 noisier than --max-mad allows, 128 + signal interrupted.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "sealring/base/error.h"

namespace sealring::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoise = 3;

using Action = std::function<int()>;

void add_keygen(CLI::App& app, Action& chosen);
void add_explain(CLI::App& app, Action& chosen);
void add_doctor(CLI::App& app, Action& chosen);
void add_bench(CLI::App& app, Action& chosen);
void add_study(CLI::App& app, Action& chosen);
void add_report(CLI::App& app, Action& chosen);

/// Prints Error::message() to standard error; gives kExitError.
int print_error(const Error& error);
/// Prints "sealring VERB: what" and a pointer to its help; gives kExitUsage.
int print_usage(const std::string& verb, const std::string& what);

/// "sealring VERB: interrupted" and `what` on standard error; gives 128 + the signal, as shells do.
int print_interrupted(const std::string& verb, const std::string& what);

}  // namespace sealring::cli
