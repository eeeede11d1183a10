// The canonical text of a configuration, and the process environment.
#include "sealring/collective/config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "sealring/base/suggest.h"

extern char** environ;

namespace sealring {
namespace {

constexpr std::string_view kPrefix = "SEALRING_";
constexpr std::string_view kStage = "environment";

/// Every variable that this project reads. SEALRING_TORCH_INDEX belongs to the installer and is ignored here.
constexpr std::array<std::string_view, 14> kVariables = {
    "SEALRING_ALLOW_MIXED", "SEALRING_BLOCKING_WAIT", "SEALRING_HARDEN",        "SEALRING_JOB_KEY_FILE",
    "SEALRING_LOG",         "SEALRING_NODE_RANKS",    "SEALRING_ON_ERROR",      "SEALRING_PATH",
    "SEALRING_PORT_RANGE",  "SEALRING_REQUIRE",       "SEALRING_SOCKET_IFNAME", "SEALRING_SUITE",
    "SEALRING_TIMEOUT_S",   "SEALRING_TORCH_INDEX",
};

/// The variable that `name` was most likely meant to be, by what follows the prefix; empty when none is near.
std::string nearest(std::string_view name) {
  std::vector<std::string_view> endings;
  for (const std::string_view known : kVariables) endings.push_back(known.substr(kPrefix.size()));
  const std::string ending = nearest_word(name.substr(kPrefix.size()), endings);
  return ending.empty() ? ending : std::string(kPrefix) + ending;
}

/// A foreign value in a message: printable, and not longer than a line.
std::string shown(std::string_view value) {
  std::string out;
  for (const char c : value.substr(0, 60)) out += std::isprint(static_cast<unsigned char>(c)) ? c : '?';
  return value.size() > 60 ? out + "..." : out;
}

tl::unexpected<Error> bad_value(std::string_view name, std::string_view value, std::string_view takes) {
  Error error;
  error.code = Code::environment;
  error.stage = kStage;
  error.what = std::string(name) + " has a value that it does not take";
  error.expected = takes;
  error.got = shown(value);
  error.next = "set " + std::string(name) + " to " + std::string(takes) + ", or unset it";
  return fail(std::move(error));
}

Result<bool> parse_flag(std::string_view name, std::string_view value) {
  if (value == "1") return true;
  if (value == "0") return false;
  return bad_value(name, value, "0 or 1");
}

Result<double> parse_seconds(std::string_view name, std::string_view value) {
  double seconds = 0;
  const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  const bool whole = problem == std::errc() && end == value.data() + value.size();
  // The bound keeps the conversion to nanoseconds inside 64 bits.
  if (!whole || !std::isfinite(seconds) || seconds < 0.001 || seconds > 1e8)
    return bad_value(name, value, "seconds between 0.001 and 100000000");
  return seconds;
}

Result<std::uint16_t> parse_ranks(std::string_view name, std::string_view value) {
  std::uint16_t number = 0;
  const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole = problem == std::errc() && end == value.data() + value.size();
  if (!whole || number == 0 || number > kRanksMax)
    return bad_value(name, value, "a number of ranks from 1 to " + std::to_string(kRanksMax));
  return number;
}

/// "29600-29700", or one port.
Result<void> parse_ports(std::string_view name, std::string_view value, Environment& out) {
  constexpr std::string_view kTakes = "a port or a range such as 29600-29700 (1 to 65535)";
  const auto port = [](std::string_view text) -> std::uint16_t {
    std::uint32_t number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (problem != std::errc() || end != text.data() + text.size() || number > 65535) return 0;
    return static_cast<std::uint16_t>(number);
  };
  const std::size_t dash = value.find('-');
  out.port_min = port(value.substr(0, dash));
  out.port_max = dash == std::string_view::npos ? out.port_min : port(value.substr(dash + 1));
  if (out.port_min == 0 || out.port_max == 0 || out.port_min > out.port_max)
    return bad_value(name, value, kTakes);
  out.port_range = value;
  return {};
}

Result<Suite> parse_secured_suite(std::string_view name, std::string_view value) {
  const std::optional<Suite> suite = parse_suite(value);
  if (suite && !suite_is_study(*suite)) return *suite;
  // No variable turns a secured backend into a plain one: study suites are not among the values.
  return bad_value(name, value, "aes-256-gcm, aes-128-gcm or chacha20-poly1305");
}

Result<std::string> parse_choice(std::string_view name, std::string_view value,
                                 std::initializer_list<std::string_view> choices) {
  std::string takes;
  for (const std::string_view choice : choices) {
    if (choice == value) return std::string(value);
    takes += (takes.empty() ? "" : ", ") + std::string(choice);
  }
  return bad_value(name, value, "one of " + takes);
}

Result<void> apply(std::string_view name, const std::string& value, Environment& out) {
  const std::string_view key = name.substr(kPrefix.size());
  if (key == "TORCH_INDEX" || value.empty()) return {};
  if (key == "JOB_KEY_FILE") out.job_key_file = value;
  if (key == "SOCKET_IFNAME") out.socket_ifname = value;
  if (key == "PORT_RANGE") return parse_ports(name, value, out);
  if (key == "SUITE") {
    SR_TRY(out.suite, parse_secured_suite(name, value));
  }
  if (key == "TIMEOUT_S") {
    SR_TRY(out.timeout_s, parse_seconds(name, value));
  }
  if (key == "NODE_RANKS") {
    SR_TRY(out.node_ranks, parse_ranks(name, value));
  }
  if (key == "ON_ERROR") {
    SR_TRY(const std::string choice, (parse_choice(name, value, {"exit", "raise"})));
    out.on_error = choice == "raise" ? OnError::raise : OnError::exit;
  }
  if (key == "BLOCKING_WAIT") {
    SR_TRY(out.blocking_wait, parse_flag(name, value));
  }
  if (key == "REQUIRE") {
    SR_TRY(out.require, parse_flag(name, value));
  }
  if (key == "ALLOW_MIXED") {
    SR_TRY(out.allow_mixed, parse_flag(name, value));
  }
  if (key == "HARDEN") {
    SR_TRY(out.harden, parse_flag(name, value));
  }
  if (key == "PATH") {
    SR_TRY(out.path, (parse_choice(name, value, {"staged", "fused"})));
  }
  if (key == "LOG") {
    SR_TRY(out.log, (parse_choice(name, value, {"text", "json", "off", "debug"})));
  }
  return {};
}

}  // namespace

std::string CommConfig::canonical() const {
  std::string out;
  const auto line = [&out](std::string_view name, std::string_view value) {
    out.append(name).append("=").append(value).append("\n");
  };
  line("segment_bytes", std::to_string(segment_bytes));
  line("algorithm", algorithm ? to_string(*algorithm) : "auto");
  line("sender_keys", sender_keys ? "on" : "off");
  line("lanes", std::to_string(lanes));
  line("node_ranks", std::to_string(node_ranks));
  // Both ends of a key count to the same limits, so that an epoch changes without a message [protocol A.3].
  line("bytes_rotate", std::to_string(budget.bytes_rotate));
  line("segments_rotate", std::to_string(budget.segments_rotate));
  line("ops_rotate", std::to_string(budget.ops_rotate));
  line("bytes_max", std::to_string(budget.bytes_max));
  line("segments_max", std::to_string(budget.segments_max));
  return out;
}

Result<Environment> Environment::parse(const std::map<std::string, std::string>& variables) {
  Environment out;
  for (const auto& [name, value] : variables) {
    if (!std::string_view(name).starts_with(kPrefix)) continue;
    if (std::find(kVariables.begin(), kVariables.end(), name) == kVariables.end()) {
      Error error;
      error.code = Code::environment;
      error.stage = kStage;
      error.what = "unknown variable " + shown(name);
      error.expected = nearest(name);
      if (!error.expected.empty()) error.next = "did you mean " + error.expected + "? Rename it or unset it";
      return fail(std::move(error));
    }
    SR_TRY(apply(name, value, out));
  }
  return out;
}

Result<Environment> Environment::read() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || !text.starts_with(kPrefix)) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return parse(variables);
}

}  // namespace sealring
