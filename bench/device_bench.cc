// Rates of one core of the CPU device: seal, open and reduce by segment size, over 32 MiB so that the tensor
// comes from memory (or a shared cache) and not from the core's own.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "sealring/device/bulk_cipher.h"

namespace sealring {
namespace {

constexpr std::uint64_t kTensorBytes = 32 << 20;
constexpr Suite kSuites[] = {Suite::aes_256_gcm, Suite::aes_128_gcm, Suite::chacha20_poly1305, Suite::plain};

// One segment in the wire buffer, as the executor does it; the tensor is walked segment by segment.
struct Rig {
  Rig(Suite suite, std::int64_t segment)
      : segment_bytes(static_cast<std::uint32_t>(segment)),
        layout(RecordLayout::of(kTensorBytes, segment_bytes)),
        tensor(kTensorBytes),
        wire(segment + kTagBytes) {
    SecretBytes key(suite == Suite::plain ? 32 : suite_key_bytes(suite));
    SecretBytes iv(kNonceBytes);
    device_key = *cipher->load(suite, 0, key, iv);
    context.dtype = DType::f32;
  }

  void seal(std::uint32_t segment) {
    SealJob job{device_key.get(), *sequence.take(1, segment_bytes), context, layout, 1, nullptr, wire.data()};
    job.context.segment = segment;
    job.plaintext = tensor.data() + layout.payload_offset(segment);
    if (!cipher->seal(std::move(job), stream)) std::abort();
  }

  std::uint32_t segment_bytes;
  RecordLayout layout;
  Bytes tensor, wire;
  std::unique_ptr<BulkCipher> cipher = make_cpu_bulk_cipher();
  std::unique_ptr<DeviceKey> device_key;
  NonceSequence sequence{KeyBudget{~0ull, ~0ull, ~0ull, 1ull << 60, 1ull << 50}};
  RecordContext context;
  Stream stream;
};

void bulk_seal(benchmark::State& state) {
  const Suite suite = kSuites[state.range(0)];
  Rig rig(suite, state.range(1));
  std::uint32_t segment = 0;
  for (auto _ : state) {
    rig.seal(segment);
    segment = (segment + 1) % rig.layout.segments();
  }
  state.SetBytesProcessed(state.iterations() * state.range(1));
  state.SetLabel(std::string(to_string(suite)));
}

// combine 0: replace; 1: fp32 sum into the tensor.
void bulk_open(benchmark::State& state) {
  const Suite suite = kSuites[state.range(0)];
  Rig rig(suite, state.range(1));
  // The same sealed segment again and again, combined into places that walk through the tensor.
  rig.seal(0);
  OpenJob job;
  job.key = rig.device_key.get();
  job.first_number = rig.sequence.segments() - 1;
  job.context = rig.context;
  job.layout = rig.layout;
  job.wire = rig.wire.data();
  job.combine.dtype = DType::f32;
  job.combine.redop = state.range(2) == 0 ? RedOp::none : RedOp::sum;
  std::uint32_t segment = 0;
  for (auto _ : state) {
    job.combine.dst = rig.tensor.data() + rig.layout.payload_offset(segment);
    job.combine.local = job.combine.dst;
    if (!rig.cipher->open(job, rig.stream)) state.SkipWithError("refused");
    segment = (segment + 1) % rig.layout.segments();
  }
  state.SetBytesProcessed(state.iterations() * state.range(1));
  state.SetLabel(std::string(to_string(suite)) + (state.range(2) == 0 ? " replace" : " sum fp32"));
}

void reduce(benchmark::State& state) {
  const auto dtype = static_cast<DType>(state.range(0));
  const auto redop = static_cast<RedOp>(state.range(1));
  const auto sources_count = static_cast<std::size_t>(state.range(2));
  constexpr std::uint64_t kPieceBytes = 256 << 10;
  const Bytes received(kPieceBytes, std::byte{0x3C});
  Bytes tensor(kTensorBytes, std::byte{0x3C});
  std::uint64_t at = 0;
  for (auto _ : state) {
    std::vector<const std::byte*> sources(sources_count, received.data());
    sources[0] = tensor.data() + at;
    ReduceJob job;
    job.dtype = dtype;
    job.redop = redop;
    job.sources = sources;
    job.dst = tensor.data() + at;
    job.elements = kPieceBytes / dtype_bytes(dtype);
    if (redop == RedOp::avg) job.divisor = 3;
    if (!reduce_cpu(job)) state.SkipWithError("unsupported");
    at = (at + kPieceBytes) % kTensorBytes;
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kPieceBytes));
  state.SetLabel(std::string(to_string(dtype)) + " " + std::string(to_string(redop)));
}

void cipher_sizes(benchmark::internal::Benchmark* benchmark, bool combines) {
  benchmark->ArgNames(combines ? std::vector<std::string>{"suite", "segment", "combine"}
                               : std::vector<std::string>{"suite", "segment"});
  for (int suite = 0; suite < 4; ++suite) {
    for (const std::int64_t bytes : {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}) {
      if (!combines) benchmark->Args({suite, bytes});
      for (int combine = 0; combines && combine < 2; ++combine) benchmark->Args({suite, bytes, combine});
    }
  }
}
BENCHMARK(bulk_seal)->Apply([](auto* b) { cipher_sizes(b, false); });
BENCHMARK(bulk_open)->Apply([](auto* b) { cipher_sizes(b, true); });

void reductions(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"dtype", "redop", "sources"});
  for (const DType dtype : all_dtypes()) {
    benchmark->Args({static_cast<int>(dtype), static_cast<int>(RedOp::sum), 2});
  }
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    benchmark->Args({static_cast<int>(dtype), static_cast<int>(RedOp::sum), 4});
    benchmark->Args({static_cast<int>(dtype), static_cast<int>(RedOp::avg), 2});
    benchmark->Args({static_cast<int>(dtype), static_cast<int>(RedOp::max), 2});
  }
}
BENCHMARK(reduce)->Apply(reductions);

}  // namespace
}  // namespace sealring
