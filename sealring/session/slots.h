// Slot names "m5/0/3" to numbers and back. Private to session/.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sealring/base/types.h"

namespace sealring::internal {

/// A slot's name taken apart: "hello/2" has only `first`.
struct Slot {
  std::string_view kind;  ///< points into the name
  Rank first = 0;
  std::optional<Rank> second;
};

std::string slot_name(std::string_view kind, Rank first);
std::string slot_name(std::string_view kind, Rank first, Rank second);
/// nullopt unless slot_name gives the same text back: "hello/02" is no name.
std::optional<Slot> parse_slot(std::string_view name);

}  // namespace sealring::internal
