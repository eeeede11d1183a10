// Claim: the primitives that the kernels are made of give the published vectors of ChaCha20, Poly1305, AES,
// ChaCha20-Poly1305 and AES-GCM, whatever their AAD.
// How: data/vectors through the function that tests/gpu/vectors_gpu_test.cc runs on the device, and changed
// inputs must give something else.
#include "tests/device/primitive_vectors.h"

namespace sealring::test {
namespace {

TEST(PrimitiveVectors, AllAreReproduced) {
  const auto cases = published_cases();
  ASSERT_GE(cases.size(), 13u);
  for (const PublishedCase& each : cases) {
    PrimitiveCase result = each.input;
    run_primitive(result);
    expect_published(each, result);
  }
}

TEST(PrimitiveVectors, AnotherKeyNonceOrAadGivesAnotherTag) {
  for (const PublishedCase& each : published_cases()) {
    if (each.input.aad_bytes == 0) continue;
    const auto tag_of = [](PrimitiveCase c) {
      run_primitive(c);
      return Bytes(reinterpret_cast<const std::byte*>(c.tag), reinterpret_cast<const std::byte*>(c.tag) + 16);
    };
    PrimitiveCase nonce = each.input, aad = each.input, length = each.input;
    nonce.nonce[1] ^= 1;
    aad.aad[0] ^= 0x80;
    length.in_bytes -= 1;
    for (const PrimitiveCase& other : {nonce, aad, length}) EXPECT_NE(tag_of(other), each.tag) << each.name;
  }
}

}  // namespace
}  // namespace sealring::test
