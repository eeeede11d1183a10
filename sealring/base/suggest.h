// "Did you mean ...?": the known word that a mistyped one was most likely meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sealring {

/// Letters inserted, left out, replaced, or swapped with their neighbour, that make `b` of `a`.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate that `word` was most likely meant to be; empty when none is near. Near is one edit for up to
/// 4 letters, two for up to 11, three beyond; or a candidate that begins or ends with a word of 4 letters or
/// more.
std::string nearest_word(std::string_view word, std::span<const std::string_view> candidates);
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace sealring
