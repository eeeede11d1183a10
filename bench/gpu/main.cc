// What the CUDA kernels reach: payload over time by CUDA events, tags, per-segment keys and AAD included,
// medians.
//
//   gpu_bench [--out DIR] [--quick] [--suite NAME]     a table on the terminal, DIR/gpu-bench.json
//
// A row is one kernel of the list at one segment size. Beside the rate stand two roofs: the device's own copy
// for the bytes a kernel must move, and the busiest arithmetic pipe for the operations it must do (counted by
// hand, see docs/kernel-notes.md). The fused rows are whole all_reduces of two ranks that share the device.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "sealring/device/cuda/fused.h"
#include "sealring/device/cuda/launch.h"
#include "sealring/device/cuda/make_job.h"

namespace sealring::cuda {
namespace {

constexpr std::uint64_t kLarge = 1ull << 30;

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

struct Row {
  std::string name;
  std::uint64_t payload_bytes = 0;
  double microseconds = 0;
  double memory_bytes = 0;    ///< that must cross device memory
  double alu_operations = 0;  ///< 0: not counted
};

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
    must(cudaGetDeviceProperties(&properties_, 0), "query");
    must(cudaDeviceGetAttribute(&clock_khz_, cudaDevAttrClockRate, 0), "query");
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

  // Median microseconds of `work`, each time between two events.
  double median(const std::function<void()>& work, int runs = 21) {
    if (quick_) runs = 5;
    for (int i = 0; i < 3; ++i) work();
    std::vector<float> times;
    for (int i = 0; i < runs; ++i) {
      must(cudaEventRecord(begin_, stream_), "event");
      work();
      must(cudaEventRecord(end_, stream_), "event");
      must(cudaEventSynchronize(end_), "event");
      float milliseconds = 0;
      must(cudaEventElapsedTime(&milliseconds, begin_, end_), "event");
      times.push_back(milliseconds);
    }
    std::ranges::sort(times);
    return 1e3 * static_cast<double>(times[times.size() / 2]);
  }

  void copy() {
    const double time = median(
        [&] { must(cudaMemcpyAsync(out_, tensor_, kLarge, cudaMemcpyDeviceToDevice, stream_), "copy"); });
    copy_rate_ = 2.0 * static_cast<double>(kLarge) / time * 1e-3;
    add(Row{"device copy", kLarge, time, 2.0 * static_cast<double>(kLarge), 0});
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
    double time = 0;
    if (options.graph == 0) {
      time = median(once);
    } else {
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      once();  // allocates what it needs: not while capturing
      must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
      for (int i = 0; i < options.graph; ++i) once();
      must(cudaStreamEndCapture(stream_, &graph), "capture");
      must(cudaGraphInstantiate(&exec, graph, 0), "graph");
      time = median([&] { must(cudaGraphLaunch(exec, stream_), "graph"); }) / options.graph;
      cudaGraphExecDestroy(exec);
      cudaGraphDestroy(graph);
    }
    must(ring->verdict(stream_));
    const bool reads_dst = entry.direction == Direction::open && entry.combine != CombineKind::replace;
    char name[160];
    std::snprintf(
        name, sizeof name, "%s %s%s seg %3uK t%u b%u%s%s", std::string(to_string(entry.suite)).c_str(),
        entry.direction == Direction::seal ? "seal" : "open+",
        entry.direction == Direction::seal ? "" : kind_name(entry.combine), segment / 1024, entry.threads,
        entry.blocks, entry.private_step != 0 ? " private" : "", options.note.c_str());
    add(Row{name, bytes, time, static_cast<double>(bytes) * (reads_dst ? 3.0 : 2.0),
            entry.suite == Suite::chacha20_poly1305 ? static_cast<double>(bytes) / 64 * 745 : 0.0});
  }

  // Two ranks of a fused all_reduce in place, both on this device: it seals and opens 2 * bytes.
  void fused(std::uint64_t bytes, unsigned columns) {
    std::unique_ptr<FusedRank> ranks[2];
    std::unique_ptr<DeviceKeyRing> keys[2][2];  // [rank][out, in]
    cudaStream_t other = nullptr;
    cudaEvent_t fork = nullptr, join = nullptr;
    must(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "stream");
    must(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), "event");
    must(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), "event");
    for (int i = 0; i < 2; ++i) {
      auto made = FusedRank::make(0, columns, std::chrono::seconds(20));
      if (!made) must(Result<void>(tl::unexpected(made.error())));
      ranks[i] = std::move(*made);
      for (auto& ring : keys[i]) ring = make_ring(Suite::chacha20_poly1305);
    }
    FusedJob jobs[2];
    const FusedCut cut = fused_cut(bytes, DType::f32, columns);
    for (Rank i = 0; i < 2; ++i) {
      ranks[i]->connect(ranks[1 - i]->window());
      RecordContext context;
      context.dtype = DType::f32;
      context.redop = RedOp::sum;
      jobs[i] = fused_job_of(Suite::chacha20_poly1305, context, RecordLayout::of(bytes, cut.segment_bytes), i,
                             static_cast<Rank>(1 - i));
      std::byte* const tensor = i == 0 ? tensor_ : out_;
      jobs[i].push.plaintext = jobs[i].pull.combine.local = jobs[i].pull.combine.dst = tensor;
    }
    const double time = median([&] {
      must(cudaEventRecord(fork, stream_), "event");
      must(cudaStreamWaitEvent(other, fork), "event");
      must(ranks[0]->enqueue(jobs[0], *keys[0][0], *keys[0][1], stream_));
      must(ranks[1]->enqueue(jobs[1], *keys[1][0], *keys[1][1], other));
      must(cudaEventRecord(join, other), "event");
      must(cudaStreamWaitEvent(stream_, join), "event");
    });
    for (const auto& rank : ranks) must(rank->verdict(stream_));
    char name[160];
    std::snprintf(name, sizeof name, "fused all_reduce f32, 2 ranks here, columns 2 x %u seg %uK", columns,
                  cut.segment_bytes / 1024);
    // A rank reads its tensor twice and writes it once; a window is written and read.
    add(Row{name, bytes, time, 2 * 5.0 * static_cast<double>(bytes), 0});
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    cudaStreamDestroy(other);
  }

  const std::vector<Row>& rows() const { return rows_; }

  void print() const {
    std::printf("\n%s, %d multiprocessors, %.0f MHz at most; copy %.0f GB/s read+write\n", properties_.name,
                properties_.multiProcessorCount, clock_khz_ * 1e-3, copy_rate_);
    std::printf("%-58s %9s %9s %7s %7s\n", "kernel", "us", "GB/s", "%copy", "%alu");
    for (const Row& row : rows_) print(row);
  }
  void write_json(const std::string& path) const {
    std::FILE* const file = std::fopen(path.c_str(), "w");
    if (file == nullptr) {
      std::fprintf(stderr, "cannot write %s\n", path.c_str());
      std::exit(1);
    }
    std::fprintf(file, "{\"device\": \"%s\", \"origin\": \"measured\", \"copy_gbps\": %.1f, \"rows\": [",
                 properties_.name, copy_rate_);
    const char* separator = "\n";
    for (const Row& row : rows_) {
      std::fprintf(file,
                   "%s  {\"name\": \"%s\", \"payload_bytes\": %llu, \"us\": %.3f, \"gbps\": %.2f, "
                   "\"memory_bytes\": %.0f, "
                   "\"alu_operations\": %.0f}",
                   separator, row.name.c_str(), static_cast<unsigned long long>(row.payload_bytes),
                   row.microseconds, rate(row), row.memory_bytes, row.alu_operations);
      separator = ",\n";
    }
    std::fprintf(file, "\n]}\n");
    std::fclose(file);
  }

 private:
  static double rate(const Row& row) {
    return static_cast<double>(row.payload_bytes) / row.microseconds * 1e-3;
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
  void print(const Row& row) const {
    const double memory = row.memory_bytes / row.microseconds * 1e-3 / copy_rate_ * 100;
    const double alu = row.alu_operations / row.microseconds * 1e6 /
                       (properties_.multiProcessorCount * 64.0 * clock_khz_ * 1e3) * 100;
    std::printf("%-58s %9.2f %9.1f %6.0f%% ", row.name.c_str(), row.microseconds, rate(row), memory);
    if (row.alu_operations > 0) std::printf("%6.0f%%", alu);
    std::printf("\n");
  }
  void add(const Row& row) {
    rows_.push_back(row);
    print(row);
    std::fflush(stdout);
  }

  bool quick_;
  cudaDeviceProp properties_{};
  int clock_khz_ = 0;
  double copy_rate_ = 1;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::byte *tensor_ = nullptr, *out_ = nullptr, *wire_ = nullptr;
  std::vector<Row> rows_;
};

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
    if (!measured_in_full(entry) || !wanted_suite(entry) ||
        std::ranges::count(seen, std::pair(entry.suite, entry.direction)) > 0)
      continue;
    seen.emplace_back(entry.suite, entry.direction);  // the preferred ones
    const std::uint32_t segment = std::min(32u << 10, entry.segment_max);
    bench.kernel(entry, kLarge, segment, {.shift = 4, .note = " off by 4 bytes"});
    for (const unsigned columns : {16u, 32u, 48u, 66u, 99u, 132u, 264u})
      bench.kernel(entry, 256u << 20, segment,
                   {.columns = columns, .note = " columns " + std::to_string(columns)});
  }
}

void fused(Bench& bench, bool quick) {
  if (!only_suite.empty() && only_suite != to_string(Suite::chacha20_poly1305)) return;
  bench.fused(256u << 20, 132);
  if (quick) return;
  for (const unsigned columns : {16u, 32u, 48u, 66u, 99u}) bench.fused(256u << 20, columns);
  bench.fused(25u << 20, 132);
  bench.fused(1u << 20, 132);
  bench.fused(64u << 10, 32);
}

void small(Bench& bench) {
  for (const KernelEntry& entry : kernel_list()) {
    if (!measured_in_full(entry) || !wanted_suite(entry)) continue;
    for (const std::uint32_t segment : {2u << 10, 4u << 10, 8u << 10})
      bench.kernel(entry, 64u << 10, segment, {.graph = 100, .note = " 64 KiB x100 graph"});
    for (const std::uint32_t segment : {4u << 10, 8u << 10})
      bench.kernel(entry, 1u << 20, segment, {.graph = 100, .note = " 1 MiB x100 graph"});
  }
}

}  // namespace
}  // namespace sealring::cuda

int main(int argc, char** argv) {
  std::string out = ".";
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      quick = true;
    } else if (std::strcmp(argv[i], "--out") == 0 && i + 1 < argc) {
      out = argv[++i];
    } else if (std::strcmp(argv[i], "--suite") == 0 && i + 1 < argc) {
      sealring::cuda::only_suite = argv[++i];
    } else {
      std::fprintf(stderr, "usage: gpu_bench [--out DIR] [--quick] [--suite NAME]\n");
      return 2;
    }
  }
  sealring::cuda::Bench bench(quick);
  bench.copy();
  sealring::cuda::large(bench, quick);
  sealring::cuda::fused(bench, quick);
  sealring::cuda::small(bench);
  if (!quick) sealring::cuda::further(bench);
  bench.print();
  bench.write_json(out + "/gpu-bench.json");
  return 0;
}
