// Claim: on the device the primitives give the published vectors, and chained-gmac is AES-256-GCM in small
// segments under its own name.
// How: data/vectors by a kernel of one thread a case (the product's kernels take 80 bytes of AAD and nothing
// else); chained-gmac both ways against OpenSSL, and a broken chain.
#include "tests/device/primitive_vectors.h"
#include "tests/gpu/gpu_rig.h"
#include "tests/gpu/primitive_kernel.h"

namespace sealring::cuda::test {
namespace {

class VectorsGpu : public OnGpu {
 protected:
  std::mt19937_64 random{std::random_device{}()};
};

TEST_F(VectorsGpu, PublishedVectorsByThePrimitives) {
  const auto published = sealring::test::published_cases();
  ASSERT_GE(published.size(), 13u);
  std::vector<sealring::test::PrimitiveCase> cases;
  for (const auto& each : published) cases.push_back(each.input);
  DeviceMemory memory(cases.size() * sizeof cases[0]);
  memory.set(std::as_bytes(std::span(cases)));
  ASSERT_EQ(
      sealring::test::run_primitives_on_gpu(reinterpret_cast<sealring::test::PrimitiveCase*>(memory.data()),
                                            static_cast<unsigned>(cases.size())),
      cudaSuccess);
  const Bytes results = memory.get();
  std::memcpy(cases.data(), results.data(), results.size());
  for (std::size_t i = 0; i < cases.size(); ++i) sealring::test::expect_published(published[i], cases[i]);
}

TEST_F(VectorsGpu, ChainedGmacBothWays) {
  for (const std::uint64_t chain : {16, 256, 1024, 4096, 16384}) {
    for (const std::uint64_t bytes : {std::uint64_t{0}, chain - 1, chain * 37 + 5}) {
      const Record record(Suite::chained_gmac, bytes, static_cast<std::uint32_t>(chain), random());
      SCOPED_TRACE("chain " + std::to_string(chain) + ", " + std::to_string(bytes) + " bytes");
      ASSERT_TRUE(sealed_on_gpu(record, bytes % 16) == record.wire);
      DeviceMemory dst(bytes, 3);
      const auto verdict = opened_on_gpu(record, record.wire, CombineOp{}, dst);
      ASSERT_TRUE(verdict) << verdict.error().message();
      ASSERT_TRUE(dst.get() == record.plaintext);
    }
  }
}

TEST_F(VectorsGpu, ABrokenChainAndAnotherSuitesRecordAreRefused) {
  const Record record(Suite::chained_gmac, 100000, 1024, random());
  DeviceMemory dst(record.plaintext.size());
  Bytes broken = record.wire;
  broken[50 * 1040 + 1030] ^= std::byte{0x10};  // in the tag of chain 50
  const auto verdict = opened_on_gpu(record, broken, CombineOp{}, dst);
  ASSERT_FALSE(verdict);
  EXPECT_EQ(verdict.error().code, Code::data_tag);
  EXPECT_NE(verdict.error().message().find("segment 50 "), std::string::npos) << verdict.error().message();
  EXPECT_TRUE(dst.get() == Bytes(record.plaintext.size(), std::byte{0xFF}));
  Record plain_gcm = record;  // the same key and numbers, named aes-256-gcm in the AAD
  plain_gcm.suite = Suite::aes_256_gcm;
  plain_gcm.context.suite = Suite::aes_256_gcm;
  plain_gcm.seal_by_oracle();
  EXPECT_EQ(opened_on_gpu(record, plain_gcm.wire, CombineOp{}, dst).error().code, Code::data_tag);
}

}  // namespace
}  // namespace sealring::cuda::test
