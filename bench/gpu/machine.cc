#include "bench/gpu/machine.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <ctime>

namespace sealring::bench {
namespace {

// NVML's numbers and structs, written down here so that its header is not needed to build.
constexpr int kSuccess = 0;
constexpr unsigned kClockSm = 1, kClockMemory = 2;
struct ConfComputeState {
  unsigned environment, feature, dev_tools;
};
struct ConfComputeSettings {  // version 1
  unsigned version, environment, feature, dev_tools, multi_gpu;
};
constexpr unsigned kSettingsVersion = sizeof(ConfComputeSettings) | (1u << 24);

class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    const auto init = call<int()>("nvmlInit_v2");
    ready_ = init != nullptr && init() == kSuccess;
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (const auto end = call<int()>("nvmlShutdown"); ready_ && end != nullptr) end();
    if (library_ != nullptr) dlclose(library_);
  }

  void fill(Machine& out, const char* bus_id) const {
    if (!ready_) return;
    out.confidential.nvml = true;
    char version[96] = {};
    const auto driver = call<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
    if (driver != nullptr && driver(version, sizeof version - 1) == kSuccess) out.driver = version;
    void* device = nullptr;
    const auto find = call<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    if (find != nullptr && find(bus_id, &device) == kSuccess) {
      out.clock_now_mhz = clock(device, kClockSm);
      out.memory_clock_now_mhz = clock(device, kClockMemory);
    }
    ConfComputeState state{};
    const auto ask_state = call<int(ConfComputeState*)>("nvmlSystemGetConfComputeState");
    if (ask_state != nullptr && ask_state(&state) == kSuccess) out.confidential.feature = state.feature;
    ConfComputeSettings settings{kSettingsVersion, 0, 0, 0, 0};
    const auto ask_settings = call<int(ConfComputeSettings*)>("nvmlSystemGetConfComputeSettings");
    if (ask_settings != nullptr && ask_settings(&settings) == kSuccess)
      out.confidential.multi_gpu = settings.multi_gpu;
  }

 private:
  template <class Function>
  Function* call(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library_, name));
  }
  std::optional<unsigned> clock(void* device, unsigned which) const {
    unsigned mhz = 0;
    const auto ask = call<int(void*, unsigned, unsigned*)>("nvmlDeviceGetClockInfo");
    if (ask == nullptr || ask(device, which, &mhz) != kSuccess) return {};
    return mhz;
  }

  void* library_;
  bool ready_ = false;
};

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

Machine machine_now(const std::string& commit) {
  Machine out;
  if (!commit.empty()) out.commit = commit;
  out.date = utc_now();
  out.built_for = SEALRING_CUDA_ARCHITECTURES;
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess) {
    out.gpu = properties.name;
    out.architecture = "sm_" + std::to_string(properties.major) + std::to_string(properties.minor);
    out.multiprocessors = properties.multiProcessorCount;
    out.memory_bytes = properties.totalGlobalMem;
  }
  int value = 0;
  if (cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, 0) == cudaSuccess)
    out.clock_max_mhz = value * 1e-3;
  if (cudaDriverGetVersion(&value) == cudaSuccess) out.driver_cuda = version_text(value);
  if (cudaRuntimeGetVersion(&value) == cudaSuccess) out.runtime_cuda = version_text(value);
  char bus_id[32] = {};
  if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, 0) == cudaSuccess) Nvml().fill(out, bus_id);
  return out;
}

}  // namespace sealring::bench
