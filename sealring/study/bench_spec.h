// BenchSpec: everything that one run of `sealring bench` measures; given whole to every rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sealring/base/result.h"
#include "sealring/base/types.h"
#include "sealring/device/nccl_baseline.h"

namespace sealring {

/// One of the things that are compared: a suite with an algorithm, PyTorch's Gloo (all_reduce on CPUs only),
/// or NCCL (on GPUs only).
struct BenchCase {
  bool gloo = false;
  std::optional<NcclVariant> nccl = std::nullopt;
  Suite suite = Suite::aes_256_gcm;
  std::optional<Algorithm> algorithm;  ///< nullopt: what the library chooses
  unsigned columns = 0;  ///< thread blocks of one operation on a GPU at most; 0: the library's choice
  /// Runs the library's own code.
  bool sealring() const { return !gloo && !nccl; }
  friend bool operator==(const BenchCase&, const BenchCase&) = default;
};

struct BenchSpec {
  Op op = Op::all_reduce;  ///< send: every rank sends to its right and receives from its left neighbour
  std::uint16_t ranks = 2;
  std::uint16_t node_ranks = 0;  ///< as CommConfig
  std::vector<std::uint64_t> sizes_bytes;
  unsigned iterations = 20, warmup = 5;
  bool check = true;
  std::vector<BenchCase> cases;
  DType dtype = DType::f32;
  RedOp redop = RedOp::sum;
  Rank root = 0;
  bool loopback = false;  ///< ranks as threads of one process instead of processes over tcp
  bool pin = false;
  bool cuda = false;  ///< tensors lie on GPUs
  unsigned ranks_per_gpu =
      0;               ///< ranks as threads of one process that share GPUs; 0: a process and a GPU each
  bool graph = false;  ///< on GPUs: the operations of a sample are one replayed graph
  std::uint64_t seed = 1;
  std::uint32_t segment_bytes = 256 * 1024;
  unsigned lanes = 1, workers = 0;
  double timeout_s = 120;
  double mark_mad_percent = 5;            ///< a row above it is marked "*"
  std::optional<double> max_mad_percent;  ///< a row above it makes the run exit 3
  std::uint32_t target_blocks = 0;  ///< above 0: the speed targets are measured instead, in so many blocks
  std::string json_path;
  std::string python;                ///< interpreter of the Gloo workers
  std::string python_path;           ///< PYTHONPATH for them
  std::uint32_t usable_threads = 0;  ///< CPUs of the launcher, before ranks were pinned; 0: not known
  std::string commit;                ///< of the measured tree, where known

  std::string to_json() const;
  /// What a record keeps: the same without the paths of the machine.
  std::string to_record() const;
  /// Errors: MALFORMED.
  static Result<BenchSpec> from_json(const std::string& text);
};

/// "aes-256-gcm", "chacha20-poly1305:66" (columns), "gloo", "nccl-windows"; "ring", or "auto" resolved for
/// that size.
std::string suite_name(const BenchCase& bench_case);
/// "nccl", "nccl-windows", "nccl-blocks".
std::optional<NcclVariant> parse_nccl(const std::string& text);
std::string algorithm_name(const BenchSpec& spec, const BenchCase& bench_case, std::uint64_t size_bytes);

/// The numbers of one size: nccl-tests' meaning of "size" and "count".
///
/// Size is what the larger buffer of a rank holds. Count is elements of one rank's piece where the operation
/// cuts the tensor (all_gather, reduce_scatter, all_to_all), else of the tensor. Sizes are rounded down to
/// whole elements (times the ranks where it is cut), at least one.
struct BenchSize {
  std::uint64_t size_bytes = 0, count = 0, in_elements = 0, out_elements = 0;
  bool has_in_place = false, has_out_of_place = false;
};
BenchSize bench_size(const BenchSpec& spec, std::uint64_t size_bytes);

/// busbw / algbw: what a rank's link carries for each byte of size, as nccl-tests' doc/PERFORMANCE.md derives
/// it.
double bus_factor(Op op, std::uint16_t ranks);

/// "1K", "64M", "2G", "1024", "1.5M": bytes, powers of 1024. Errors: INVALID_ARGUMENT.
Result<std::uint64_t> parse_bytes(const std::string& text);
/// "1K", "64M", "1000": the shortest exact form.
std::string format_bytes(std::uint64_t bytes);

}  // namespace sealring
