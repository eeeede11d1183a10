// What Note::decode takes is in range and encodes to the same bytes. The first two input bytes are the
// world's size.
#include "sealring/session/handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sealring;
  const ByteView bytes = std::as_bytes(std::span(data, size));
  if (bytes.size() < 2) return 0;
  const auto world = load_be<std::uint16_t>(bytes.data());
  const auto note = Note::decode(bytes.subspan(2), world);
  if (note) {
    SR_CHECK(note->encode() == to_bytes(bytes.subspan(2)));
    SR_CHECK(note->rank < world && note->peer >= -1 && note->peer < world && note->code != Code::ok);
    SR_CHECK(find_code(std::to_string(static_cast<unsigned>(note->code))) != nullptr);
  } else {
    SR_CHECK(note.error().code == Code::malformed || note.error().code == Code::version);
  }
  return 0;
}
