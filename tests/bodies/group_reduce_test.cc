// Claim: sums, scaled copies and poison of a group on GPUs, and the two ends of suite plain, give the CPU's
// bits, at any length and alignment, and touch nothing outside.
// How: the bodies that the kernels run are run on the host, by several threads' shares, beside reduce_cpu.
#include <gtest/gtest.h>

#include "sealring/device/cuda/plain_body.h"
#include "sealring/device/cuda/reduce_body.h"
#include "tests/bodies/cuda_body_rig.h"

namespace sealring::cuda::test {
namespace {

constexpr std::uint64_t kThreads = 5;

/// Small finite numbers, so that every bit of a result is defined.
Bytes numbers(std::mt19937_64& random, DType dtype, std::uint64_t elements) {
  const std::size_t size = dtype_bytes(dtype);
  Bytes out = random_bytes(random, elements * size);
  for (std::size_t at = size - 1; dtype_is_float(dtype) && at < out.size(); at += size)
    out[at] &= std::byte{0xBB};
  for (std::byte& value : out) {
    if (dtype == DType::boolean) value &= std::byte{1};
  }
  return out;
}

struct RunReduce {
  const ReduceArguments& job;
  template <DType D, RedOp R>
  int operator()() const {
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) reduce_chunks<D, R>(job, thread, kThreads);
    return 0;
  }
};

Bytes by_cpu(DType dtype, RedOp redop, const std::vector<Bytes>& inputs, std::uint32_t divisor,
             double scale = 1.0) {
  Bytes out(inputs[0].size());
  std::vector<const std::byte*> sources;
  for (const Bytes& input : inputs) sources.push_back(input.data());
  ReduceJob job;
  job.dtype = dtype;
  job.redop = redop;
  job.sources = sources;
  job.dst = out.data();
  job.elements = out.size() / dtype_bytes(dtype);
  job.divisor = divisor;
  job.scale = scale;
  EXPECT_TRUE(reduce_cpu(job));
  return out;
}

void expect_reduces(std::mt19937_64& random, DType dtype, RedOp redop, std::uint32_t ranks,
                    std::uint64_t elements) {
  const std::uint32_t divisor = redop == RedOp::avg ? ranks : 1;
  std::vector<Bytes> inputs;
  for (std::uint32_t i = 0; i < ranks; ++i) inputs.push_back(numbers(random, dtype, elements));
  const Bytes expected = by_cpu(dtype, redop, inputs, divisor);
  const std::size_t own = random() % ranks;
  for (const bool in_place : {false, true}) {
    ReduceArguments job;
    std::vector<std::unique_ptr<Shifted>> memory;
    for (const Bytes& input : inputs) {
      memory.push_back(std::make_unique<Shifted>(input.size(), random() % 16));
      memory.back()->set(input);
      job.sources[memory.size() - 1] = memory.back()->data();
    }
    Shifted out(expected.size(), random() % 16);
    Shifted& dst = in_place ? *memory[own] : out;
    job.count = ranks;
    job.divisor = divisor;
    job.dst = dst.data();
    job.bytes = expected.size();
    for_reduction(dtype, redop, RunReduce{job});
    ASSERT_TRUE(expected.empty() || std::memcmp(dst.data(), expected.data(), expected.size()) == 0)
        << to_string(dtype) << " " << to_string(redop) << " " << ranks << " x " << elements;
    ASSERT_TRUE(dst.margin_untouched());
    for (std::size_t i = 0; i < memory.size(); ++i) ASSERT_TRUE(memory[i]->margin_untouched());
  }
}

TEST(GroupReduce, SumsOfManyAreTheCpus) {
  std::mt19937_64 random(3);
  for (const DType dtype : all_dtypes()) {
    for (const RedOp redop : all_redops()) {
      if (!reduction_supported(dtype, redop)) continue;
      for (const std::uint32_t ranks : {1u, 2u, 3u, 5u, 8u}) {
        for (const std::uint64_t elements : {0ull, 1ull, 3ull, 7ull, 16ull, 17ull, 63ull, 200ull, 1003ull})
          ASSERT_NO_FATAL_FAILURE(expect_reduces(random, dtype, redop, ranks, elements));
      }
    }
  }
}

template <DType D>
void expect_scales(std::mt19937_64& random, std::uint64_t elements) {
  const Bytes input = numbers(random, D, elements);
  const Bytes expected = by_cpu(D, RedOp::premul_sum, {input}, 1, 0.3);
  for (const bool in_place : {false, true}) {
    Shifted from(input.size(), random() % 16), to(input.size(), random() % 16);
    from.set(input);
    Shifted& dst = in_place ? from : to;
    const ScaleArguments job{from.data(), dst.data(), input.size(), 0.3};
    for (std::uint64_t thread = 0; thread < kThreads; ++thread) scale_chunks<D>(job, thread, kThreads);
    ASSERT_TRUE(expected.empty() || std::memcmp(dst.data(), expected.data(), expected.size()) == 0)
        << to_string(D) << " " << elements;
    ASSERT_TRUE(dst.margin_untouched());
  }
}

TEST(GroupReduce, ScaledCopiesAreTheCpus) {
  std::mt19937_64 random(4);
  for (std::uint64_t elements = 0; elements < 70; ++elements) {
    ASSERT_NO_FATAL_FAILURE(expect_scales<DType::f32>(random, elements));
    ASSERT_NO_FATAL_FAILURE(expect_scales<DType::f64>(random, elements));
    ASSERT_NO_FATAL_FAILURE(expect_scales<DType::f16>(random, elements));
    ASSERT_NO_FATAL_FAILURE(expect_scales<DType::bf16>(random, elements));
  }
}

TEST(GroupReduce, PoisonFillsTheWholeOutputAndNothingElse) {
  for (const DType dtype : all_dtypes()) {
    Chunk pattern;
    poison(dtype, {reinterpret_cast<std::byte*>(&pattern), sizeof pattern});
    for (std::size_t elements = 0; elements < 40; ++elements) {
      Shifted memory(elements * dtype_bytes(dtype), elements % 16);
      for (std::uint64_t thread = 0; thread < kThreads; ++thread)
        fill_chunks(memory.data(), memory.span().size(), pattern, thread, kThreads);
      Bytes expected(memory.span().size());
      poison(dtype, expected);
      ASSERT_TRUE(std::ranges::equal(memory.span(), expected));
      ASSERT_TRUE(memory.margin_untouched());
    }
  }
}

template <CombineKind K>
void plain_open(const SegmentJob& job, WindowReads& reads) {
  for (std::uint32_t column = 0; column < 3; ++column) {
    HostBlock block(PlainOpenBody<K>::kThreads, &reads);
    PlainOpenBody<K>::run(block, job, Column{column, 3});
  }
}

// From one memory through the wire into another, in part of a record.
void expect_plain(std::mt19937_64& random, std::uint64_t bytes, RedOp redop) {
  const Bytes input = numbers(random, DType::f32, bytes / 4), local = numbers(random, DType::f32, bytes / 4);
  const RecordLayout layout = RecordLayout::of(input.size(), 2048);
  RecordContext context;
  context.suite = Suite::plain;
  context.dtype = DType::f32;
  SegmentJob job = segment_job_of(Suite::plain, context, layout, layout.segments());
  Shifted from(input.size(), 4 * (random() % 4)), wire(layout.wire_bytes(), 0), dst(input.size(), 4);
  from.set(input);
  dst.set(local);
  job.plaintext = from.data();
  job.wire = wire.data();
  for (std::uint32_t column = 0; column < 3; ++column) {
    HostBlock block(PlainSealBody::kThreads);
    PlainSealBody::run(block, job, Column{column, 3});
  }
  ASSERT_TRUE(wire.margin_untouched());
  for (std::uint32_t k = 0; k < layout.segments(); ++k) {
    const std::byte* const at = wire.data() + layout.wire_offset(k);
    const std::uint32_t payload = layout.payload_of(k);
    ASSERT_TRUE(payload == 0 || std::memcmp(at, input.data() + layout.payload_offset(k), payload) == 0);
    ASSERT_TRUE(
        std::all_of(at + payload, at + payload + kTagBytes, [](std::byte b) { return b == std::byte{}; }));
  }
  WindowReads reads;
  reads.begin = wire.data();
  reads.counts.assign(layout.wire_bytes(), 0);
  job.combine = CombineOp{redop, DType::f32, dst.data(), dst.data(), 1, false};
  if (redop == RedOp::none)
    plain_open<CombineKind::replace>(job, reads);
  else if (redop == RedOp::sum)
    plain_open<CombineKind::sum_f32>(job, reads);
  else
    plain_open<CombineKind::any>(job, reads);
  EXPECT_EQ(reads.strays, 0u);
  EXPECT_TRUE(std::ranges::all_of(reads.counts, [](std::uint32_t count) { return count <= 1; }));
  const Bytes expected = redop == RedOp::none ? input : by_cpu(DType::f32, redop, {local, input}, 1);
  ASSERT_TRUE(std::ranges::equal(dst.span(), expected)) << bytes << " " << to_string(redop);
  ASSERT_TRUE(dst.margin_untouched());
}

TEST(GroupReduce, SuitePlainCopiesAndCombines) {
  std::mt19937_64 random(6);
  for (const std::uint64_t bytes : {0ull, 4ull, 12ull, 16ull, 2044ull, 2048ull, 2052ull, 9000ull, 20480ull}) {
    for (const RedOp redop : {RedOp::none, RedOp::sum, RedOp::max})
      ASSERT_NO_FATAL_FAILURE(expect_plain(random, bytes, redop));
  }
}

}  // namespace
}  // namespace sealring::cuda::test
