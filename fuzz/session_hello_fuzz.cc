// What Hello::decode takes, encodes to the same bytes; whatever it is given, it only refuses by the codes it
// names.
#include "sealring/session/identity.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sealring;
  const ByteView bytes = std::as_bytes(std::span(data, size));
  const auto hello = Hello::decode(bytes);
  if (hello) {
    SR_CHECK(hello->encode() == to_bytes(bytes));
    SR_CHECK(hello->flags == 0 && hello->version == Hello::kVersion);
  } else {
    SR_CHECK(hello.error().code == Code::malformed || hello.error().code == Code::version);
  }
  return 0;
}
