// What SetupRecord::parse takes encodes to the same bytes; the rest is MALFORMED.
#include "sealring/collective/setup_rounds.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sealring;
  const ByteView bytes = std::as_bytes(std::span(data, size));
  const auto record = SetupRecord::parse(bytes);
  if (record) {
    SR_CHECK(record->encode() == to_bytes(bytes));
    SR_CHECK(record->body.size() <= SetupRecord::kBodyBytesMax);
    SR_CHECK(find_code(std::to_string(static_cast<unsigned>(record->code))) != nullptr);
  } else {
    SR_CHECK(record.error().code == Code::malformed);
  }
  return 0;
}
