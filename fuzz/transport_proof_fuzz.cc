// Claim: no 96 bytes of a stranger make the connection proof read, write or believe what it must not.
// How: every answer is parsed and checked under a fixed key; what parses must encode to the same fields.
#include <algorithm>
#include <cstdlib>

#include "sealring/transport/connection_proof.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sealring;
  ProofAnswer answer{};
  std::transform(data, data + std::min(size, answer.size()), answer.begin(),
                 [](std::uint8_t b) { return std::byte{b}; });
  const std::array<std::byte, 32> key{std::byte{1}};
  const ProofChallenge challenge{};
  if (check_answer(answer, challenge, key)) std::abort();  // a forgery of HMAC-SHA256
  if (const auto fields = parse_answer(answer)) {
    const auto encoded = fields->encode();
    if (!std::equal(encoded.begin(), encoded.end(), answer.begin())) std::abort();
    const ProofAnswer good = make_answer(*fields, challenge, key);
    if (!check_answer(good, challenge, key) || parse_answer(good) != fields) std::abort();
  }
  return 0;
}
