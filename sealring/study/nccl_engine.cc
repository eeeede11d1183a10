#include <fmt/format.h>

#include "sealring/device/nccl_baseline.h"
#include "sealring/study/bench_engine.h"
#include "sealring/study/machine.h"

namespace sealring {
namespace {

class NcclEngine final : public Engine {
 public:
  NcclEngine(const BenchSpec& spec, std::unique_ptr<NcclBaseline> nccl, SealringEngine& meeting,
             DeviceRuntime& runtime)
      : spec_(spec),
        nccl_(std::move(nccl)),
        meeting_(meeting),
        runtime_(runtime),
        samples_(runtime, spec.graph) {}

  Result<std::uint64_t> run(const BenchCall& given, unsigned calls) override {
    SR_TRY(const BenchCall call, on_own_memory(given));
    SR_TRY(meeting_.wait(meeting_.world->barrier()));
    const std::uint64_t cpu_before = process_cpu_ns();
    const auto once = [&] { return enqueue(call); };
    const auto meet = [&] {
      return nccl_->enqueue(Op::all_reduce, DType::f32, word_, word_, 1, 0, runtime_.stream());
    };
    SR_TRY(const std::uint64_t ns, samples_.run(call, calls, meet, once));
    cpu_ns_ += process_cpu_ns() - cpu_before;
    return ns;
  }
  /// Its own buffers are not what the benchmark filled.
  bool checkable() const override { return !own_memory_; }

  Result<void> start() {
    SR_TRY(word_, runtime_.allocate(sizeof(float)));
    SR_TRY(const NcclBuffers own, nccl_->buffers(1, 1));
    own_memory_ = own.out != nullptr;
    return {};
  }

 private:
  Result<BenchCall> on_own_memory(BenchCall call) {
    const std::uint64_t width = dtype_bytes(spec_.dtype);
    const std::uint64_t in_bytes = call.size.in_elements * width;
    SR_TRY(const NcclBuffers own,
           nccl_->buffers(in_bytes, std::max(in_bytes, call.size.out_elements * width)));
    if (own.out == nullptr) return call;
    call.in = own.in;
    call.out = own.out;
    return call;
  }

  Result<void> enqueue(const BenchCall& call) {
    const std::uint64_t own_offset =
        meeting_.world->rank() * call.size.count * std::uint64_t{dtype_bytes(spec_.dtype)};
    std::byte *in = call.in, *out = call.out;
    if (call.in_place) {
      in = spec_.op == Op::all_gather ? call.out + own_offset : call.out;
      if (spec_.op == Op::reduce_scatter) out = call.out + own_offset;
    }
    return nccl_->enqueue(spec_.op, spec_.dtype, spec_.op == Op::broadcast ? out : in, out, call.size.count,
                          spec_.root, runtime_.stream());
  }

  const BenchSpec& spec_;
  std::unique_ptr<NcclBaseline> nccl_;
  SealringEngine& meeting_;
  DeviceRuntime& runtime_;
  GpuSamples samples_;
  std::byte* word_ = nullptr;  ///< of the ranks' meeting
  bool own_memory_ = false;
};

/// Rank 0's id on every rank.
Result<Bytes> shared_id(SealringEngine& meeting) {
  Bytes id(kNcclIdBytes);
  if (meeting.world->rank() == 0) {
    SR_TRY(id, nccl_unique_id());
  }
  SR_TRY(meeting.wait(meeting.world->broadcast({id.data(), id.size(), DType::u8}, 0)));
  return id;
}

}  // namespace

Result<std::unique_ptr<Engine>> make_nccl_engine(const BenchSpec& spec, NcclVariant variant,
                                                 SealringEngine& meeting, DeviceRuntime& runtime) {
  if (spec.redop != RedOp::sum)
    return fail(Code::unsupported, "bench.nccl", "NCCL is compared for sum only", "leave --redop out");
  NcclConfig config;
  config.device = runtime.device();
  config.rank = meeting.world->rank();
  config.world = meeting.world->size();
  config.variant = variant;
  SR_TRY(config.unique_id, shared_id(meeting));
  SR_TRY(auto nccl, make_nccl_baseline(config));
  auto engine = std::make_unique<NcclEngine>(spec, std::move(nccl), meeting, runtime);
  SR_TRY(engine->start());
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace sealring
