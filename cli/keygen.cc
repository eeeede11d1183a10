#include <fmt/format.h>

#include <cstdio>

#include "cli/verbs.h"
#include "sealring/session/identity.h"

namespace sealring::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  sealring keygen job.key
  scp -p job.key other-host:                         every host of the job needs the same file
  SEALRING_JOB_KEY_FILE=job.key torchrun ... train.py

The file is created with mode 0600 and never overwrites another. Every rank logs the fingerprint
printed here, so two hosts with different keys are seen at once. Who holds this file can join the
job and read its messages: it goes neither into a container image nor into a repository, nor onto a
command line.)";

int keygen(const std::string& path) {
  const JobKey key = JobKey::generate();
  if (const auto written = key.write(path); !written) return print_error(written.error());
  fmt::print("{}  fingerprint {}\n", path, key.fingerprint());
  return kExitDone;
}

}  // namespace

void add_keygen(CLI::App& app, Action& chosen) {
  CLI::App* verb =
      app.add_subcommand("keygen", "make the key file by which the ranks of a job know one another");
  verb->footer(kFooter);
  const auto path = std::make_shared<std::string>();
  verb->add_option("FILE", *path, "the file to create")->required();
  verb->callback([path, &chosen] { chosen = [path] { return keygen(*path); }; });
}

}  // namespace sealring::cli
