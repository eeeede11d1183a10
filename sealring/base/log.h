// Log lines on standard error: text, or one JSON object a line with SEALRING_LOG=json. spdlog stays behind
// this.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sealring {

enum class LogLevel { debug, info, warning, error };

/// Fields are public values only: a secret has no way into a std::string here (SecretBytes has no
/// conversion).
using LogFields = std::vector<std::pair<std::string, std::string>>;

/// Sets the local rank that every line carries, and the format: "text" (default), "json", "off", or "debug".
void log_setup(std::string_view format, int rank);
void log(LogLevel level, std::string_view event, const LogFields& fields = {});

/// At most `per_second` lines a second for lines that strangers can cause; the next line says how many were
/// left out.
class LogLimiter {
 public:
  explicit LogLimiter(std::uint32_t per_second) : per_second_(per_second) {}
  void log(LogLevel level, std::string_view event, LogFields fields = {});

 private:
  std::uint32_t per_second_;
  std::uint64_t window_start_ns_ = 0;
  std::uint32_t in_window_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace sealring
