// Claim: the AES-GCM kernel bodies are standard AEAD at any length and alignment, read a window once, and
// write nothing
//        of a refused segment.
// How: the bodies run on the host, tensor-core instructions included, and are compared with OpenSSL; reads of
// the
//      window are counted byte by byte.
#include "sealring/device/cuda/aes_body.h"
#include "tests/bodies/cuda_body_rig.h"

namespace sealring::cuda::test {
namespace {

using Seal = AesBody<AesConfig<Direction::seal, CombineKind::replace>>;
template <CombineKind K>
using Open = AesBody<AesConfig<Direction::open, K>>;
using OpenReplace = Open<CombineKind::replace>;

/// Where plaintext waits: enough for three columns.
std::byte* scratch() {
  static Bytes memory(3 * OpenReplace::kDepth * OpenReplace::private_bytes(131072) + 16);
  return memory.data() + (16 - reinterpret_cast<std::uintptr_t>(memory.data()) % 16) % 16;
}

constexpr Suite kSuites[] = {Suite::aes_256_gcm, Suite::aes_128_gcm};

struct AesRecord : Record {
  AesRecord(Suite suite_in, std::uint64_t payload_bytes, std::uint32_t segment_bytes, std::uint64_t seed,
            DType dtype = DType::u8)
      : Record(suite_in, payload_bytes, segment_bytes, seed, dtype), gcm(std::make_unique<GcmKey>()) {
    make_gcm_key(key_bytes, *gcm);
    key.gcm = gcm.get();
  }
  std::unique_ptr<GcmKey> gcm;
};

// One key for many lengths: its set-up takes longer than a short record.
TEST(CudaBodiesAes, EveryLengthUpTo4KiB) {
  for (const Suite suite : kSuites) {
    const AesRecord keyed(suite, 0, 8192, 1);
    for (std::uint32_t bytes = suite == Suite::aes_256_gcm ? 0 : 7; bytes <= 4096;
         bytes += suite == Suite::aes_256_gcm ? 1 : 61) {
      Record record(suite, bytes, 8192, bytes);
      record.key_bytes = keyed.key_bytes;
      std::memcpy(record.key.key, keyed.key.key, sizeof record.key.key);
      record.key.gcm = keyed.key.gcm;
      record.seal_by_oracle();
      expect_seals<Seal>(record, bytes % 16, 1);
      expect_opens<OpenReplace>(record, bytes % 16, 1, scratch());
      if (HasFailure()) return;
    }
  }
}

TEST(CudaBodiesAes, EveryAlignmentAt64Lengths) {
  for (std::uint32_t n = 0; n < 64; ++n) {
    const std::uint32_t bytes = n * 97 + 1;
    const AesRecord record(kSuites[n % 2], bytes, 4096, n);
    for (std::size_t shift = 0; shift < 16; ++shift) {
      expect_seals<Seal>(record, shift, 1);
      expect_opens<OpenReplace>(record, shift, 1, scratch());
      if (HasFailure()) return;
    }
  }
}

TEST(CudaBodiesAes, LargerRecordsManySegmentsAndColumns) {
  std::mt19937_64 random(20);
  for (int n = 0; n < 12; ++n) {
    const auto segment = static_cast<std::uint32_t>(1 + random() % 2048) * 16;
    const std::uint64_t bytes = random() % (segment * 40ull);
    const AesRecord record(kSuites[n % 2], bytes, segment, random());
    const auto columns = static_cast<std::uint32_t>(1 + random() % 3);
    expect_seals<Seal>(record, random() % 16, columns);
    expect_opens<OpenReplace>(record, random() % 16, columns, scratch());
    if (HasFailure()) return;
  }
}

TEST(CudaBodiesAes, SegmentsOfManyRounds) {
  for (const std::uint32_t segment : {131072u, 33024u, 16384u, 4096u}) {
    const AesRecord record(Suite::aes_256_gcm, 500001, segment, 3);
    expect_seals<Seal>(record, 5, 3);
    expect_opens<OpenReplace>(record, 5, 2, scratch());
  }
}

TEST(CudaBodiesAes, BlocksBeyondTheSecondTableOfPowers) {  // more than 65536 blocks
  const AesRecord record(Suite::aes_128_gcm, (1u << 20) + 4000, 1u << 21, 4);
  expect_seals<Seal>(record, 0, 1);
}

TEST(CudaBodiesAes, ChainedGmacIsGcmInSmallSegments) {
  for (const std::uint32_t chain : {16u, 256u, 1024u}) {
    const AesRecord record(Suite::chained_gmac, chain * 21 + 5, chain, chain);
    expect_seals<Seal>(record, 1, 2);
    expect_opens<OpenReplace>(record, 1, 2, scratch());
  }
}

TEST(CudaBodiesAes, EveryBitOfATagCounts) {
  const AesRecord record(Suite::aes_256_gcm, 1000, 512, 9);
  for (int bit = 0; bit < 128; ++bit) {
    Bytes wire = record.wire;
    wire[512 + static_cast<std::size_t>(bit / 8)] ^= static_cast<std::byte>(1 << (bit % 8));
    Shifted dst(record.plaintext.size(), 0);
    const BadTag bad = open_record<OpenReplace>(record, wire, CombineOp{}, dst, 1, scratch());
    ASSERT_EQ(bad.refused, 1u);
    ASSERT_EQ(bad.first_segment, 0u);
    ASSERT_NO_FATAL_FAILURE(expect_opened_before(record, dst, 0, kQuarters));
  }
}

TEST(CudaBodiesAes, ARefusedSegmentAndLaterOnesOfItsQuarterWriteNothing) {
  const AesRecord record(Suite::aes_256_gcm, 20 * 1024 + 100, 1024, 10);
  for (const std::uint32_t broken : {0u, 7u, 19u, 20u}) {
    Bytes wire = record.wire;
    wire[record.layout.wire_offset(broken) + 13] ^= std::byte{0x40};
    Shifted dst(record.plaintext.size(), 3);
    const BadTag bad = open_record<OpenReplace>(record, wire, CombineOp{}, dst, 1, scratch());
    ASSERT_EQ(bad.refused, 1u);
    ASSERT_EQ(bad.first_segment, broken);
    ASSERT_NO_FATAL_FAILURE(expect_opened_before(record, dst, broken, kQuarters));
  }
}

TEST(CudaBodiesAes, SumsOfTraining) {
  const auto check = [](auto body, DType dtype) {
    AesRecord finite(Suite::aes_256_gcm, 4096 + 16 * 3 + 4, 1024, 77, dtype);
    const std::size_t size = dtype_bytes(dtype);
    std::mt19937_64 random(5);
    Bytes local = random_bytes(random, finite.plaintext.size());
    // Finite numbers only: the payload of a NaN is nobody's promise.
    for (std::size_t at = size - 1; at < local.size(); at += size) {
      local[at] &= std::byte{0xBB};
      finite.plaintext[at] &= std::byte{0xBB};
    }
    finite.seal_by_oracle();
    Bytes expected(local.size());
    const std::byte* const sources[] = {local.data(), finite.plaintext.data()};
    ReduceJob job;
    job.dtype = dtype;
    job.redop = RedOp::sum;
    job.sources = sources;
    job.dst = expected.data();
    job.elements = local.size() / size;
    ASSERT_TRUE(reduce_cpu(job));
    for (const std::size_t shift : {0, 4, 2, 1}) {
      Shifted dst(local.size(), shift);
      dst.set(local);
      CombineOp combine;
      combine.redop = RedOp::sum;
      combine.dtype = dtype;
      ASSERT_EQ(open_record<decltype(body)>(finite, finite.wire, combine, dst, 2, scratch()).refused, 0u);
      ASSERT_EQ(std::memcmp(dst.data(), expected.data(), expected.size()), 0) << to_string(dtype) << shift;
    }
  };
  check(Open<CombineKind::sum_f32>{}, DType::f32);
  check(Open<CombineKind::sum_bf16>{}, DType::bf16);
  check(Open<CombineKind::sum_f16>{}, DType::f16);
  check(Open<CombineKind::any>{}, DType::i32);
}

}  // namespace
}  // namespace sealring::cuda::test
