// Engine: one of the compared things, ready to run an operation. Made on every rank in the same order.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sealring/collective/communicator.h"
#include "sealring/device/device_runtime.h"
#include "sealring/study/bench_spec.h"

namespace sealring {

/// One operation on given memory. in_place: the operation's input lies in `out`.
struct BenchCall {
  BenchSize size;
  bool in_place = false;
  std::byte* in = nullptr;
  std::byte* out = nullptr;
};

/// Not thread-safe. Any error is final for the run.
class Engine {
 public:
  virtual ~Engine() = default;
  /// All ranks meet (the engine's own barrier), then `calls` operations run back to back: nanoseconds from
  /// leaving the barrier to the last verdict on this rank.
  virtual Result<std::uint64_t> run(const BenchCall& call, unsigned calls) = 0;
  /// True when run() uses call's memory, so that results can be checked.
  virtual bool checkable() const = 0;
  /// Totals of all run() so far, without their barriers.
  const Counters& spent() const { return spent_; }
  /// CPU time (user and system) of the process that does the work, of all run() so far.
  std::uint64_t cpu_ns() const { return cpu_ns_; }

 protected:
  Counters spent_;
  std::uint64_t cpu_ns_ = 0;
};

/// Where a rank finds the others.
struct RankPlace {
  Rank rank = 0;
  unsigned local_rank = 0;  ///< on this host
  std::shared_ptr<Store> store;
  std::string prefix;                ///< separates this run in the store
  std::string rendezvous_directory;  ///< for the Gloo workers' file store; empty: no Gloo
  std::function<Result<std::unique_ptr<Transport>>()> make_transport;
};

/// How a sample runs on a GPU: operations enqueued back to back, or once captured and then replayed; timed by
/// the device between two of its events, behind an operation in which all ranks have met. Where it captures,
/// an operation runs once before; the same sample again is `calls` operations and no more.
class GpuSamples {
 public:
  GpuSamples(DeviceRuntime& runtime, bool graph) : runtime_(runtime), graph_(graph) {}
  /// `meet` and `once` enqueue on the runtime's stream. Nanoseconds of `calls` operations.
  Result<std::uint64_t> run(const BenchCall& call, unsigned calls, const std::function<Result<void>()>& meet,
                            const std::function<Result<void>()>& once);

 private:
  DeviceRuntime& runtime_;
  bool graph_;
  BenchCall captured_;  ///< what replay_ was made of
  unsigned captured_calls_ = 0;
  std::unique_ptr<DeviceGraph> replay_;
};

/// A session with a communicator of all ranks. Suite plain runs under the study identity, all others under
/// the job key. With a runtime the operations run on its GPU, and the reports go between the CPUs.
struct SealringEngine final : Engine {
  static Result<std::unique_ptr<SealringEngine>> make(const BenchSpec& spec, const BenchCase& bench_case,
                                                      std::size_t case_index, const RankPlace& place,
                                                      const JobKey& key, DeviceRuntime* runtime);
  ~SealringEngine() override;
  Result<std::uint64_t> run(const BenchCall& call, unsigned calls) override;
  bool checkable() const override { return true; }

  /// Collects `values` of every rank at rank 0, in rank order; elsewhere gives an empty list.
  Result<std::vector<double>> gather(const std::vector<double>& values);
  /// Rank 0's value on every rank.
  Result<double> from_rank_0(double value);
  Result<void> wait(Result<Ticket> ticket);
  Result<std::uint64_t> run_on_gpu(const BenchCall& call, unsigned calls);

  BenchSpec spec;
  std::shared_ptr<Session> session;
  std::shared_ptr<Communicator> world;         ///< of the CPUs
  std::shared_ptr<Communicator> communicator;  ///< that is measured: the same, or of the GPUs
  DeviceRuntime* runtime = nullptr;
  std::optional<GpuSamples> gpu;
  Counters one_on_gpu;  ///< what the operation enqueued last has counted: replays count nothing
};

/// PyTorch's Gloo in a Python child of this rank, which inherits its CPUs. The child times itself; pipes
/// carry commands and nanoseconds only.
Result<std::unique_ptr<Engine>> make_gloo_engine(const BenchSpec& spec, const RankPlace& place);

/// NCCL on the runtime's GPU, the ranks being those of `meeting`, which carries NCCL's unique id. Needs a GPU
/// a rank. Errors: UNSUPPORTED (no NCCL, an operation or type it does not have, ranks that share a GPU),
/// CUDA.
Result<std::unique_ptr<Engine>> make_nccl_engine(const BenchSpec& spec, NcclVariant variant,
                                                 SealringEngine& meeting, DeviceRuntime& runtime);

}  // namespace sealring
