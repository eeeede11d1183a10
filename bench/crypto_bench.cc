// The one-shot Aead by suite and size: what a control frame or a handshake message costs.
#include <benchmark/benchmark.h>

#include "sealring/crypto/aead.h"

namespace sealring {
namespace {

constexpr Suite kSuites[] = {Suite::aes_256_gcm, Suite::aes_128_gcm, Suite::chacha20_poly1305};

Aead make(Suite suite) { return *Aead::make(suite, Bytes(suite_key_bytes(suite), std::byte{7})); }

void aead_seal(benchmark::State& state) {
  const Aead aead = make(kSuites[state.range(0)]);
  const Bytes aad(80);
  Bytes in(state.range(1), std::byte{1}), out(in.size());
  std::uint64_t number = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(aead.seal(nonce_of(Nonce{}, number++), aad, in, out));
  }
  state.SetBytesProcessed(state.iterations() * state.range(1));
  state.SetLabel(std::string(to_string(kSuites[state.range(0)])));
}

void aead_open(benchmark::State& state) {
  const Aead aead = make(kSuites[state.range(0)]);
  const Bytes aad(80);
  Bytes in(state.range(1), std::byte{1}), sealed(in.size());
  const Tag tag = *aead.seal(Nonce{}, aad, in, sealed);
  for (auto _ : state) {
    if (!aead.open(Nonce{}, aad, sealed, tag, in)) state.SkipWithError("refused");
  }
  state.SetBytesProcessed(state.iterations() * state.range(1));
  state.SetLabel(std::string(to_string(kSuites[state.range(0)])));
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"suite", "bytes"});
  for (int suite = 0; suite < 3; ++suite) {
    for (const std::int64_t bytes : {0, 64, 1024, 16384, 65536}) benchmark->Args({suite, bytes});
  }
}
BENCHMARK(aead_seal)->Apply(sizes);
BENCHMARK(aead_open)->Apply(sizes);

}  // namespace
}  // namespace sealring
