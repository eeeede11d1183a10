// Claim: a line carries the rank and its fields, it stays one line and JSON stays JSON whatever a field
// holds, strangers cannot flood it. How: standard error captured; exact lines without their time; hostile
// bytes in names and values.
#include "sealring/base/log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace sealring {
namespace {

std::string captured(std::string_view format, const std::function<void()>& work) {
  ::testing::internal::CaptureStderr();
  log_setup(format, 3);
  work();
  const std::string out = ::testing::internal::GetCapturedStderr();
  log_setup("text", -1);
  return out;
}

TEST(Log, TextLine) {
  const std::string out = captured("text", [] {
    log(LogLevel::warning, "peer lost", {{"peer", "2"}, {"stage", "control"}});
  });
  EXPECT_NE(out.find(" sealring warning [rank 3] peer lost peer=2 stage=control\n"), std::string::npos)
      << out;
}

TEST(Log, JsonLine) {
  const std::string out = captured("json", [] { log(LogLevel::info, "ready", {{"suite", "aes-256-gcm"}}); });
  ASSERT_EQ(out.substr(0, 9), "{\"time\":\"");
  const auto level = out.find("\",\"level\"");
  ASSERT_NE(level, std::string::npos) << out;
  EXPECT_EQ(out.substr(level),
            "\",\"level\":\"info\",\"event\":\"ready\",\"rank\":3,\"suite\":\"aes-256-gcm\"}\n");
}

TEST(Log, JsonEscapesWhatCouldBreakIt) {
  const std::string out = captured("json", [] {
    log(LogLevel::error, "a\"b\\c\n", {{"k\x01", "{}\t\x7f%v {0}"}});
  });
  EXPECT_NE(out.find("\"event\":\"a\\\"b\\\\c\\u000a\""), std::string::npos) << out;
  EXPECT_NE(out.find("\"k\\u0001\":\"{}\\u0009\\u007f%v {0}\""), std::string::npos) << out;
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1);
}

TEST(Log, NothingBreaksALineOrIsNoText) {
  const std::string hostile = "a\n2026 sealring error forged\r\x1b[2J\xc2\x9b\xff\xc3\xa9";
  const auto work = [&] { log(LogLevel::error, hostile, {{hostile, hostile}}); };
  const std::string text = captured("text", work);
  const std::string shown = R"(a\n2026 sealring error forged\r\x1b[2J\xc2\x9b\xff)"
                            "\xc3\xa9";
  EXPECT_NE(text.find("[rank 3] " + shown + " " + shown + "=" + shown + "\n"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  const std::string json = captured("json", work);
  const std::string quoted = R"("a\u000a2026 sealring error forged\u000d\u001b[2J\u00c2\u009b\u00ff)"
                             "\xc3\xa9\"";
  EXPECT_NE(json.find(quoted + ":" + quoted + "}\n"), std::string::npos) << json;
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 1);
}

TEST(Log, LevelsAndOff) {
  EXPECT_EQ(captured("off", [] { log(LogLevel::error, "x"); }), "");
  EXPECT_EQ(captured("text", [] { log(LogLevel::debug, "x"); }), "");
  EXPECT_NE(captured("debug", [] { log(LogLevel::debug, "x"); }).find("debug"), std::string::npos);
}

TEST(LogLimiter, LetsSoManyThroughAndCountsTheRest) {
  const std::string out = captured("text", [] {
    LogLimiter limiter(3);
    for (int i = 0; i < 10; ++i) limiter.log(LogLevel::warning, "bad proof");
  });
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 3) << out;
}

}  // namespace
}  // namespace sealring
