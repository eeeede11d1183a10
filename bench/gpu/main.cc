// What the CUDA kernels reach: payload over time by CUDA events, tags, per-segment keys and AAD included.
//
//   gpu_bench [--out DIR] [--quick] [--suite NAME] [--part NAME] [--commit ID]
//
// A row is one kernel of the list at one segment size: a line on standard error while it runs, and all its
// samples in DIR/gpu-bench.json, beside the bytes that must cross memory and the operations that must be done
// (counted by hand, see docs/kernel-notes.md). The fused rows are whole
// collectives of two ranks that share the device. The last thing on the terminal is a short table.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/gpu/machine.h"
#include "bench/gpu/record.h"
#include "sealring/device/cuda/fused.h"
#include "sealring/device/cuda/fused_window.h"
#include "sealring/device/cuda/launch.h"
#include "sealring/device/cuda/make_job.h"

namespace sealring::cuda {
namespace {

using bench::gbps;
using bench::Row;

constexpr std::uint64_t kLarge = 1ull << 30;
constexpr const char* kGraph = "graph of 100";

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
void must(const Result<void>& result) {
  if (result) return;
  std::fprintf(stderr, "%s\n", result.error().message().c_str());
  std::exit(1);
}

struct Options {
  std::size_t shift = 0;
  unsigned columns = 0;
  int graph = 0;  ///< launches in one graph; 0: none
  std::string note = {};
};

class Bench {
 public:
  explicit Bench(bool quick) : quick_(quick) {
    must(prepare_device(0));
    must(cudaStreamCreate(&stream_), "stream");
    must(cudaEventCreate(&begin_), "event");
    must(cudaEventCreate(&end_), "event");
    for (std::byte** memory : {&tensor_, &out_}) must(cudaMalloc(memory, kLarge + 64), "memory");
    must(cudaMalloc(&wire_, kLarge + kLarge / 1024 * 16 + 4096), "memory");
    std::vector<std::uint64_t> noise(kLarge / 8);
    std::mt19937_64 random(1);
    std::uint64_t x = random();
    for (std::uint64_t& word : noise) word = x = x * 6364136223846793005ull + 1442695040888963407ull;
    for (std::byte* memory : {tensor_, out_})
      must(cudaMemcpy(memory, noise.data(), kLarge, cudaMemcpyHostToDevice), "fill");
  }

  // Microseconds of `work`, each time between two events.
  std::vector<double> samples(const std::function<void()>& work) {
    const int runs = quick_ ? 5 : 21;
    for (int i = 0; i < 3; ++i) work();
    std::vector<double> times;
    for (int i = 0; i < runs; ++i) {
      must(cudaEventRecord(begin_, stream_), "event");
      work();
      must(cudaEventRecord(end_, stream_), "event");
      must(cudaEventSynchronize(end_), "event");
      float milliseconds = 0;
      must(cudaEventElapsedTime(&milliseconds, begin_, end_), "event");
      times.push_back(1e3 * static_cast<double>(milliseconds));
    }
    return times;
  }

  void copy() {
    Row row;
    row.name = "device copy";
    row.payload_bytes = kLarge;
    row.memory_bytes = 2.0 * static_cast<double>(kLarge);
    row.samples = samples(
        [&] { must(cudaMemcpyAsync(out_, tensor_, kLarge, cudaMemcpyDeviceToDevice, stream_), "copy"); });
    add(std::move(row));
    copy_gbps_ = 2 * gbps(rows_.back(), rows_.back().time.median);
  }

  void kernel(const KernelEntry& entry, std::uint64_t bytes, std::uint32_t segment,
              const Options& options = {}) {
    const auto ring = make_ring(entry.suite);
    ring->limit_columns(options.columns);
    const RecordLayout layout = RecordLayout::of(bytes, segment);
    RecordContext context;
    context.dtype = DType::f32;
    SegmentJob job = segment_job_of(entry.suite, context, layout, layout.segments());
    job.plaintext = tensor_ + options.shift;
    job.wire = wire_;
    OpRequest numbers;                         // the device's own
    if (entry.direction == Direction::open) {  // first a record to open
      must(ring->enqueue(job, Direction::seal, numbers, stream_));
      must(ring->verdict(stream_));
      numbers.numbers = Numbers::open_at;  // epoch 0, number 0, again and again
      job.combine = combine_of(entry.combine);
      job.combine.dst = out_ + options.shift;
      job.combine.local = job.combine.dst;
    }
    const auto once = [&] { must(ring->enqueue(job, entry.direction, numbers, stream_, &entry)); };
    Row row = row_of(entry, bytes, segment, options);
    if (options.graph == 0) {
      row.samples = samples(once);
    } else {
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      once();  // allocates what it needs: not while capturing
      must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
      for (int i = 0; i < options.graph; ++i) once();
      must(cudaStreamEndCapture(stream_, &graph), "capture");
      must(cudaGraphInstantiate(&exec, graph, 0), "graph");
      row.samples = samples([&] { must(cudaGraphLaunch(exec, stream_), "graph"); });
      for (double& sample : row.samples) sample /= options.graph;
      cudaGraphExecDestroy(exec);
      cudaGraphDestroy(graph);
    }
    must(ring->verdict(stream_));
    add(std::move(row));
  }

  // Two ranks of a fused op, both on this device. all_reduce: in place, `bytes` is the tensor; else a piece
  // of two. Either way a rank seals and opens `bytes`. `blocks`: of a rank's kernel; of AES-GCM each has
  // several columns.
  void fused(Suite suite, Op op, std::uint64_t bytes, unsigned blocks, std::uint64_t small_bytes_max = 0) {
    const std::uint32_t each = suite_has_gcm_key(suite) ? kGcmColumns : 1, columns = each * blocks;
    std::unique_ptr<DeviceKeyRing> keys[2][2];  // [rank][out, in]
    std::byte* windows[2] = {};
    std::unique_ptr<FusedRank> ranks[2];
    cudaStream_t other = nullptr;
    cudaEvent_t fork = nullptr, join = nullptr;
    must(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "stream");
    must(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), "event");
    must(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), "event");
    for (Rank i = 0; i < 2; ++i) {
      DeviceGroupConfig group;
      group.suite = suite;
      group.rank = i;
      group.members = {0, 1};
      group.timeout = std::chrono::seconds(20);
      group.wire = DeviceWireKind::local;  // they share the device
      auto made = FusedRank::make(group, FusedGrid{columns, columns, blocks, each}, small_bytes_max);
      if (!made) must(Result<void>(tl::unexpected(made.error())));
      ranks[i] = std::move(*made);
      for (auto& ring : keys[i]) ring = make_ring(suite);
      must(cudaMalloc(&windows[i], FusedRank::window_bytes(2, columns)), "window");
      must(cudaMemset(windows[i], 0, FusedRank::window_bytes(2, columns)), "window");
    }
    must(cudaDeviceSynchronize(), "window");
    for (Rank i = 0; i < 2; ++i) {
      FusedRank::Peer peers[2];
      peers[1 - i] = {windows[1 - i], keys[i][0].get(), keys[i][1].get()};
      must(ranks[i]->connect(windows[i], peers));
    }
    Row row = fused_row(suite, op, bytes, columns, bytes <= small_bytes_max);
    row.samples = samples([&] {
      must(cudaEventRecord(fork, stream_), "event");
      must(cudaStreamWaitEvent(other, fork), "event");
      for (Rank i = 0; i < 2; ++i) enqueue_fused(*ranks[i], op, i, bytes, i == 0 ? stream_ : other);
      must(cudaEventRecord(join, other), "event");
      must(cudaStreamWaitEvent(stream_, join), "event");
    });
    for (const auto& rank : ranks) must(rank->verdict(stream_));
    add(std::move(row));
    for (auto& rank : ranks) rank.reset();
    for (std::byte* const window : windows) must(cudaFree(window), "window");
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    cudaStreamDestroy(other);
  }

  const std::vector<Row>& rows() const { return rows_; }
  double copy_gbps() const { return copy_gbps_; }

 private:
  static Row fused_row(Suite suite, Op op, std::uint64_t bytes, unsigned columns, bool small) {
    const std::uint32_t segment = small ? kSmallSegment : fused_cut(bytes, 2, columns).segment_bytes;
    Row row;
    row.suite = to_string(suite);
    row.direction = to_string(op);
    row.combine = op == Op::all_gather ? "2 ranks" : "f32, 2 ranks";
    row.segment_bytes = segment;
    row.payload_bytes = bytes;
    row.conditions = "columns 2 x " + std::to_string(columns) + (small ? ", lines" : "");
    // A rank reads what it seals and what it adds, and writes its output; a window is written and read.
    row.memory_bytes = 2 * (op == Op::all_gather ? 4.0 : 5.0) * static_cast<double>(bytes);
    row.name = "fused " + (suite == Suite::chacha20_poly1305 ? "" : row.suite + " ") + row.direction + " " +
               row.combine + " here, " + row.conditions + " seg " + std::to_string(segment / 1024) + "K";
    return row;
  }
  // Pieces are the halves of a tensor.
  void enqueue_fused(FusedRank& at, Op op, Rank rank, std::uint64_t bytes, cudaStream_t stream) {
    const auto peer = static_cast<Rank>(1 - rank);
    std::byte* const tensor = rank == 0 ? tensor_ : out_;
    const std::uint64_t elements = bytes / 4, stride = op == Op::all_reduce ? 0 : bytes;
    const bool gathers = op == Op::all_gather;
    DeviceOp device_op;
    device_op.op = op;
    device_op.redop = gathers ? RedOp::none : RedOp::sum;
    device_op.dtype = DType::f32;
    device_op.elements = elements;
    DeviceSend send;
    send.peer = peer;
    send.data = tensor + (gathers ? rank : peer) * stride;
    send.elements = elements;
    DeviceRecv recv;
    recv.peer = peer;
    recv.dst = tensor + (gathers ? peer : rank) * stride;
    recv.elements = elements;
    if (!gathers) recv.local = recv.dst;
    must(at.enqueue(device_op, {&send, 1}, {&recv, 1}, {!gathers, op == Op::all_reduce}, stream));
  }
  static Row row_of(const KernelEntry& entry, std::uint64_t bytes, std::uint32_t segment,
                    const Options& options) {
    const bool seals = entry.direction == Direction::seal;
    const bool reads_dst = !seals && entry.combine != CombineKind::replace;
    Row row;
    row.suite = to_string(entry.suite);
    row.direction = seals ? "seal" : "open";
    row.combine = seals ? "" : kind_name(entry.combine);
    row.segment_bytes = segment;
    row.payload_bytes = bytes;
    row.conditions = options.note;
    row.memory_bytes = static_cast<double>(bytes) * (reads_dst ? 3.0 : 2.0);
    if (entry.suite == Suite::chacha20_poly1305) row.alu_operations = static_cast<double>(bytes) / 64 * 745;
    char name[160];
    std::snprintf(name, sizeof name, "%s %s%s seg %3uK t%u b%u%s%s%s", row.suite.c_str(),
                  seals ? "seal" : "open+", row.combine.c_str(), segment / 1024, entry.threads, entry.blocks,
                  entry.private_step != 0 ? " private" : "", options.note.empty() ? "" : " ",
                  options.note.c_str());
    row.name = name;
    return row;
  }
  static const char* kind_name(CombineKind kind) {
    switch (kind) {
      case CombineKind::replace:
        return "replace";
      case CombineKind::sum_f32:
        return "f32";
      case CombineKind::sum_bf16:
        return "bf16";
      case CombineKind::sum_f16:
        return "f16";
      case CombineKind::any:
        break;
    }
    return "any(f32 max)";
  }
  static CombineOp combine_of(CombineKind kind) {
    CombineOp out;
    out.redop = kind == CombineKind::replace ? RedOp::none
                : kind == CombineKind::any   ? RedOp::max
                                             : RedOp::sum;
    out.dtype = kind == CombineKind::sum_bf16  ? DType::bf16
                : kind == CombineKind::sum_f16 ? DType::f16
                                               : DType::f32;
    return out;
  }
  std::unique_ptr<DeviceKeyRing> make_ring(Suite suite) {
    auto ring = DeviceKeyRing::make(0, suite, 0,
                                    KeyBudget{1ull << 62, 1ull << 62, 1ull << 62, 1ull << 62, 1ull << 62});
    if (!ring) must(Result<void>(tl::unexpected(ring.error())));
    SecretBytes key(suite_key_bytes(suite)), iv(kNonceBytes);
    key.data()[0] = std::byte{1};
    must((*ring)->upload(0, key, iv));
    return std::move(*ring);
  }
  void add(Row row) {
    row.time = bench::spread_of(row.samples);
    std::fprintf(stderr, "%-62s %9.2f us +- %5.2f %8.1f GB/s\n", row.name.c_str(), row.time.median,
                 row.time.mad, gbps(row, row.time.median));
    rows_.push_back(std::move(row));
  }

  bool quick_;
  double copy_gbps_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::byte *tensor_ = nullptr, *out_ = nullptr, *wire_ = nullptr;
  std::vector<Row> rows_;
};

// The fastest row of a suite and direction at a size, on whole tensors and full grids.
const Row* best_of(const std::vector<Row>& rows, const Row& like, std::uint64_t bytes) {
  const Row* out = nullptr;
  for (const Row& row : rows) {
    const bool plain = row.conditions.empty() || row.conditions == kGraph;
    if (!plain || row.suite != like.suite || row.direction != like.direction || row.combine != like.combine ||
        row.payload_bytes != bytes)
      continue;
    if (out == nullptr || row.time.median < out->time.median) out = &row;
  }
  return out;
}

bool is_fused(const Row& row) { return row.name.starts_with("fused"); }

void print_table(const std::vector<Row>& rows, const bench::Machine& machine, double copy_gbps) {
  std::printf("\n%s, %d multiprocessors, driver %s, CUDA %s, %s\n", machine.gpu.c_str(),
              machine.multiprocessors, machine.driver.c_str(), machine.runtime_cuda.c_str(),
              bench::confidential_mode(machine.confidential).first.c_str());
  std::printf("commit %s, %s; device copy %.0f GB/s read + write; best segment size of each, [95 %%]\n",
              machine.commit.c_str(), machine.date.c_str(), copy_gbps);
  std::printf("%-34s %28s %18s %18s\n", "", "1 GiB, GB/s", "1 MiB, us", "64 KiB, us");
  std::vector<std::string> seen;
  for (const Row& row : rows) {
    const std::string label =
        row.suite + " " + row.direction + (row.combine.empty() ? "" : "+" + row.combine);
    if (row.suite.empty() || is_fused(row) || std::ranges::count(seen, label) > 0) continue;
    seen.push_back(label);
    std::string line;
    char text[80];
    if (const Row* const large = best_of(rows, row, kLarge)) {
      std::snprintf(text, sizeof text, "%6.0f [%5.0f, %5.0f] %4uK seg", gbps(*large, large->time.median),
                    gbps(*large, large->time.high), gbps(*large, large->time.low),
                    large->segment_bytes / 1024);
      line += text;
    }
    for (const std::uint64_t bytes : {std::uint64_t{1} << 20, std::uint64_t{64} << 10}) {
      const Row* const small = best_of(rows, row, bytes);
      if (small == nullptr) continue;
      std::snprintf(text, sizeof text, "  %5.1f [%4.1f, %4.1f]", small->time.median, small->time.low,
                    small->time.high);
      line += text;
    }
    std::printf("%-34s %s\n", label.c_str(), line.c_str());
  }
}

// Of each fused op: its time, and the payload of one rank over it.
void print_fused(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (!is_fused(row)) continue;
    std::printf("%-62s %4llu KiB %9.1f us [%8.1f, %8.1f] %6.1f GB/s\n", row.name.c_str(),
                static_cast<unsigned long long>(row.payload_bytes / 1024), row.time.median, row.time.low,
                row.time.high, gbps(row, row.time.median));
  }
}

void write_file(const std::string& path, const std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file) != text.size() ||
      std::fclose(file) != 0) {
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
    std::exit(1);
  }
}

bool measured_in_full(const KernelEntry& entry) {
  return entry.direction == Direction::seal || entry.combine == CombineKind::sum_f32;
}

std::string only_suite;  // empty: all
bool wanted_suite(const KernelEntry& entry) {
  return only_suite.empty() || only_suite == to_string(entry.suite);
}

void large(Bench& bench, bool quick) {
  for (const KernelEntry& entry : kernel_list()) {
    if (!wanted_suite(entry)) continue;
    for (const std::uint32_t segment : {16u << 10, 32u << 10, 64u << 10, 128u << 10}) {
      const bool wanted = measured_in_full(entry) && !quick ? true : segment == 32u << 10;
      if (wanted && segment <= entry.segment_max) bench.kernel(entry, kLarge, segment);
    }
  }
}

void further(Bench& bench) {
  std::vector<std::pair<Suite, Direction>> seen;
  for (const KernelEntry& entry : kernel_list()) {
    if (!measured_in_full(entry) || !wanted_suite(entry) || entry.small ||
        std::ranges::count(seen, std::pair(entry.suite, entry.direction)) > 0)
      continue;
    seen.emplace_back(entry.suite, entry.direction);  // the preferred ones
    const std::uint32_t segment = std::min(32u << 10, entry.segment_max);
    bench.kernel(entry, kLarge, segment, {.shift = 4, .note = "off by 4 bytes"});
    for (const unsigned columns : {16u, 32u, 48u, 66u, 99u, 132u, 264u})
      bench.kernel(entry, 256u << 20, segment,
                   {.columns = columns, .note = "columns " + std::to_string(columns)});
  }
}

void fused(Bench& bench, bool quick) {
  const auto wanted = [](Suite suite) { return only_suite.empty() || only_suite == to_string(suite); };
  for (const Op op : {Op::all_reduce, Op::reduce_scatter, Op::all_gather}) {
    constexpr Suite kSuite = Suite::chacha20_poly1305;
    if (!wanted(kSuite)) break;
    bench.fused(kSuite, op, 256u << 20, 198);
    if (quick) continue;
    for (const unsigned columns : {16u, 32u, 48u, 66u, 99u, 132u, 264u})
      bench.fused(kSuite, op, 256u << 20, columns);
    bench.fused(kSuite, op, 25u << 20, 198);
    bench.fused(kSuite, op, 1u << 20, 132);
    for (const std::uint64_t bytes : {64u << 10, 16u << 10, 4u << 10}) {
      bench.fused(kSuite, op, bytes, 32);
      bench.fused(kSuite, op, bytes, 32, kSmallBytesMax);
    }
  }
  for (const Suite suite : {Suite::aes_256_gcm, Suite::aes_128_gcm}) {
    if (!wanted(suite)) continue;
    bench.fused(suite, Op::all_reduce, 256u << 20, 66);
    if (quick) continue;
    for (const unsigned blocks : {16u, 33u}) bench.fused(suite, Op::all_reduce, 256u << 20, blocks);
    bench.fused(suite, Op::all_gather, 256u << 20, 66);
    for (const std::uint64_t bytes : {64u << 20, 25u << 20, 1u << 20, 64u << 10})
      bench.fused(suite, Op::all_reduce, bytes, 66);
  }
}

void small(Bench& bench) {
  for (const KernelEntry& entry : kernel_list()) {
    if (!measured_in_full(entry) || !wanted_suite(entry)) continue;
    for (const std::uint32_t segment : {2u << 10, 4u << 10, 8u << 10})
      bench.kernel(entry, 64u << 10, segment, {.graph = 100, .note = kGraph});
    for (const std::uint32_t segment : {4u << 10, 8u << 10})
      bench.kernel(entry, 1u << 20, segment, {.graph = 100, .note = kGraph});
  }
}

}  // namespace
}  // namespace sealring::cuda

int main(int argc, char** argv) {
  std::string out = ".", commit, part;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      quick = true;
    } else if (std::strcmp(argv[i], "--out") == 0 && i + 1 < argc) {
      out = argv[++i];
    } else if (std::strcmp(argv[i], "--suite") == 0 && i + 1 < argc) {
      sealring::cuda::only_suite = argv[++i];
    } else if (std::strcmp(argv[i], "--part") == 0 && i + 1 < argc) {
      part = argv[++i];
    } else if (std::strcmp(argv[i], "--commit") == 0 && i + 1 < argc) {
      commit = argv[++i];
    } else {
      std::fprintf(stderr,
                   "usage: gpu_bench [--out DIR] [--quick] [--suite NAME] [--part large|small|further|fused] "
                   "[--commit ID]\n");
      return 2;
    }
  }
  sealring::cuda::Bench bench(quick);
  bench.copy();
  const auto write = [&] {
    const sealring::bench::Machine machine = sealring::bench::machine_now(commit);
    sealring::cuda::write_file(out + "/gpu-bench.json",
                               sealring::bench::json_of(machine, bench.copy_gbps(), bench.rows()));
    return machine;
  };
  const auto wanted = [&](const char* name) { return part.empty() || part == name; };
  if (wanted("large")) sealring::cuda::large(bench, quick);
  if (wanted("small")) sealring::cuda::small(bench);
  if (wanted("further") && !quick) sealring::cuda::further(bench);
  (void)write();  // kept, should two ranks on one device not end well
  if (wanted("fused")) sealring::cuda::fused(bench, quick);
  sealring::cuda::print_table(bench.rows(), write(), bench.copy_gbps());
  sealring::cuda::print_fused(bench.rows());
  return 0;
}
