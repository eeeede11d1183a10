// What Evidence::decode takes, encodes to the same bytes and is within the limits; both verifiers then only
// refuse it.
#include "sealring/session/identity.h"

namespace {

using namespace sealring;

const SimulatedRoot& root() {
  static const SimulatedRoot instance;
  return instance;
}

void expect_refused(const Identity& identity, const Evidence& evidence) {
  const Claim claim{Phase::join, 1, Bytes(132, std::byte{5})};
  SR_CHECK(!identity.verifier->verify(evidence, claim, Hello{}).has_value());  // nobody can guess a proof
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Identity simulated = root().make_identity({});
  static const Identity by_key = make_job_key_identity(JobKey::generate());
  const ByteView bytes = std::as_bytes(std::span(data, size));
  const auto evidence = Evidence::decode(bytes);
  if (!evidence) {
    SR_CHECK(evidence.error().code == Code::malformed);
    return 0;
  }
  SR_CHECK(evidence->encode() == to_bytes(bytes) && size <= 64 * 1024);
  expect_refused(simulated, *evidence);
  expect_refused(by_key, *evidence);
  return 0;
}
