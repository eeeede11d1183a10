// The machine that a number was measured on, and the cores that a rank is pinned to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sealring/base/result.h"

namespace sealring {

/// What stands beside every measured number. Read from the system; unknown texts are empty.
struct Machine {
  std::string cpu;                                     ///< model name
  std::string architecture;                            ///< "x86_64"
  std::string kernel;                                  ///< "Linux 6.1.0"
  std::uint32_t packages = 0, cores = 0, threads = 0;  ///< of the machine (hwloc)
  std::uint32_t usable_threads = 0;                    ///< that this process may run on
  std::uint64_t memory_bytes = 0, l3_bytes = 0;
  std::vector<std::string> crypto_features;  ///< of "aes vaes pclmulqdq vpclmulqdq avx2 avx512f sha_ni"
  std::string openssl;                       ///< version text of the library in use
  std::string virtualization;                ///< "hypervisor" where the CPU says that it is a guest's
  std::vector<std::string> gpus;
  std::string cc;          ///< "CC off", or the device node that shows a confidential guest
  double load_before = 0;  ///< one-minute load average when this was read
};

Machine read_machine();
/// "2 of 2 cores, Intel(R) Xeon(R) Processor, CC off": for the line below a table.
std::string describe(const Machine& machine);

/// The logical CPUs this process may use, ascending.
std::vector<unsigned> usable_cpus();
/// The CPUs of one of `ranks` processes that share `cpus` evenly: cpus/ranks each, at least one. With fewer
/// CPUs than ranks several ranks share one.
std::vector<unsigned> cpus_of_rank(const std::vector<unsigned>& cpus, unsigned rank, unsigned ranks);
/// Pins the calling process (its present and later threads made from this one). Errors: INVALID_ARGUMENT.
Result<void> pin_process(const std::vector<unsigned>& cpus);

/// User and system time of this process so far.
std::uint64_t process_cpu_ns();
/// Peak and present resident bytes of this process; reset_peak makes the peak start again from now.
std::uint64_t resident_bytes();
std::uint64_t peak_resident_bytes();
void reset_peak_resident();

/// "2026-11-29T15:04:05Z".
std::string utc_now();
/// The commit of the working tree at `directory`, with "+" if it has changes; empty if there is none or no
/// git.
std::string commit_of(const std::string& directory);

}  // namespace sealring
