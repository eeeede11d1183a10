// Claim: the ChaCha20-Poly1305 kernel bodies are standard AEAD at any length and alignment, read a window
// once,
//        write nothing of a refused segment, and leave no key behind what is cleared.
// How: the bodies run on the host and are compared with OpenSSL; reads of the window are counted byte by
// byte; their shared memory is searched for one-time keys.
#include "sealring/device/cuda/chacha_small.h"
#include "tests/bodies/cuda_body_rig.h"

namespace sealring::cuda::test {
namespace {

using Seal8 = ChachaBody<ChachaConfig<Direction::seal, 8, 2, 0, CombineKind::replace>>;
using Seal4 = ChachaBody<ChachaConfig<Direction::seal, 4, 4, 0, CombineKind::replace>>;
template <CombineKind K>
using Open8 = ChachaBody<ChachaConfig<Direction::open, 8, 3, 32768, K, 1>>;
using Open4 = ChachaBody<ChachaConfig<Direction::open, 4, 4, 16384, CombineKind::replace>>;
using OpenPrivate = ChachaBody<ChachaConfig<Direction::open, 8, 2, 0, CombineKind::replace>>;

using SealSmall = ChachaSmall<Direction::seal, CombineKind::replace>;
template <CombineKind K>
using OpenSmall = ChachaSmall<Direction::open, K>;

constexpr Suite kSuite = Suite::chacha20_poly1305;

TEST(CudaBodiesChacha, EveryLengthUpTo4KiB) {
  for (std::uint32_t bytes = 0; bytes <= 4096; ++bytes) {
    const Record record(kSuite, bytes, 8192, bytes);
    expect_seals<Seal8>(record, bytes % 16, 1);
    expect_opens<Open8<CombineKind::replace>>(record, bytes % 16, 1);
    if (HasFailure()) return;
  }
}

TEST(CudaBodiesChacha, SmallMessagesOfEveryLengthUpToASegment) {
  static_assert(SealSmall::kSegmentMax == 8192);
  for (std::uint32_t bytes = 0; bytes <= 8192; ++bytes) {
    const Record record(kSuite, bytes, 8192, bytes);
    expect_seals<SealSmall>(record, bytes % 16, 1);
    expect_opens<OpenSmall<CombineKind::replace>>(record, bytes % 16, 1);
    if (HasFailure()) return;
  }
}

TEST(CudaBodiesChacha, EveryAlignmentAt64Lengths) {
  for (std::uint32_t n = 0; n < 64; ++n) {
    const std::uint32_t bytes = n * 97 + 1;
    const Record record(kSuite, bytes, 2048, n);
    for (std::size_t shift = 0; shift < 16; ++shift) {
      expect_seals<Seal4>(record, shift, 2);
      expect_opens<Open4>(record, shift, 2);
      expect_seals<SealSmall>(record, shift, 2);
      expect_opens<OpenSmall<CombineKind::replace>>(record, shift, 2);
      if (HasFailure()) return;
    }
  }
}

TEST(CudaBodiesChacha, LargerRecordsManySegmentsAndColumns) {
  std::mt19937_64 random(20);
  for (int n = 0; n < 12; ++n) {
    const auto segment = static_cast<std::uint32_t>(1 + random() % 1024) * 16;
    const std::uint64_t bytes = random() % (segment * 30ull);
    const Record record(kSuite, bytes, segment, random());
    const auto columns = static_cast<std::uint32_t>(1 + random() % 5);
    expect_seals<Seal8>(record, random() % 16, columns);
    expect_seals<Seal4>(record, random() % 16, columns);
    expect_opens<Open8<CombineKind::replace>>(record, random() % 16, columns);
    expect_opens<Open4>(record, random() % 16, columns);
    if (segment > SealSmall::kSegmentMax) continue;
    expect_seals<SealSmall>(record, random() % 16, columns);
    expect_opens<OpenSmall<CombineKind::replace>>(record, random() % 16, columns);
    if (HasFailure()) return;
  }
}

TEST(CudaBodiesChacha, SegmentsThatWaitInPrivateMemory) {
  const Record record(kSuite, 500001, 131072, 3);
  Bytes scratch(2 * 2 * OpenPrivate::private_bytes(131072) + 16);
  auto* const at = scratch.data() + (16 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 16) % 16;
  expect_seals<Seal8>(record, 5, 3);
  expect_opens<OpenPrivate>(record, 5, 2, at);
}

TEST(CudaBodiesChacha, EveryBitOfATagCounts) {
  const Record record(kSuite, 1000, 512, 9);
  for (int bit = 0; bit < 128; ++bit) {
    Bytes wire = record.wire;
    wire[512 + static_cast<std::size_t>(bit / 8)] ^= static_cast<std::byte>(1 << (bit % 8));
    Shifted dst(record.plaintext.size(), 0);
    const BadTag bad = open_record<Open4>(record, wire, CombineOp{}, dst, 1);
    ASSERT_EQ(bad.refused, 1u);
    ASSERT_EQ(bad.first_segment, 0u);
    ASSERT_TRUE(std::ranges::all_of(dst.span(), [](std::byte b) { return b == std::byte{0xA5}; }));
  }
}

TEST(CudaBodiesChacha, ARefusedSegmentAndLaterOnesOfItsColumnWriteNothing) {
  const Record record(kSuite, 20 * 1024 + 100, 1024, 10);
  for (const std::uint32_t broken : {0u, 7u, 19u, 20u}) {
    Bytes wire = record.wire;
    wire[record.layout.wire_offset(broken) + 13] ^= std::byte{0x40};
    Shifted dst(record.plaintext.size(), 3);
    const BadTag bad = open_record<Open4>(record, wire, CombineOp{}, dst, 1);
    ASSERT_EQ(bad.refused, 1u);
    ASSERT_EQ(bad.first_segment, broken);
    ASSERT_NO_FATAL_FAILURE(expect_opened_before(record, dst, broken));
  }
}

TEST(CudaBodiesChacha, SmallRefusesAnyBrokenByte) {
  std::mt19937_64 random(1);
  for (int n = 0; n < 200; ++n) {
    const auto segment = static_cast<std::uint32_t>(16 * (1 + random() % 512));
    const auto columns = static_cast<std::uint32_t>(1 + random() % 4);
    const Record record(kSuite, 1 + random() % (segment * 12ull), segment, random());
    const auto broken = static_cast<std::uint32_t>(random() % record.layout.segments());
    Bytes wire = record.wire;
    wire[record.layout.wire_offset(broken) + random() % (record.layout.payload_of(broken) + kTagBytes)] ^=
        static_cast<std::byte>(1 << random() % 8);
    Shifted dst(record.plaintext.size(), random() % 16);
    const BadTag bad = open_record<OpenSmall<CombineKind::replace>>(record, wire, CombineOp{}, dst, columns);
    ASSERT_EQ(bad.refused, 1u);
    ASSERT_EQ(bad.first_segment, broken);
    ASSERT_NO_FATAL_FAILURE(expect_opened_before(record, dst, broken, columns));
  }
}

// [protocol A.6] What a kernel clears is cleared here; a one-time key, which is the first half of block 0 of
// the keystream [RFC 8439 §2.6], is nowhere else. Rows that pad a first tile have that block, too.
template <class Body>
void expect_no_key_left(std::uint32_t bytes) {
  const Record record(kSuite, bytes, 8192, 5);
  const auto shared = std::make_unique<typename Body::Shared>();
  Shifted in(bytes, 0), wire(record.wire.size(), 0), dst(bytes, 0);
  in.set(record.plaintext);
  wire.set(record.wire);
  Bytes scratch(4 * 8192 + 16);
  SegmentJob job = record.job();
  job.plaintext = in.data();
  job.wire = wire.data();
  job.combine.dst = dst.data();
  job.combine.local = dst.data();
  job.private_tiles = scratch.data() + (16 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 16) % 16;
  HostBlock block(Body::kThreads);
  Body::run(block, *shared, job, record.op, record.key, Column{0, 1});
  ASSERT_EQ(shared->bad.refused, 0u);
  const NonceWords nonce = nonce_words(record.key, record.op.first_number);
  const chacha20::Block once = chacha20::keystream(record.key.key, nonce.words, 0);
  const auto* const begin = reinterpret_cast<const std::byte*>(shared.get());
  const auto* const key = reinterpret_cast<const std::byte*>(once.words);
  for (std::size_t at = 0; at + 16 <= sizeof *shared; at += 4) {
    if (at >= Body::kSecretsFrom && at < offsetof(typename Body::Shared, bad)) continue;
    for (int half = 0; half < 2; ++half)
      ASSERT_NE(std::memcmp(begin + at, key + 16 * half, 16), 0) << bytes << " bytes, at " << at;
  }
}

TEST(CudaBodiesChacha, NoOneTimeKeyIsLeft) {
  for (const std::uint32_t bytes : {100u, 2049u, 8192u}) {
    expect_no_key_left<Seal4>(bytes);
    expect_no_key_left<SealSmall>(bytes);
    expect_no_key_left<Open4>(bytes);
    expect_no_key_left<OpenPrivate>(bytes);
    expect_no_key_left<OpenSmall<CombineKind::replace>>(bytes);
  }
}

template <class Open>
void expect_context_counts() {
  const Record good(kSuite, 3000, 1024, 11);
  const auto refused = [&](auto change) {
    Record other = good;
    change(other);
    Shifted dst(good.plaintext.size(), 0);
    return open_record<Open>(other, good.wire, CombineOp{}, dst, 1).refused == 1;
  };
  EXPECT_FALSE(refused([](Record&) {}));
  EXPECT_TRUE(refused([](Record& r) { ++r.op.first_number; }));
  EXPECT_TRUE(refused([](Record& r) { ++r.op.epoch; }));
  EXPECT_TRUE(refused([](Record& r) { r.op.seq ^= 1ull << 40; }));
  EXPECT_TRUE(refused([](Record& r) { r.context.element_offset += 1ull << 32; }));
  EXPECT_TRUE(refused([](Record& r) { ++r.context.sender; }));
  EXPECT_TRUE(refused([](Record& r) { r.key.key[7] ^= 1; }));
}
TEST(CudaBodiesChacha, ContextAndNumberAreAuthenticated) {
  expect_context_counts<Open4>();
  expect_context_counts<OpenSmall<CombineKind::replace>>();
}

// NaN payloads are nobody's promise: every NaN becomes the one that failures are marked with.
void canonical_nan(DType dtype, std::span<std::byte> memory) {
  const std::size_t bytes = dtype_bytes(dtype);
  for (std::size_t at = 0; dtype_is_float(dtype) && at < memory.size(); at += bytes) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, memory.data() + at, bytes);
    const std::uint64_t infinity = dtype == DType::f64   ? 0x7FFull << 52
                                   : dtype == DType::f32 ? 0x7F800000u
                                   : dtype == DType::f16 ? 0x7C00u
                                                         : 0x7F80u;
    if ((bits & ((1ull << (8 * bytes - 1)) - 1)) > infinity) poison(dtype, memory.subspan(at, bytes));
  }
}

// Opens by `combine` and compares with the CPU's reduction.
template <class Open>
void expect_combines_by(RedOp redop, DType dtype, std::uint32_t divisor) {
  const std::uint32_t bytes = 4096 + 16 * 3 + 2 * dtype_bytes(dtype);
  const Record record(kSuite, bytes, 1024, 77 + static_cast<std::uint64_t>(dtype), dtype);
  std::mt19937_64 random(5);
  const Bytes local = random_bytes(random, bytes);
  Bytes expected(bytes);
  const std::byte* const sources[] = {local.data(), record.plaintext.data()};
  ReduceJob job;
  job.dtype = dtype;
  job.redop = redop;
  job.sources = sources;
  job.dst = expected.data();
  job.elements = bytes / dtype_bytes(dtype);
  job.divisor = divisor;
  ASSERT_TRUE(reduce_cpu(job));
  canonical_nan(dtype, expected);
  for (const std::size_t shift : {0, 4, 8, 2, 1}) {
    Shifted dst(bytes, shift);
    dst.set(local);
    CombineOp combine;
    combine.redop = redop;
    combine.dtype = dtype;
    combine.divisor = divisor;
    ASSERT_EQ(open_record<Open>(record, record.wire, combine, dst, 2).refused, 0u);
    canonical_nan(dtype, dst.span());
    ASSERT_EQ(std::memcmp(dst.data(), expected.data(), bytes), 0)
        << to_string(redop) << " " << to_string(dtype) << " shift " << shift;
  }
}
template <CombineKind K>
void expect_combines(RedOp redop, DType dtype, std::uint32_t divisor) {
  expect_combines_by<Open8<K>>(redop, dtype, divisor);
  expect_combines_by<OpenSmall<K>>(redop, dtype, divisor);
}

TEST(CudaBodiesChacha, ReceivedFirstReversesAReduction) {
  Record record(kSuite, 3000, 1024, 12, DType::f32);
  record.plaintext.assign(3000, std::byte{0});
  record.seal_by_oracle();
  Bytes local(3000);
  for (std::size_t i = 3; i < local.size(); i += 4) local[i] = std::byte{0x80};  // -0
  for (const bool received_first : {false, true}) {
    Shifted dst(3000, 4);
    dst.set(local);
    CombineOp combine;
    combine.redop = RedOp::min;
    combine.dtype = DType::f32;
    combine.received_first = received_first;
    ASSERT_EQ(open_record<Open8<CombineKind::any>>(record, record.wire, combine, dst, 1).refused, 0u);
    const Bytes expected = received_first ? local : Bytes(3000);
    EXPECT_EQ(std::memcmp(dst.data(), expected.data(), 3000), 0);
  }
}

TEST(CudaBodiesChacha, EveryCombineEqualsTheCpus) {
  for (const DType dtype : all_dtypes()) {
    for (const RedOp redop : all_redops()) {
      if (redop == RedOp::none || !reduction_supported(dtype, redop)) continue;
      for (const std::uint32_t divisor : {1u, 3u}) {
        if (divisor != 1 && redop != RedOp::avg) continue;
        switch (combine_kind(redop, dtype, divisor)) {
          case CombineKind::sum_f32:
            expect_combines<CombineKind::sum_f32>(redop, dtype, divisor);
            break;
          case CombineKind::sum_bf16:
            expect_combines<CombineKind::sum_bf16>(redop, dtype, divisor);
            break;
          case CombineKind::sum_f16:
            expect_combines<CombineKind::sum_f16>(redop, dtype, divisor);
            break;
          default:
            break;
        }
        expect_combines<CombineKind::any>(redop, dtype, divisor);
      }
    }
  }
}

}  // namespace
}  // namespace sealring::cuda::test
