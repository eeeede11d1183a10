// NCCL's functions, found at run time: nothing links libnccl and no header of it is needed. Types and numbers
// are those of NCCL's binary interface from 2.18 on.
//
// A process must have one libnccl: PyTorch's, where torch was imported first, else the system's.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sealring/base/result.h"

namespace sealring::cuda {

enum class NcclStatus : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
};
enum class NcclType : int {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  uint32 = 3,
  int64 = 4,
  uint64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,
};
enum class NcclOp : int { sum = 0, prod = 1, max = 2, min = 3, avg = 4 };

/// Passed by value in NCCL's interface.
struct NcclUniqueId {
  std::array<char, 128> bytes{};
};

/// What a communicator is made with, as far as 2.18 knows it: a later NCCL takes its own defaults for what
/// was added, since `version` says that it is not there.
struct NcclConfig {
  static constexpr int kUndefined = INT_MIN;
  static constexpr unsigned kVersion = 21800;

  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xCAFEBEEF;
  unsigned version = kVersion;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};
static_assert(sizeof(NcclConfig) == 48 && offsetof(NcclConfig, blocking) == 16 &&
              offsetof(NcclConfig, net_name) == 32);

// Opaque.
using NcclCommHandle = void*;
using NcclWindowHandle = void*;
/// A cudaStream_t.
using NcclStream = void*;

/// Each member is NCCL's function of the name in its comment.
struct NcclApi {
  NcclStatus (*get_version)(int* version) = nullptr;         // ncclGetVersion
  const char* (*error_string)(NcclStatus status) = nullptr;  // ncclGetErrorString
  NcclStatus (*get_unique_id)(NcclUniqueId* id) = nullptr;   // ncclGetUniqueId
  NcclStatus (*comm_init)(NcclCommHandle* comm, int ranks, NcclUniqueId id, int rank,
                          NcclConfig* config) = nullptr;                         // ncclCommInitRankConfig
  NcclStatus (*async_error)(NcclCommHandle comm, NcclStatus* status) = nullptr;  // ncclCommGetAsyncError
  NcclStatus (*comm_abort)(NcclCommHandle comm) = nullptr;                       // ncclCommAbort
  NcclStatus (*comm_destroy)(NcclCommHandle comm) = nullptr;                     // ncclCommDestroy
  NcclStatus (*group_start)() = nullptr;                                         // ncclGroupStart
  NcclStatus (*group_end)() = nullptr;                                           // ncclGroupEnd
  NcclStatus (*send)(const void* data, std::size_t count, NcclType type, int peer, NcclCommHandle comm,
                     NcclStream stream) = nullptr;  // ncclSend
  NcclStatus (*recv)(void* data, std::size_t count, NcclType type, int peer, NcclCommHandle comm,
                     NcclStream stream) = nullptr;  // ncclRecv
  NcclStatus (*all_reduce)(const void* in, void* out, std::size_t count, NcclType type, NcclOp op,
                           NcclCommHandle comm, NcclStream stream) = nullptr;  // ncclAllReduce
  NcclStatus (*reduce_scatter)(const void* in, void* out, std::size_t out_count, NcclType type, NcclOp op,
                               NcclCommHandle comm, NcclStream stream) = nullptr;  // ncclReduceScatter
  NcclStatus (*all_gather)(const void* in, void* out, std::size_t in_count, NcclType type,
                           NcclCommHandle comm, NcclStream stream) = nullptr;  // ncclAllGather
  NcclStatus (*broadcast)(const void* in, void* out, std::size_t count, NcclType type, int root,
                          NcclCommHandle comm, NcclStream stream) = nullptr;  // ncclBroadcast
  // Null where this NCCL has none (2.19 for the first two, 2.27 for the others):
  NcclStatus (*mem_alloc)(void** data, std::size_t bytes) = nullptr;  // ncclMemAlloc
  NcclStatus (*mem_free)(void* data) = nullptr;                       // ncclMemFree
  NcclStatus (*window_register)(NcclCommHandle comm, void* data, std::size_t bytes, NcclWindowHandle* window,
                                int flags) = nullptr;  // ncclCommWindowRegister
  NcclStatus (*window_deregister)(NcclCommHandle comm,
                                  NcclWindowHandle window) = nullptr;  // ncclCommWindowDeregister

  int version = 0;   ///< as NCCL counts: 22809 is 2.28.9
  std::string path;  ///< of the library
};

/// "2.28.9".
std::string nccl_version_text(int version);

/// The files named libnccl.so* that a text as /proc/self/maps lists, each file once (told apart by device and
/// inode), as the kernel writes their paths.
std::vector<std::string> mapped_nccl(std::string_view maps);

/// Opens the one of `mapped`, or the system's `otherwise` when there is none; never closed again. Errors:
/// VERSION_MISMATCH (two are mapped; or older than 2.18), UNSUPPORTED (none is found, or it lacks a
/// function).
Result<NcclApi> open_nccl(std::span<const std::string> mapped, const std::string& otherwise = "libnccl.so.2");

/// This process's; found by the first call that finds one. Thread-safe. Errors: as open_nccl.
Result<const NcclApi*> nccl_api();

/// NCCL must neither use multicast nor block: NCCL_NVLS_ENABLE must be 0 in the environment, and
/// NCCL_COMM_BLOCKING not 1, before a communicator is made. Errors: ENVIRONMENT.
Result<void> check_nccl_environment();

/// An error where `status` is one; in_progress is none. Errors: PEER_LOST, CUDA.
Result<void> nccl_checked(const NcclApi& api, NcclStatus status, const char* doing);

}  // namespace sealring::cuda
