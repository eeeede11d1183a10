// Claim: a results file comes back as it was written, and a cut, edited or foreign one is refused with
// RESULTS. How: round trip by text and by file; every prefix and thousands of single-byte changes of a file;
// wrong references.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "example_results.h"
#include "sealring/base/bytes.h"
#include "sealring/crypto/kdf.h"
#include "sealring/study/process.h"
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
