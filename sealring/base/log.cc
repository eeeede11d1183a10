#include "sealring/base/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>

#include "sealring/base/deadline.h"
#include "sealring/base/displayed.h"

namespace sealring {
namespace {

struct LogState {
  std::mutex mutex;
  std::shared_ptr<spdlog::logger> logger;
  bool json = false;
  int rank = -1;
};

LogState& state() {
  static LogState* instance = new LogState;  // outlives static objects that log
  return *instance;
}

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t bytes = displayable_bytes(text);
    if (text[0] == '"' || text[0] == '\\') out.push_back('\\');
    if (bytes > 0) {
      out += text.substr(0, bytes);
    } else {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(text[0]));
    }
    text.remove_prefix(bytes > 0 ? bytes : 1);
  }
  return out + "\"";
}

void make_logger(LogState& log_state, std::string_view format) {
  auto logger =
      std::make_shared<spdlog::logger>("sealring", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  log_state.json = format == "json";
  logger->set_pattern(log_state.json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})"
                                     : "%Y-%m-%d %H:%M:%S.%e sealring %l %v");
  logger->set_level(format == "off" ? spdlog::level::off
                                    : (format == "debug" ? spdlog::level::debug : spdlog::level::info));
  log_state.logger = std::move(logger);
}

}  // namespace

void log_setup(std::string_view format, int rank) {
  LogState& log_state = state();
  const std::lock_guard lock(log_state.mutex);
  log_state.rank = rank;
  make_logger(log_state, format);
}

void log(LogLevel level, std::string_view event, const LogFields& fields) {
  LogState& log_state = state();
  const std::lock_guard lock(log_state.mutex);
  if (!log_state.logger) make_logger(log_state, "text");
  std::string line;
  if (log_state.json) {
    line = fmt::format("\"event\":{},\"rank\":{}", json_text(event), log_state.rank);
    for (const auto& [name, value] : fields) line += fmt::format(",{}:{}", json_text(name), json_text(value));
  } else {
    if (log_state.rank >= 0) line = fmt::format("[rank {}] ", log_state.rank);
    line += displayed(event);
    for (const auto& [name, value] : fields) line += fmt::format(" {}={}", displayed(name), displayed(value));
  }
  log_state.logger->log(level_of(level), "{}", line);
}

void LogLimiter::log(LogLevel level, std::string_view event, LogFields fields) {
  const std::uint64_t now = now_ns();
  if (now - window_start_ns_ >= 1'000'000'000) {
    window_start_ns_ = now;
    in_window_ = 0;
  }
  if (in_window_ >= per_second_) {
    ++left_out_;
    return;
  }
  ++in_window_;
  if (left_out_ > 0) fields.emplace_back("left_out", std::to_string(std::exchange(left_out_, 0)));
  sealring::log(level, event, fields);
}

}  // namespace sealring
