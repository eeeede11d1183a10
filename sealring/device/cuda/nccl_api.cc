#include "sealring/device/cuda/nccl_api.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <sstream>

namespace sealring::cuda {
namespace {

constexpr const char* kStage = "device.nccl";
constexpr const char* kSoname = "libnccl.so.2";

/// What dlopen gives; a library that is used is never closed.
struct Library {
  void* handle = nullptr;
  ~Library() {
    if (handle != nullptr) ::dlclose(handle);
  }
};

template <class Function>
bool find(void* library, const char* symbol, Function& out) {
  out = reinterpret_cast<Function>(::dlsym(library, symbol));
  return out != nullptr;
}

/// The name of a function that is missing; null: none is.
const char* fill(NcclApi& api, void* library) {
  const char* missing = nullptr;
  const auto need = [&](const char* symbol, auto& out) {
    if (!find(library, symbol, out) && missing == nullptr) missing = symbol;
  };
  need("ncclGetErrorString", api.error_string);
  need("ncclGetUniqueId", api.get_unique_id);
  need("ncclCommInitRankConfig", api.comm_init);
  need("ncclCommGetAsyncError", api.async_error);
  need("ncclCommAbort", api.comm_abort);
  need("ncclCommDestroy", api.comm_destroy);
  need("ncclGroupStart", api.group_start);
  need("ncclGroupEnd", api.group_end);
  need("ncclSend", api.send);
  need("ncclRecv", api.recv);
  need("ncclAllReduce", api.all_reduce);
  need("ncclReduceScatter", api.reduce_scatter);
  need("ncclAllGather", api.all_gather);
  need("ncclBroadcast", api.broadcast);
  find(library, "ncclMemAlloc", api.mem_alloc);
  find(library, "ncclMemFree", api.mem_free);
  find(library, "ncclCommWindowRegister", api.window_register);
  find(library, "ncclCommWindowDeregister", api.window_deregister);
  return missing;
}

/// What is loaded already, without loading it a second time; or from its file.
void* open_mapped(const std::string& path) {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
  if (void* const found = ::dlopen(path.c_str(), kFlags | RTLD_NOLOAD)) return found;
  if (void* const found = ::dlopen(kSoname, kFlags | RTLD_NOLOAD)) return found;
  return ::dlopen(path.c_str(), kFlags);
}

tl::unexpected<Error> not_usable(Code code, std::string what, std::string next) {
  return fail(code, kStage, std::move(what), std::move(next));
}

}  // namespace

std::string nccl_version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::vector<std::string> mapped_nccl(std::string_view maps) {
  std::vector<std::string> paths, files;
  std::istringstream lines{std::string(maps)};
  for (std::string line; std::getline(lines, line);) {
    // address permissions offset device inode path
    std::istringstream fields(line);
    std::string address, permissions, offset, device, inode, path;
    if (!(fields >> address >> permissions >> offset >> device >> inode)) continue;
    std::getline(fields >> std::ws, path);
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos || path.compare(slash + 1, 10, "libnccl.so") != 0) continue;
    const std::string file = device + " " + inode;
    if (std::ranges::find(files, file) != files.end()) continue;
    files.push_back(file);
    paths.push_back(path);
  }
  return paths;
}

Result<NcclApi> open_nccl(std::span<const std::string> mapped, const std::string& otherwise) {
  if (mapped.size() > 1)
    return not_usable(Code::version_mismatch,
                      "this process has loaded two NCCL libraries, " + mapped[0] + " and " + mapped[1],
                      "import torch first, and remove the other one from LD_LIBRARY_PATH or LD_PRELOAD");
  Library library;
  library.handle =
      mapped.empty() ? ::dlopen(otherwise.c_str(), RTLD_NOW | RTLD_LOCAL) : open_mapped(mapped[0]);
  if (library.handle == nullptr) {
    const char* const why = ::dlerror();
    return not_usable(Code::unsupported,
                      std::string("NCCL could not be loaded: ") + (why != nullptr ? why : "no reason given"),
                      "install NCCL 2.18 or later, or use ipc windows on one host");
  }
  NcclApi api;
  if (!find(library.handle, "ncclGetVersion", api.get_version) ||
      api.get_version(&api.version) != NcclStatus::success)
    return not_usable(Code::unsupported, "the library that was found as NCCL does not tell its version",
                      "look at what " + (mapped.empty() ? otherwise : mapped[0]) + " is");
  Dl_info where{};
  api.path = ::dladdr(reinterpret_cast<void*>(api.get_version), &where) != 0 && where.dli_fname != nullptr
                 ? where.dli_fname
                 : otherwise;
  if (api.version < static_cast<int>(NcclConfig::kVersion)) {
    auto out = not_usable(Code::version_mismatch, "NCCL is too old (" + api.path + ")",
                          "install NCCL 2.18 or later");
    out.value().expected = "2.18.0";
    out.value().got = nccl_version_text(api.version);
    return out;
  }
  if (const char* const missing = fill(api, library.handle))
    return not_usable(Code::unsupported,
                      api.path + " (NCCL " + nccl_version_text(api.version) + ") has no " + missing,
                      "install NCCL 2.18 or later");
  library.handle = nullptr;
  return api;
}

Result<const NcclApi*> nccl_api() {
  static std::mutex mutex;
  static std::optional<NcclApi> found;
  const std::lock_guard lock(mutex);
  if (!found) {
    std::ifstream maps("/proc/self/maps");
    const std::string text((std::istreambuf_iterator<char>(maps)), std::istreambuf_iterator<char>());
    SR_TRY(found, open_nccl(mapped_nccl(text)));
  }
  return &*found;
}

Result<void> check_nccl_environment() {
  const char* const multicast = std::getenv("NCCL_NVLS_ENABLE");
  if (multicast == nullptr || std::string_view(multicast) != "0")
    return not_usable(Code::environment,
                      "NCCL would set up multicast, which sealring never uses: NCCL_NVLS_ENABLE is not 0",
                      "set NCCL_NVLS_ENABLE=0 before the program starts");
  const char* const blocking = std::getenv("NCCL_COMM_BLOCKING");
  if (blocking != nullptr && std::string_view(blocking) != "0")
    return not_usable(Code::environment, "NCCL_COMM_BLOCKING would make NCCL wait without a deadline",
                      "unset NCCL_COMM_BLOCKING");
  return {};
}

Result<void> nccl_checked(const NcclApi& api, NcclStatus status, const char* doing) {
  if (status == NcclStatus::success || status == NcclStatus::in_progress) return {};
  const char* const text = api.error_string(status);
  const std::string what = std::string("NCCL: ") + doing + ": " + (text != nullptr ? text : "no text") +
                           " (" + std::to_string(static_cast<int>(status)) + ")";
  const std::string next = "run again with NCCL_DEBUG=WARN to read NCCL's own message";
  return not_usable(status == NcclStatus::remote_error ? Code::peer_lost : Code::cuda, what, next);
}

}  // namespace sealring::cuda
