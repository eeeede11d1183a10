// Claim: the control message decoder takes any bytes, and what it accepts it would have written itself.
// How: decode; encode again; equal unless text was escaped on receipt, which a second pass must leave alone.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "sealring/control/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const auto view = std::as_bytes(std::span(data, bytes));
  const auto message = sealring::decode_control_message(view, 4);
  if (!message) {
    SR_CHECK(message.error().code == sealring::Code::malformed);
    return 0;
  }
  const sealring::Bytes again = sealring::encode(*message);
  if (std::holds_alternative<sealring::AbortReport>(*message)) {
    const auto second =
        sealring::decode_control_message(again, 4);  // escapes may have reached the bounds: cut
    SR_CHECK(second.has_value() && sealring::encode(*second) == again);
  } else {
    SR_CHECK(std::ranges::equal(view, again));
  }
  return 0;
}
