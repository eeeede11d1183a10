// Claim: a results file comes back as it was written, and a cut, edited or foreign one is refused with
// RESULTS, as is one without a machine or nested too deep; what is loaded can be reported. How: round trip by
// text and by file; every prefix and thousands of single-byte changes of a file; wrong references; emptied
// lists and extreme numbers under a right digest.
#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "example_results.h"
#include "sealring/base/bytes.h"
#include "sealring/crypto/kdf.h"
#include "sealring/study/process.h"
#include "sealring/study/report.h"
#include "sealring/study/results.h"

namespace sealring {
namespace {

StudyResults small_results() {
  StudyResults results = example_results();
  results.blocks.resize(1);
  results.blocks[0].runs.resize(1);
  return results;
}

TEST(ResultsJson, RoundTrip) {
  const StudyResults results = example_results();
  const std::string text = results_to_text(results);
  const auto back = results_from_text(text);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(results_to_text(*back), text);
  EXPECT_EQ(back->blocks.size(), results.blocks.size());
  EXPECT_EQ(back->blocks[3].runs[2].iteration_ms, results.blocks[3].runs[2].iteration_ms);
  EXPECT_EQ(back->machines[0].crypto_features, results.machines[0].crypto_features);
}

TEST(ResultsJson, FilesAreReplacedWhole) {
  const auto directory = PrivateDirectory::make();
  ASSERT_TRUE(directory);
  const std::string path = directory->path() + "/results.json";
  ASSERT_TRUE(save_results(small_results(), path));
  ASSERT_TRUE(load_results(path));
  EXPECT_EQ(load_results(directory->path() + "/absent.json").error().code, Code::file);
  EXPECT_EQ(save_results(small_results(), directory->path() + "/no/such/results.json").error().code,
            Code::file);
  ASSERT_TRUE(load_results(path));  // the older file is still whole
}

TEST(ResultsJson, EveryPrefixIsRefused) {
  const std::string text = results_to_text(small_results());
  for (std::size_t bytes = 0; bytes + 2 < text.size(); bytes += 7) {
    const auto back = results_from_text(text.substr(0, bytes));
    ASSERT_FALSE(back) << bytes;
    ASSERT_EQ(back.error().code, Code::results) << bytes;
  }
}

TEST(ResultsJson, EveryEditedByteIsRefused) {
  const std::string text = results_to_text(small_results());
  const std::string original = nlohmann::json::parse(text).dump();
  for (std::size_t at = 0; at < text.size(); at += 3) {
    std::string edited = text;
    edited[at] = edited[at] == '7' ? '8' : '7';
    const auto parsed = nlohmann::json::parse(edited, nullptr, false);
    if (!parsed.is_discarded() && parsed.dump() == original) continue;  // white space
    const auto back = results_from_text(edited);
    ASSERT_FALSE(back) << at << ": " << edited.substr(at > 20 ? at - 20 : 0, 40);
    ASSERT_EQ(back.error().code, Code::results);
  }
}

/// A file whose digest is right although its content is not what a study writes.
std::string with_digest(const nlohmann::json& content) {
  const std::string digest = to_hex(sha256({as_bytes(content.dump())}));
  return nlohmann::json{{"schema", kResultsSchema}, {"digest", digest}, {"content", content}}.dump();
}

TEST(ResultsJson, NoMachineIsRefused) {
  nlohmann::json content = nlohmann::json::parse(results_to_text(small_results())).at("content");
  content["blocks"] = nlohmann::json::array();
  ASSERT_TRUE(results_from_text(with_digest(content)));
  content["machines"] = nlohmann::json::array();
  const auto back = results_from_text(with_digest(content));
  ASSERT_FALSE(back);
  EXPECT_EQ(back.error().code, Code::results);
  EXPECT_THAT(back.error().what, testing::HasSubstr("no machine"));
}

TEST(ResultsJson, DeepNestingIsRefusedBeforeItIsParsed) {
  const std::size_t depth = 3'000'000;
  const std::string deep = std::string(depth, '[') + std::string(depth, ']');
  std::string objects;
  for (std::size_t i = 0; i < 500'000; ++i) objects += R"({"a":)";
  const std::string head = R"({"schema":"sealring-study-1","digest":"00","content":)";
  for (const std::string& text : {deep, std::string(depth, '['), objects, head + deep + "}"}) {
    const auto back = results_from_text(text);
    ASSERT_FALSE(back);
    EXPECT_EQ(back.error().code, Code::results);
    EXPECT_THAT(back.error().what, testing::HasSubstr("nested deeper"));
  }
  StudyResults brackets = small_results();  // in a text they nest nothing
  brackets.models[0].description = std::string(100, '[') + "\"\\" + std::string(100, '{');
  EXPECT_TRUE(results_from_text(results_to_text(brackets)));
}

/// Calls `visit` for `value` and everything inside it.
void walk(nlohmann::json& value, const std::function<void(nlohmann::json&)>& visit) {
  visit(value);
  if (!value.is_structured()) return;
  for (nlohmann::json& each : value) walk(each, visit);
}

TEST(ResultsJson, WhateverIsLoadedCanBeReported) {
  nlohmann::json content = nlohmann::json::parse(results_to_text(example_results())).at("content");
  std::vector<nlohmann::json*> places;
  walk(content, [&](nlohmann::json& value) { places.push_back(&value); });
  const std::vector<nlohmann::json> numbers = {0, -1, 4294967295u, 1e308};
  std::size_t loaded = 0, tried = 0;
  const auto attempt = [&](nlohmann::json& place, nlohmann::json value) {
    std::swap(place, value);
    ++tried;
    if (const auto back = results_from_text(with_digest(content))) {
      ++loaded;
      const Report report = build_report(*back, "");
      EXPECT_FALSE(to_markdown(report).empty() || to_json(report).empty() || summary_text(*back).empty());
    }
    std::swap(place, value);
  };
  for (nlohmann::json& each : content) {
    if (each.is_array()) attempt(each, nlohmann::json::array());
  }
  constexpr std::size_t kStride = 37;  // a prime: over the repeated records it meets every kind of field
  for (std::size_t i = 0; i < places.size(); i += kStride) {
    nlohmann::json& place = *places[i];
    if (place.is_array()) attempt(place, nlohmann::json::array());
    if (place.is_string()) attempt(place, "");
    if (place.is_number()) attempt(place, numbers[i / kStride % numbers.size()]);
  }
  EXPECT_GT(loaded, 50u);
  EXPECT_LT(loaded, tried);
}

TEST(ResultsJson, ForeignContentIsRefused) {
  const nlohmann::json good = nlohmann::json::parse(results_to_text(small_results())).at("content");
  ASSERT_TRUE(results_from_text(with_digest(good)));
  const auto refused = [](const nlohmann::json& content) {
    const auto back = results_from_text(with_digest(content));
    return !back && back.error().code == Code::results;
  };
  nlohmann::json missing = good;
  missing.erase("counts");
  EXPECT_TRUE(refused(missing));
  nlohmann::json older = good;
  older.erase("ended");
  EXPECT_FALSE(refused(older));
  nlohmann::json wrong_type = good;
  wrong_type["ranks"] = "two";
  EXPECT_TRUE(refused(wrong_type));
  nlohmann::json machine = good;
  machine["blocks"][0]["machine"] = 9;
  EXPECT_TRUE(refused(machine));
  nlohmann::json unknown_case = good;
  unknown_case["blocks"][0]["runs"][0]["case_id"] = "nothing";
  EXPECT_TRUE(refused(unknown_case));
  nlohmann::json empty = good;
  empty["blocks"][0]["runs"][0]["iteration_ms"] = nlohmann::json::array();
  EXPECT_TRUE(refused(empty));
  EXPECT_TRUE(refused(nlohmann::json::array()));
  EXPECT_EQ(results_from_text("[]").error().code, Code::results);
  EXPECT_EQ(results_from_text(R"({"schema":"sealring-study-0"})").error().got, "sealring-study-0");
}

}  // namespace
}  // namespace sealring
