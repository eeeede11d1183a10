#include "sealring/study/machine.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "sealring/study/process.h"

namespace sealring {
namespace {

constexpr const char* kCryptoFeatures[] = {"aes",     "vaes",   "pclmulqdq", "vpclmulqdq", "avx2",
                                           "avx512f", "sha_ni", "pmull",     "sha2"};

/// The first value of a "name : value" line of /proc/cpuinfo.
std::string cpuinfo(const std::string& name) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, name.size(), name) != 0) continue;
    const auto colon = line.find(':');
    if (colon == std::string::npos || line.find_first_not_of(" \t", name.size()) != colon) continue;
    return colon + 2 <= line.size() ? line.substr(colon + 2) : std::string();
  }
  return {};
}

/// OpenSSL stays in crypto/ and device/cpu; for the record only the version of the library in this process is
/// asked.
std::string openssl_version() {
  using Version = const char* (*)(int);
  const auto version = reinterpret_cast<Version>(dlsym(RTLD_DEFAULT, "OpenSSL_version"));
  return version == nullptr ? std::string() : version(0);
}

void read_topology(Machine& machine) {
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return;
  if (hwloc_topology_load(topology) == 0) {
    const auto count = [&](hwloc_obj_type_t type) {
      return static_cast<std::uint32_t>(std::max(0, hwloc_get_nbobjs_by_type(topology, type)));
    };
    machine.packages = count(HWLOC_OBJ_PACKAGE);
    machine.cores = count(HWLOC_OBJ_CORE);
    machine.threads = count(HWLOC_OBJ_PU);
    if (const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, HWLOC_OBJ_L3CACHE, 0); cache != nullptr) {
      machine.l3_bytes = cache->attr->cache.size;
    }
  }
  hwloc_topology_destroy(topology);
}

std::vector<std::string> find_gpus() {
  std::vector<std::string> out;
  std::error_code problem;
  for (std::filesystem::directory_iterator at("/proc/driver/nvidia/gpus", problem), end;
       !problem && at != end; at.increment(problem)) {
    std::ifstream in(at->path() / "information");
    std::string name = "NVIDIA GPU";
    for (std::string line; std::getline(in, line);) {
      if (line.rfind("Model:", 0) == 0) name = line.substr(line.find_first_not_of(" \t", 6));
    }
    out.push_back(name);
  }
  return out;
}

std::string confidential_guest() {
  for (const char* node : {"/dev/sev-guest", "/dev/tdx_guest"}) {
    if (access(node, F_OK) == 0) return fmt::format("confidential guest ({})", node);
  }
  return "CC off";
}

std::uint64_t status_kib(const char* name) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(name, 0) == 0) return std::strtoull(line.c_str() + std::strlen(name) + 1, nullptr, 10);
  }
  return 0;
}

}  // namespace

Machine read_machine() {
  Machine machine;
  machine.cpu = cpuinfo("model name");
  utsname names{};
  if (uname(&names) == 0) {
    machine.architecture = names.machine;
    machine.kernel = fmt::format("{} {}", names.sysname, names.release);
  }
  read_topology(machine);
  machine.memory_bytes =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  machine.usable_threads = static_cast<std::uint32_t>(usable_cpus().size());
  std::istringstream flags(cpuinfo("flags") + " " + cpuinfo("Features"));
  for (std::string flag; flags >> flag;) {
    const auto known = std::find(std::begin(kCryptoFeatures), std::end(kCryptoFeatures), flag);
    if (known != std::end(kCryptoFeatures)) machine.crypto_features.push_back(flag);
    if (flag == "hypervisor") machine.virtualization = "hypervisor";
  }
  machine.openssl = openssl_version();
  machine.gpus = find_gpus();
  machine.cc = confidential_guest();
  double load = 0;
  if (getloadavg(&load, 1) == 1) machine.load_before = load;
  return machine;
}

std::string describe(const Machine& machine) {
  std::string out =
      fmt::format("{}, {} of {} logical CPUs usable", machine.cpu.empty() ? "unknown CPU" : machine.cpu,
                  machine.usable_threads, machine.threads);
  if (machine.virtualization == "hypervisor") out += ", virtual machine";
  out +=
      machine.gpus.empty() ? ", no GPU" : fmt::format(", {} x {}", machine.gpus.size(), machine.gpus.front());
  return out + ", " + machine.cc;
}

std::vector<unsigned> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<unsigned> out;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) out.push_back(cpu);
  }
  return out;
}

std::vector<unsigned> cpus_of_rank(const std::vector<unsigned>& cpus, unsigned rank, unsigned ranks) {
  SR_CHECK(!cpus.empty() && rank < ranks, "cpus", cpus.size(), "rank", rank, "ranks", ranks);
  const std::size_t each = cpus.size() / ranks;
  if (each == 0) return {cpus[rank % cpus.size()]};
  const auto first = cpus.begin() + static_cast<std::ptrdiff_t>(each * rank);
  return {first, first + static_cast<std::ptrdiff_t>(each)};
}

Result<void> pin_process(const std::vector<unsigned>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const unsigned cpu : cpus) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) == 0) return {};
  return fail(Code::invalid_argument, "study.pin",
              fmt::format("cannot pin to CPUs {}: {}", fmt::join(cpus, ","), std::strerror(errno)),
              "leave --pin out, or run where these CPUs may be used");
}

std::uint64_t process_cpu_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& t) {
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000ull +
           static_cast<std::uint64_t>(t.tv_usec) * 1000ull;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

std::uint64_t resident_bytes() { return status_kib("VmRSS") * 1024; }
std::uint64_t peak_resident_bytes() { return status_kib("VmHWM") * 1024; }
void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string commit_of(const std::string& directory) {
  const auto commit = output_of({"git", "-C", directory, "rev-parse", "--short=12", "HEAD"});
  if (!commit) return {};
  const auto changes = output_of({"git", "-C", directory, "status", "--porcelain", "--untracked-files=no"});
  std::string out = commit->substr(0, commit->find('\n'));
  return changes && !changes->empty() ? out + "+" : out;
}

}  // namespace sealring
