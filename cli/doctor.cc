#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdlib>

#include "cli/verbs.h"
#include "sealring/base/displayed.h"
#include "sealring/collective/config.h"
#include "sealring/session/identity.h"
#include "sealring/study/cipher_rate.h"
#include "sealring/study/deployment.h"
#include "sealring/study/machine.h"

namespace sealring::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  sealring doctor
  SEALRING_JOB_KEY_FILE=job.key sealring doctor      also checks the key file

It looks and measures a second; it changes nothing and sends nothing. Exit status 1 if something
that a job needs is configured wrongly.)";

void line(std::string_view name, const std::string& value) {
  fmt::print("  {:<22} {}\n", name, displayed(value));
}

std::string gib(std::uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1u << 30));
}

void print_machine(const Machine& machine) {
  fmt::print("Machine\n");
  line("CPU", fmt::format("{} ({})", machine.cpu, machine.architecture));
  line("cores", fmt::format("{} cores, {} logical CPUs, {} usable by this process", machine.cores,
                            machine.threads, machine.usable_threads));
  line("memory, L3 cache", fmt::format("{}, {} MiB", gib(machine.memory_bytes), machine.l3_bytes >> 20));
  const auto has = [&](std::string_view name) {
    for (const std::string& feature : machine.crypto_features) {
      if (feature == name) return true;
    }
    return false;
  };
  const bool aes = has("aes");
  line("AES instructions", !aes          ? "no: AES-GCM will be slow, consider chacha20-poly1305"
                           : has("vaes") ? "AES and VAES (several blocks an instruction)"
                                         : "AES, one block an instruction");
  line("carry-less multiply", has("vpclmulqdq")                  ? "VPCLMULQDQ"
                              : has("pclmulqdq") || has("pmull") ? "yes, one product an instruction"
                                                                 : "no");
  line("OpenSSL", machine.openssl);
  line("GPU",
       machine.gpus.empty() ? "none" : fmt::format("{} x {}", machine.gpus.size(), machine.gpus.front()));
  line("confidential computing", machine.cc);
  if (machine.virtualization == "hypervisor")
    line("", "this is a virtual machine: its host can read its memory");
  if (machine.load_before > 0.5) {
    line("load",
         fmt::format("{:.1f}: other programs are running, measurements will be noisy", machine.load_before));
  }
}

void print_rates() {
  fmt::print("\nOne core, measured just now, 256 KiB segments (payload rate)\n");
  for (const Suite suite : {Suite::aes_256_gcm, Suite::aes_128_gcm, Suite::chacha20_poly1305}) {
    const auto rate =
        measure_cipher_rate({.suite = suite, .total_bytes = 64u << 20, .least_ns = 150'000'000});
    line(to_string(suite),
         rate ? fmt::format("seal {:.2f} GB/s, open {:.2f} GB/s", rate->seal_gb_s, rate->open_gb_s)
              : rate.error().message());
  }
}

bool print_configuration(const Environment& environment) {
  bool good = true;
  fmt::print("\nConfiguration\n");
  if (environment.job_key_file.empty()) {
    line("job key", "none: `sealring keygen job.key`, then SEALRING_JOB_KEY_FILE=job.key on every rank");
  } else if (const auto key = JobKey::read(environment.job_key_file); key) {
    line("job key", fmt::format("{}, fingerprint {}", environment.job_key_file, key->fingerprint()));
  } else {
    line("job key", key.error().message());
    good = false;
  }
  const Suite suite = environment.suite.value_or(Suite::aes_256_gcm);
  line("suite", fmt::format("{}{}", to_string(suite), environment.suite ? "" : " (default)"));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    line("open files",
         fmt::format("{}{}", limit.rlim_cur, limit.rlim_cur < 1024 ? ": low for many ranks" : ""));
  }
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    line("locked memory",
         limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{} KiB", limit.rlim_cur / 1024));
  }
  return good;
}

void print_deployment(const Machine& machine) {
  const DeploymentGuess guess = deployment_of(machine);
  fmt::print("\nWhat would be protected here\n");
  line("deployment", std::string(guess.row->name));
  line("because", guess.why);
  line("path", std::string(guess.row->path));
  line("messages safe from", std::string(guess.row->protects));
  line("identity", "job key, not attested: it keeps out whoever does not hold the key,");
  line("", "not those who administer the machines");
  line("not protected",
       "memory, disks, checkpoints, logs; sizes and times of messages; a rank that is itself hostile");
  fmt::print("\nAll deployments (* this machine)\n");
  for (const Deployment& each : deployments()) {
    fmt::print("{} {}{}\n      path       {}\n      safe from  {}\n      note       {}\n",
               &each == guess.row ? "*" : " ", each.name, each.available ? "" : "  [not in this release]",
               each.path, each.protects, each.notes);
  }
}

int doctor() {
  const auto environment = Environment::read();
  if (!environment) return print_error(environment.error());
  const Machine machine = read_machine();
  print_machine(machine);
  print_rates();
  const bool good = print_configuration(*environment);
  print_deployment(machine);
  return good ? kExitDone : kExitError;
}

}  // namespace

void add_doctor(CLI::App& app, Action& chosen) {
  CLI::App* verb = app.add_subcommand("doctor", "what this machine has, and what would be protected on it");
  verb->footer(kFooter);
  verb->callback([&chosen] { chosen = doctor; });
}

}  // namespace sealring::cli
