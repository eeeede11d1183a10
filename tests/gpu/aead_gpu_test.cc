// Claim: every kernel of the build is standard AEAD on the device, at any length and alignment, and a bad tag
// poisons
//        the whole output.
// How: fresh random keys and data each run (the seed is printed), both directions against OpenSSL, every list
// entry.
#include <cstdlib>
#include <random>

#include "tests/gpu/gpu_rig.h"

namespace sealring::cuda::test {
namespace {

// Under a sanitizer each launch takes many times longer: fewer of them.
int times(int normally) {
  return std::getenv("SR_TEST_SANITIZER") == nullptr ? normally : std::max(1, normally / 8);
}

class AeadGpu : public OnGpu {
 protected:
  std::mt19937_64 random{std::random_device{}()};
};

std::string describe(const KernelEntry& entry) {
  return std::string(to_string(entry.suite)) + (entry.direction == Direction::seal ? " seal" : " open") +
         " combine " + std::to_string(static_cast<int>(entry.combine)) + " threads " +
         std::to_string(entry.threads) + " blocks " + std::to_string(entry.blocks) + " up to " +
         std::to_string(entry.segment_max);
}

CombineOp combine_of(CombineKind kind) {
  CombineOp out;
  switch (kind) {
    case CombineKind::replace:
      return out;
    case CombineKind::sum_f32:
      out.dtype = DType::f32;
      break;
    case CombineKind::sum_bf16:
      out.dtype = DType::bf16;
      break;
    case CombineKind::sum_f16:
      out.dtype = DType::f16;
      break;
    case CombineKind::any:
      out.dtype = DType::i32;
      break;
  }
  out.redop = RedOp::sum;
  return out;
}

Bytes expected_of(const Record& record, const CombineOp& combine, const Bytes& local) {
  Bytes out = record.plaintext;
  if (combine.redop == RedOp::none) return out;
  const std::byte* const sources[] = {local.data(), record.plaintext.data()};
  ReduceJob job;
  job.dtype = combine.dtype;
  job.redop = combine.redop;
  job.sources = sources;
  job.dst = out.data();
  job.elements = record.plaintext.size() / dtype_bytes(combine.dtype);
  EXPECT_TRUE(reduce_cpu(job));
  return out;
}

// Small finite numbers, so that every byte of the result is defined.
void make_finite(DType dtype, Bytes& bytes) {
  const std::size_t size = dtype_bytes(dtype);
  if (!dtype_is_float(dtype)) return;
  for (std::size_t at = size - 1; at < bytes.size(); at += size) bytes[at] &= std::byte{0xBB};
}

Record record_for(const KernelEntry& entry, DType dtype, std::uint64_t bytes, std::uint32_t segment,
                  std::uint64_t seed) {
  Record out(entry.suite, bytes / dtype_bytes(dtype) * dtype_bytes(dtype), segment, seed, dtype);
  make_finite(dtype, out.plaintext);
  out.seal_by_oracle();
  return out;
}

void expect_kernel(const KernelEntry& entry, std::uint64_t bytes, std::uint32_t segment, std::size_t shift,
                   unsigned columns, std::uint64_t seed) {
  const CombineOp combine = combine_of(entry.combine);
  const Record record = record_for(entry, combine.dtype, bytes, segment, seed);
  SCOPED_TRACE(describe(entry) + ": " + std::to_string(bytes) + " bytes, segment " + std::to_string(segment) +
               ", shift " + std::to_string(shift) + ", columns " + std::to_string(columns) + ", seed " +
               std::to_string(seed));
  if (entry.direction == Direction::seal) {
    ASSERT_TRUE(sealed_on_gpu(record, shift, &entry, columns) == record.wire);
    return;
  }
  std::mt19937_64 random(seed + 1);
  Bytes local = random_bytes(random, record.plaintext.size());
  make_finite(combine.dtype, local);
  DeviceMemory dst(local.size(), shift);
  dst.set(local);
  const auto verdict = opened_on_gpu(record, record.wire, combine, dst, &entry, columns);
  ASSERT_TRUE(verdict) << verdict.error().message();
  ASSERT_TRUE(dst.get() == expected_of(record, combine, local));
}

TEST_F(AeadGpu, EveryKernelAtManySizesAndAlignments) {
  for (const KernelEntry& entry : kernel_list()) {
    const std::uint32_t limit = std::min(entry.segment_max, 131072u);
    for (int n = 0; n < times(24); ++n) {
      const auto segment = static_cast<std::uint32_t>(1 + random() % (limit / 16)) * 16;
      const std::uint64_t bytes =
          random() % (std::min<std::uint64_t>(segment * 40ull, times(16) * (256ull << 10)) + 1);
      expect_kernel(entry, bytes, segment, random() % 16, static_cast<unsigned>(random() % 4), random());
      if (HasFatalFailure()) return;
    }
    expect_kernel(entry, static_cast<std::uint64_t>(times(16)) * limit, limit, 0, 0, random());
    if (HasFatalFailure()) return;
  }
}

TEST_F(AeadGpu, EveryLengthUpTo512AndEveryAlignment) {
  for (const KernelEntry& entry : kernel_list()) {
    if (entry.combine != CombineKind::replace) continue;
    for (std::uint32_t bytes = 0; bytes <= 512; bytes += 1 + bytes / 40 + (times(8) == 1 ? 31u : 0u)) {
      expect_kernel(entry, bytes, 512, bytes % 16, 0, random());
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(AeadGpu, ManySegmentsInFullGrid) {
  for (const KernelEntry& entry : kernel_list()) {
    expect_kernel(entry, (static_cast<std::uint64_t>(times(48)) << 20) + 1000,
                  std::min(entry.segment_max, 16384u), 0, 0, random());
    if (HasFatalFailure()) return;
  }
}

TEST_F(AeadGpu, ABadTagPoisonsTheWholeOutput) {
  for (const KernelEntry& entry : kernel_list()) {
    if (entry.direction != Direction::open) continue;
    const CombineOp combine = combine_of(entry.combine);
    const Record record = record_for(entry, combine.dtype, 700000, 8192, random());
    for (const std::uint64_t at : {std::uint64_t{5}, std::uint64_t{400000}, record.wire.size() - 1}) {
      SCOPED_TRACE(describe(entry));
      Bytes wire = record.wire;
      wire[at] ^= std::byte{1};
      DeviceMemory dst(record.plaintext.size(), 4);
      const auto verdict = opened_on_gpu(record, wire, combine, dst, &entry);
      ASSERT_FALSE(verdict);
      ASSERT_EQ(verdict.error().code, Code::data_tag);
      Bytes expected(record.plaintext.size());
      poison(combine.dtype, expected);
      ASSERT_TRUE(dst.get() == expected);
    }
  }
}

TEST_F(AeadGpu, BulkCipherSealsAndOpens) {
  auto cipher = make_cuda_bulk_cipher(0);
  ASSERT_TRUE(cipher) << cipher.error().message();
  Record record(Suite::chacha20_poly1305, 300000, 16384, random());
  record.op.first_number = 0;
  record.context.seq = record.op.seq;
  record.seal_by_oracle();
  auto key =
      (*cipher)->load(record.suite, record.op.epoch, secret(record.key_bytes), secret(record.iv_bytes));
  ASSERT_TRUE(key) << key.error().message();
  DeviceMemory in(record.plaintext.size()), wire(record.wire.size()), out(record.plaintext.size());
  in.set(record.plaintext);
  NonceSequence sequence{KeyBudget{}};
  Stream stream;
  const auto permit = [&] { return *sequence.take(record.layout.segments(), record.plaintext.size()); };
  const auto sealed = (*cipher)->seal(SealJob{key->get(), permit(), record.context, record.layout,
                                              record.layout.segments(), in.data(), wire.data()},
                                      stream);
  ASSERT_TRUE(sealed) << sealed.error().message();
  EXPECT_TRUE(wire.get() == record.wire);
  OpenJob open;
  open.key = key->get();
  open.context = record.context;
  open.layout = record.layout;
  open.segments = record.layout.segments();
  open.wire = wire.data();
  open.combine.dst = out.data();
  ASSERT_TRUE((*cipher)->open(open, stream));
  EXPECT_TRUE(out.get() == record.plaintext);
}

TEST_F(AeadGpu, OnAStreamTheVerdictSaysWhatTheCallsCouldNot) {
  auto cipher = make_cuda_bulk_cipher(0);
  ASSERT_TRUE(cipher);
  const Record record(Suite::chacha20_poly1305, 300000, 16384, random());
  auto key =
      (*cipher)->load(record.suite, record.op.epoch, secret(record.key_bytes), secret(record.iv_bytes));
  ASSERT_TRUE(key);
  cudaStream_t native = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking), cudaSuccess);
  DeviceMemory wire(record.wire.size()), out(record.plaintext.size());
  OpenJob job;
  job.key = key->get();
  job.first_number = record.op.first_number;
  job.context = record.context;
  job.context.seq = record.op.seq;
  job.layout = record.layout;
  job.segments = record.layout.segments();
  job.wire = wire.data();
  job.combine.dst = out.data();
  Stream stream{native};
  Bytes broken = record.wire;
  broken[broken.size() / 2] ^= std::byte{1};
  for (const bool good : {true, false, true}) {
    wire.set(good ? record.wire : broken);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    ASSERT_TRUE((*cipher)->open(job, stream));  // enqueued
    const auto verdict = (*cipher)->verdict(**key, stream, Await::stream);
    const auto so_far = (*cipher)->verdict(**key, stream, Await::nothing);
    ASSERT_EQ(verdict.has_value(), so_far.has_value());
    if (verdict) {
      ASSERT_TRUE(good);
      ASSERT_TRUE(out.get() == record.plaintext);
      continue;
    }
    EXPECT_EQ(verdict.error().code, Code::data_tag);  // also of the good record behind the bad one
    EXPECT_EQ(so_far.error().message(), verdict.error().message());
    EXPECT_TRUE(out.get() == Bytes(record.plaintext.size(), std::byte{0xFF}));
  }
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ((*cipher)->verdict(**key, stream, Await::stream).error().code, Code::invalid_argument);
  EXPECT_EQ((*cipher)->verdict(**key, stream, Await::nothing).error().code, Code::data_tag);
  EXPECT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaStreamDestroy(native);
}

TEST_F(AeadGpu, APermitThatIsNotTheDevicesNextNumberIsRefused) {
  auto cipher = make_cuda_bulk_cipher(0);
  ASSERT_TRUE(cipher);
  const Record record(Suite::chacha20_poly1305, 4096, 1024, 1);
  auto key =
      (*cipher)->load(record.suite, record.op.epoch, secret(record.key_bytes), secret(record.iv_bytes));
  ASSERT_TRUE(key);
  DeviceMemory in(4096), wire(record.wire.size());
  Stream stream;
  const auto seal = [&](NonceSequence& sequence) {
    return (*cipher)->seal(SealJob{key->get(), *sequence.take(4, 4096), record.context, record.layout, 4,
                                   in.data(), wire.data()},
                           stream);
  };
  NonceSequence sequence{KeyBudget{}};
  ASSERT_TRUE(seal(sequence));
  NonceSequence again{KeyBudget{}};  // the same numbers a second time
  wire.fill(0);
  const auto refused = seal(again);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::seq_reuse_guard);
  EXPECT_TRUE(wire.get() == Bytes(record.wire.size()));
}

}  // namespace
}  // namespace sealring::cuda::test
