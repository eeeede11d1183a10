#include "sealring/session/slots.h"

#include <fmt/format.h>

#include <charconv>

namespace sealring::internal {
namespace {

std::optional<Rank> parse_rank(std::string_view text) {
  Rank rank = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (problem != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (text.size() > 1 && text.front() == '0') return std::nullopt;
  return rank;
}

}  // namespace

std::string slot_name(std::string_view kind, Rank first) { return fmt::format("{}/{}", kind, first); }

std::string slot_name(std::string_view kind, Rank first, Rank second) {
  return fmt::format("{}/{}/{}", kind, first, second);
}

std::optional<Slot> parse_slot(std::string_view name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  Slot slot;
  slot.kind = name.substr(0, slash);
  name.remove_prefix(slash + 1);
  const std::size_t next = name.find('/');
  const auto first = parse_rank(name.substr(0, next));
  if (!first) return std::nullopt;
  slot.first = *first;
  if (next == std::string_view::npos) return slot;
  slot.second = parse_rank(name.substr(next + 1));
  if (!slot.second) return std::nullopt;
  return slot;
}

}  // namespace sealring::internal
