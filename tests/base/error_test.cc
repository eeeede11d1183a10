// Claim: every code has one entry with a stable number, is found by any of its names, and a message has one
// shape, whatever its fields hold. How: the enumerators are read from the header's own text; exact messages,
// also of hostile bytes; the macros' paths.
#include "sealring/base/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "sealring/base/result.h"

namespace sealring {
namespace {

/// "name = number" pairs of enum class Code, from the header itself.
std::vector<std::pair<std::string, unsigned>> enumerators() {
  std::ifstream in(SEALRING_SOURCE_DIR "/sealring/base/error.h");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto begin = text.find("enum class Code");
  text = text.substr(begin, text.find("};", begin) - begin);
  text = std::regex_replace(text, std::regex("//[^\n]*"), "");
  std::vector<std::pair<std::string, unsigned>> out;
  const std::regex pair("([a-z_0-9]+) = ([0-9]+)");
  for (std::sregex_iterator at(text.begin(), text.end(), pair), end; at != end; ++at) {
    out.emplace_back((*at)[1], static_cast<unsigned>(std::stoul((*at)[2])));
  }
  return out;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

TEST(Code, EveryEnumeratorHasItsEntry) {
  const auto wanted = enumerators();
  ASSERT_GT(wanted.size(), 60u);
  EXPECT_EQ(wanted.size(), all_codes().size());
  for (const auto& [name, number] : wanted) {
    const CodeInfo& info = code_info(static_cast<Code>(number));
    EXPECT_EQ(static_cast<unsigned>(info.code), number) << name;
    EXPECT_EQ(info.name, upper(name));
    EXPECT_FALSE(info.meaning.empty()) << name;
  }
}

TEST(Code, EntriesRiseAndNamesAreUnique) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < all_codes().size(); ++i) {
    EXPECT_TRUE(names.insert(all_codes()[i].name).second);
    if (i > 0) {
      EXPECT_LT(all_codes()[i - 1].code, all_codes()[i].code);
    }
  }
}

TEST(Code, NumbersNeverChange) {
  EXPECT_EQ(static_cast<unsigned>(Code::invalid_argument), 101u);
  EXPECT_EQ(static_cast<unsigned>(Code::roster_size), 201u);
  EXPECT_EQ(static_cast<unsigned>(Code::rdv_key), 211u);
  EXPECT_EQ(static_cast<unsigned>(Code::report_data), 311u);
  EXPECT_EQ(static_cast<unsigned>(Code::gpu_mode), 408u);
  EXPECT_EQ(static_cast<unsigned>(Code::confirm), 502u);
  EXPECT_EQ(static_cast<unsigned>(Code::timeout), 601u);
  EXPECT_EQ(static_cast<unsigned>(Code::data_tag), 602u);
  EXPECT_EQ(static_cast<unsigned>(Code::peer_lost), 603u);
  EXPECT_EQ(static_cast<unsigned>(Code::aborted), 604u);
  EXPECT_EQ(static_cast<unsigned>(Code::op_mismatch), 605u);
  EXPECT_EQ(static_cast<unsigned>(Code::key_limit), 701u);
}

TEST(FindCode, TakesNumberAndNameInEveryForm) {
  for (const CodeInfo& info : all_codes()) {
    const std::string number = std::to_string(static_cast<unsigned>(info.code));
    std::string lower(info.name);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    for (const std::string& text :
         {number, "E" + number, "SR-E" + number, "sr-e" + number, std::string(info.name), lower}) {
      const CodeInfo* found = find_code(text);
      ASSERT_NE(found, nullptr) << text;
      EXPECT_EQ(found->code, info.code) << text;
    }
  }
}

TEST(FindCode, RefusesWhatIsNone) {
  for (const char* text : {"", "SR-E", "999", "SR-E999", "602x", "x602", "-602", "EE602", "E", "DATA-TAG",
                           "DATA_TAGS", "DATA_TA", "99999999999999999999"}) {
    EXPECT_EQ(find_code(text), nullptr) << text;
  }
}

TEST(ErrorMessage, AllFieldsInTheirOrder) {
  Error error;
  error.code = Code::data_tag;
  error.rank = 1;
  error.peer = 0;
  error.stage = "data.open";
  error.expected = "aa";
  error.got = "bb";
  error.what = "the tag of segment 3 was not accepted";
  error.next = "look at the network";
  error.diagnosis = "rank 0 called something else";
  EXPECT_EQ(
      error.message(),
      "SR-E602 rank=1 peer=0 stage=data.open expected=aa got=bb: DATA_TAG: the tag of segment 3 was not "
      "accepted; look at the network\n  rank 0 called something else");
}

TEST(ErrorMessage, NoFieldBeginsALineOrCommandsATerminal) {
  const std::string hostile =
      std::string("a\nSR-E0 b\r\t\x1b[2J\x7f\0c", 18) + "\xc2\x9b\xe2\x80\xae\xff\xc3\xa9";
  const std::string shown = R"(a\nSR-E0 b\r\t\x1b[2J\x7f\x00c\xc2\x9b\xe2\x80\xae\xff)"
                            "\xc3\xa9";
  Error error;
  error.code = Code::timeout;
  error.stage = error.expected = error.got = error.what = error.next = error.diagnosis = hostile;
  EXPECT_EQ(error.message(), "SR-E601 stage=" + shown + " expected=" + shown + " got=" + shown +
                                 ": TIMEOUT: " + shown + "; " + shown + "\n  " + shown);
}

TEST(ErrorMessage, EmptyFieldsAreLeftOutAndTheTableFillsIn) {
  Error error;
  error.code = Code::fd_limit;
  EXPECT_EQ(error.message(),
            "SR-E117: FD_LIMIT: The limit of open files is reached.; raise it with `ulimit -n`");
}

TEST(ErrorMessage, SaysThatNoKeyWasReleasedExactlyBeforeReady) {
  for (const CodeInfo& info : all_codes()) {
    Error error;
    error.code = info.code;
    const auto number = static_cast<unsigned>(info.code);
    const bool said = error.message().find("; no key was released") != std::string::npos;
    EXPECT_EQ(said, number >= 201 && number <= 503) << info.name;
  }
}

Result<int> half(int value) {
  if (value % 2 != 0) return fail(Code::invalid_argument, "test.half", "odd");
  return value / 2;
}
Result<void> only_even(int value) {
  SR_TRY(half(value));
  return {};
}
Result<int> quarter(int value) {
  SR_TRY(const int once, half(value));
  SR_TRY(const int twice, half(once));
  return twice;
}

TEST(Result, TryBindsPassesOnAndReturnsEarly) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().what, "odd");
  EXPECT_EQ(quarter(3).error().code, Code::invalid_argument);
  EXPECT_TRUE(only_even(2).has_value());
  EXPECT_EQ(only_even(1).error().stage, "test.half");
}

TEST(CheckDeathTest, PrintsConditionAndValues) {
  const int left = 3, right = 2;
  SR_CHECK(left > right, "left", left);
  EXPECT_DEATH(SR_CHECK(left < right, "left", left, "right", right),
               "SR_CHECK failed: left < right: left 3 right 2");
  EXPECT_DEATH(SR_CHECK(false), "SR_CHECK failed: false at .*error_test.cc");
}

}  // namespace
}  // namespace sealring
