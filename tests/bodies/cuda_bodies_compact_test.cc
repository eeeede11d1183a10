// Claim: the AES-GCM body for GPUs with little shared memory is standard AEAD at any length and alignment,
// reads a window once, writes nothing of a refused segment, and is what such a GPU gets.
// How: it runs on the host and is compared with OpenSSL; reads of the window are counted; kernels are picked
// for the shared memory of real GPUs.
#include "sealring/device/cuda/aes_body.h"
#include "sealring/device/cuda/aes_compact.h"
#include "tests/bodies/cuda_body_rig.h"

namespace sealring::cuda::test {
namespace {

using Seal = AesCompactBody<Direction::seal, CombineKind::replace>;
using OpenReplace = AesCompactBody<Direction::open, CombineKind::replace>;
using OpenAny = AesCompactBody<Direction::open, CombineKind::any>;

/// Where plaintext waits: enough for three columns.
std::byte* scratch() {
  static Bytes memory(3 * 131072 + 16);
  return memory.data() + (16 - reinterpret_cast<std::uintptr_t>(memory.data()) % 16) % 16;
}

constexpr Suite kSuites[] = {Suite::aes_256_gcm, Suite::aes_128_gcm, Suite::chained_gmac};

struct CompactRecord : Record {
  CompactRecord(Suite suite_in, std::uint64_t payload_bytes, std::uint32_t segment_bytes, std::uint64_t seed,
                DType dtype = DType::u8)
      : Record(suite_in, payload_bytes, segment_bytes, seed, dtype), gcm(std::make_unique<GcmKey>()) {
    make_gcm_key(key_bytes, *gcm);
    key.gcm = gcm.get();
  }
  std::unique_ptr<GcmKey> gcm;
};

TEST(CudaBodiesCompact, EveryLengthUpTo600AndSomeBeyond) {
  for (std::uint32_t bytes = 0; bytes <= 20000; bytes += bytes < 600 ? 1 : 1237) {
    const CompactRecord record(kSuites[bytes % 3], bytes, 20480, bytes);
    expect_seals<Seal>(record, bytes % 16, 1);
    expect_opens<OpenReplace>(record, (bytes / 16) % 16, 1, scratch());
    if (HasFailure()) return;
  }
}

TEST(CudaBodiesCompact, ManySegmentsColumnsAndAlignments) {
  std::mt19937_64 random(21);
  for (int n = 0; n < 24; ++n) {
    const auto segment = static_cast<std::uint32_t>(1 + random() % 1024) * 16;
    const CompactRecord record(kSuites[n % 3], random() % (segment * 20ull), segment, random());
    const auto columns = static_cast<std::uint32_t>(1 + random() % 3);
    expect_seals<Seal>(record, random() % 16, columns);
    expect_opens<OpenReplace>(record, random() % 16, columns, scratch());
    if (HasFailure()) return;
  }
}

TEST(CudaBodiesCompact, BlocksBeyondTheFirstTableOfPowers) {
  const CompactRecord record(Suite::aes_256_gcm, 130001, 131072, 4);
  expect_seals<Seal>(record, 0, 1);
  expect_opens<OpenReplace>(record, 0, 1, scratch());
}

TEST(CudaBodiesCompact, ARefusedSegmentAndLaterOnesOfItsColumnWriteNothing) {
  const CompactRecord record(Suite::aes_256_gcm, 6 * 1024 + 100, 1024, 10);
  for (const std::uint32_t broken : {0u, 3u, 6u}) {
    for (const std::uint64_t at : {std::uint64_t{13}, std::uint64_t{record.layout.payload_of(broken)} + 15}) {
      Bytes wire = record.wire;
      wire[record.layout.wire_offset(broken) + at] ^= std::byte{0x40};
      Shifted dst(record.plaintext.size(), 3);
      const BadTag bad = open_record<OpenReplace>(record, wire, CombineOp{}, dst, 1, scratch());
      ASSERT_EQ(bad.refused, 1u);
      ASSERT_EQ(bad.first_segment, broken);
      ASSERT_NO_FATAL_FAILURE(expect_opened_before(record, dst, broken));
    }
  }
}

TEST(CudaBodiesCompact, EveryBitOfATagCounts) {
  const CompactRecord record(Suite::aes_128_gcm, 100, 512, 9);
  for (std::size_t bit = 0; bit < 128; ++bit) {
    Bytes wire = record.wire;
    wire[100 + bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    Shifted dst(record.plaintext.size(), 0);
    ASSERT_EQ(open_record<OpenReplace>(record, wire, CombineOp{}, dst, 1, scratch()).refused, 1u);
  }
}

TEST(CudaBodiesCompact, SumsOfTraining) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::u8}) {
    CompactRecord record(Suite::aes_256_gcm, 4096 + 16 * 3 + 4, 1024, 77, dtype);
    const std::size_t size = dtype_bytes(dtype);
    std::mt19937_64 random(5);
    Bytes local = random_bytes(random, record.plaintext.size());
    // Finite numbers only: the payload of a NaN is nobody's promise.
    for (std::size_t at = size - 1; dtype_is_float(dtype) && at < local.size(); at += size) {
      local[at] &= std::byte{0xBB};
      record.plaintext[at] &= std::byte{0xBB};
    }
    record.seal_by_oracle();
    Bytes expected(local.size());
    const std::byte* const sources[] = {local.data(), record.plaintext.data()};
    ReduceJob job;
    job.dtype = dtype;
    job.redop = RedOp::sum;
    job.sources = sources;
    job.dst = expected.data();
    job.elements = local.size() / size;
    ASSERT_TRUE(reduce_cpu(job));
    for (const std::size_t shift : {0, 4, 1}) {
      Shifted dst(local.size(), shift);
      dst.set(local);
      CombineOp combine;
      combine.redop = RedOp::sum;
      combine.dtype = dtype;
      ASSERT_EQ(open_record<OpenAny>(record, record.wire, combine, dst, 2, scratch()).refused, 0u);
      ASSERT_EQ(std::memcmp(dst.data(), expected.data(), expected.size()), 0) << to_string(dtype) << shift;
    }
  }
}

// The list's order for AES, with what the bodies take; a kernel adds keys and its op's descriptor.
TEST(CudaBodiesCompact, GpusWithLittleSharedMemoryGetIt) {
  constexpr std::size_t kAround = 512;
  const auto entry = [](Direction direction, std::size_t shared) {
    KernelEntry out;
    out.suite = Suite::aes_256_gcm;
    out.direction = direction;
    out.segment_max = 1u << 27;
    out.shared_bytes = shared + kAround;
    return out;
  };
  using WideSeal = AesBody<AesConfig<Direction::seal, CombineKind::replace>>;
  using WideOpen = AesBody<AesConfig<Direction::open, CombineKind::replace>>;
  const KernelEntry list[] = {
      entry(Direction::seal, sizeof(WideSeal::Shared)), entry(Direction::open, sizeof(WideOpen::Shared)),
      entry(Direction::seal, sizeof(Seal::Shared)), entry(Direction::open, sizeof(OpenReplace::Shared))};
  struct Gpu {
    const char* name;
    std::size_t shared_max;
    int first;  ///< in the list
  };
  const Gpu gpus[] = {{"sm_80", 163 << 10, 2}, {"sm_86", 99 << 10, 2},   {"sm_89", 99 << 10, 2},
                      {"sm_90", 227 << 10, 0}, {"sm_100", 227 << 10, 0}, {"sm_120", 99 << 10, 2}};
  for (const Gpu& gpu : gpus) {
    for (const Direction direction : {Direction::seal, Direction::open}) {
      for (const Suite suite : {Suite::aes_256_gcm, Suite::chained_gmac}) {
        const KernelEntry* const picked =
            pick_kernel(list, suite, direction, CombineKind::replace, 65536, gpu.shared_max);
        EXPECT_EQ(picked, &list[gpu.first + (direction == Direction::open ? 1 : 0)]) << gpu.name;
      }
    }
  }
}

}  // namespace
}  // namespace sealring::cuda::test
