// Text that others wrote (the environment, files, peers), made fit for a line of a terminal or a log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sealring {

/// Bytes of the character that `text` begins with, 0 when it is not to be shown as it is: a control character
/// (C0, DEL, C1), a separator of lines, a mark that turns the direction of writing, or no valid UTF-8.
std::size_t displayable_bytes(std::string_view text);

/// `text` with every byte that is not to be shown as \n, \r, \t or \xNN: one line, and valid UTF-8.
std::string displayed(std::string_view text);

}  // namespace sealring
