#include "sealring/base/displayed.h"

#include <fmt/format.h>

#include <cstdint>

namespace sealring {
namespace {

/// Characters beyond ASCII that end a line, command a terminal or turn the direction of writing.
bool commands(std::uint32_t character) {
  return (character >= 0x80 && character < 0xa0) || character == 0x061c ||
         (character >= 0x200e && character <= 0x200f) || (character >= 0x2028 && character <= 0x202e) ||
         (character >= 0x2066 && character <= 0x2069);
}

}  // namespace

std::size_t displayable_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  std::uint32_t character = first & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    character = character << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (bytes == 3 && character < 0x800) || (bytes == 4 && character < 0x10000);
  const bool surrogate = character >= 0xd800 && character < 0xe000;
  if (overlong || surrogate || character > 0x10ffff || commands(character)) return 0;
  return bytes;
}

std::string displayed(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t bytes = displayable_bytes(text);
    if (bytes > 0) {
      out += text.substr(0, bytes);
    } else if (text[0] == '\n' || text[0] == '\r' || text[0] == '\t') {
      out += text[0] == '\n' ? "\\n" : text[0] == '\r' ? "\\r" : "\\t";
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    }
    text.remove_prefix(bytes > 0 ? bytes : 1);
  }
  return out;
}

}  // namespace sealring
