// Claim: the frame opener takes any byte stream in any pieces, opens nothing that was not sealed, and holds
// no more
//        memory than it was fed.
// How: the first byte chooses how the rest is cut; one true frame stands in front, so that what follows is
// parsed.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "sealring/control/frame.h"

namespace {

sealring::KeyChain chain() {
  sealring::SecretBytes root(64);
  root.data()[0] = std::byte{1};  // all zeros would be a forked process's
  return sealring::KeyChain(std::move(root), sealring::Suite::aes_256_gcm);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  if (bytes == 0) return 0;
  const std::size_t piece_bytes = 1 + data[0];
  auto rest = std::as_bytes(std::span(data, bytes)).subspan(1);
  sealring::FrameDirection direction;
  direction.to = 1;
  sealring::FrameSealer sealer(chain(), direction, {});
  sealring::FrameOpener opener(chain(), direction, {});
  const auto first = sealer.seal(sealring::as_bytes("true"));
  SR_CHECK(first.has_value());
  opener.feed(*first);
  const auto opened = opener.next();
  SR_CHECK(opened.has_value() && opened->has_value() && (*opened)->size() == 4);
  bool failed = false;
  while (!rest.empty()) {
    const std::size_t take = std::min(piece_bytes, rest.size());
    opener.feed(rest.first(take));
    rest = rest.subspan(take);
    const auto next = opener.next();
    SR_CHECK(!next.has_value() || !next->has_value());  // 2^-128 a try
    SR_CHECK(!failed || !next.has_value());
    failed = !next.has_value();
  }
  return 0;
}
