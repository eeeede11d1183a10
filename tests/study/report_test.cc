// Claim: a report says what its results hold: same input, same text; previews, noise and origins are marked.
// Text from files stays text. How: a made-up study against a golden Markdown file; altered studies and the
// words that must then appear or not; hostile text in every field.
#include "sealring/study/report.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "example_results.h"
#include "sealring/study/process.h"

namespace sealring {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string quoted() { return *read_file(SEALRING_SOURCE_DIR "/data/paper/quoted.json", 1u << 20); }

/// SR_GOLDEN_WRITE=1 accepts a change; read the difference before committing it.
void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = SEALRING_SOURCE_DIR "/tests/study/golden/" + name;
  if (std::getenv("SR_GOLDEN_WRITE") != nullptr) {
    ASSERT_TRUE(write_file(path, text));
  }
  const auto golden = read_file(path, 1u << 20);
  ASSERT_TRUE(golden);
  EXPECT_TRUE(text == *golden) << name << " differs from its golden file";
}

TEST(Report, Golden) {
  expect_golden("results.json", results_to_text(example_results()));
  expect_golden("report.md", to_markdown(build_report(example_results(), quoted())));
}

TEST(Report, RatiosAreOfTheSameBlock) {
  const StudyResults results = example_results();
  const auto summaries = summarize_model(results, "gpt2");
  const CaseSummary* sealed = best_of(summaries, "sealed-ring");
  ASSERT_NE(sealed, nullptr);
  EXPECT_EQ(sealed->record->cap_mib, 5);  // chosen in stage 1
  EXPECT_EQ(sealed->blocks, 5u);
  ASSERT_TRUE(sealed->to_plain);
  EXPECT_NEAR(sealed->to_plain->ratio, 1.25, 0.02);
  ASSERT_TRUE(sealed->to_plain->interval);
  EXPECT_LT(sealed->to_plain->interval->low, sealed->to_plain->ratio);
  EXPECT_DOUBLE_EQ(best_of(summaries, "plain-ring")->to_plain->ratio, 1);
  EXPECT_EQ(sealed->same_bits, true);
  ASSERT_TRUE(emulation_check(results, "gpt2"));
  EXPECT_NEAR(emulation_check(results, "gpt2")->ratio, 0.98, 0.01);
}

TEST(Report, FewerThanFiveBlocksIsAPreview) {
  StudyResults results = example_results();
  std::erase_if(results.blocks, [](const BlockRecord& block) { return block.stage == 2 && block.block > 2; });
  Report report = build_report(results, "");
  ASSERT_EQ(report.sections.front().title, "How to read this");
  report.sections.erase(report.sections.begin());  // explains the marks by an example
  const std::string text = to_markdown(report);
  EXPECT_THAT(text, HasSubstr("x (preview)"));
  EXPECT_THAT(text, Not(HasSubstr("x [")));
  EXPECT_THAT(text, HasSubstr("undecided (preview)"));
}

TEST(Report, NoiseAndDifferentBitsShow) {
  StudyResults results = example_results();
  EXPECT_THAT(to_markdown(build_report(results, "")), Not(HasSubstr(" * |")));
  for (BlockRecord& block : results.blocks) {
    for (RunRecord& run : block.runs) {
      if (run.case_id != "gpt2/sealed-ring@5") continue;
      run.iteration_ms = {100, 125, 150};
      run.parameters_sha256 = "other";
    }
  }
  const std::string text = to_markdown(build_report(results, ""));
  EXPECT_THAT(text, HasSubstr(" * |"));
  EXPECT_THAT(text, HasSubstr("| no | measured |"));
}

void set_iterations(StudyResults& results, const std::string& case_id, const std::vector<double>& ms) {
  for (BlockRecord& block : results.blocks) {
    for (RunRecord& run : block.runs) {
      if (run.case_id == case_id) run.iteration_ms = ms;
    }
  }
}

std::string headline_of(const StudyResults& results) {
  const Report report = build_report(results, "");
  return report.sections.at(1).title == "In short" ? report.sections.at(1).paragraphs.at(0) : "";
}

TEST(Report, TheHeadlineSaysWhatIsNotDistinguishableAndWhatIsNoisy) {
  StudyResults results = example_results();
  EXPECT_THAT(headline_of(results), Not(HasSubstr("n.s.")));
  EXPECT_THAT(headline_of(results), Not(HasSubstr("noisy")));
  set_iterations(results, "gpt2/sealed-one-hop@5", {60, 104, 150});
  EXPECT_THAT(headline_of(results), HasSubstr("] n.s. of that with Gloo"));
  EXPECT_THAT(headline_of(results), HasSubstr("this study cannot tell it from Gloo."));
  EXPECT_THAT(headline_of(results), HasSubstr("These rows are noisy (*)"));
  EXPECT_THAT(headline_of(results), HasSubstr("up to 42 %"));
}

TEST(Report, ComputeIsShownAsMeasuredAndExposedLostInNoiseIsMarked) {
  StudyResults results = example_results();
  for (BlockRecord& block : results.blocks) {
    for (RunRecord& run : block.runs) {
      if (run.case_id == "gpt2/sealed-ring@5") run.no_sync_ms = {150, 150, 150};
    }
  }
  const CaseSummary sealed = *best_of(summarize_model(results, "gpt2"), "sealed-ring");
  EXPECT_DOUBLE_EQ(sealed.compute_ms, 150);
  EXPECT_LT(sealed.exposed_ms, 0);
  EXPECT_THAT(to_markdown(build_report(results, "")), HasSubstr("| 150.0 | ~0 | 9.0 |"));
}

TEST(Report, WithoutAFinalBlockThereIsNoConclusion) {
  StudyResults results = example_results();
  std::erase_if(results.blocks, [](const BlockRecord& block) { return block.stage == 2; });
  const std::string text = to_markdown(build_report(results, quoted()));
  EXPECT_THAT(text, HasSubstr("hold no finished block of the final stage"));
  EXPECT_THAT(text, Not(HasSubstr("## Slowdown")));
  EXPECT_THAT(text, Not(HasSubstr("one core for training")));
  EXPECT_THAT(text, HasSubstr("## Bucket size"));
  EXPECT_THAT(summary_text(results), Not(HasSubstr("n.s.")));
}

TEST(Report, StartAndEndAreBothSaid) {
  StudyResults results = example_results();
  EXPECT_THAT(build_report(results, "").subtitle,
              HasSubstr("started 2026-01-02T03:04:05Z, ended 2026-01-02T03:09:26Z"));
  results.ended.clear();
  EXPECT_THAT(build_report(results, "").subtitle, HasSubstr("end not recorded"));
}

TEST(Report, ATerminalGetsALegend) {
  const std::string text = summary_text(example_results());
  for (const char* mark : {"n.s.", "*", "k, 1 -> 10", "A/A", "same bits", "best against best", "quotient"})
    EXPECT_THAT(text, HasSubstr(mark));
}

TEST(Report, OneBlockIsNotBlocks) {
  StudyResults results = example_results();
  std::erase_if(results.blocks, [](const BlockRecord& block) { return block.stage == 2 && block.block > 0; });
  const std::string text = to_markdown(build_report(results, ""));
  EXPECT_THAT(text, HasSubstr("1 block of 3 iterations"));
  EXPECT_THAT(text, Not(HasSubstr("1 blocks")));
}

TEST(Report, ACountThatBreaksTheLawShouts) {
  StudyResults results = example_results();
  EXPECT_THAT(to_markdown(build_report(results, "")), Not(HasSubstr("| NO |")));
  results.counts[0].counted_per_rank = 21;
  EXPECT_THAT(to_markdown(build_report(results, "")), HasSubstr("| NO |"));
}

TEST(Report, QuotedNumbersStandBesideOursOfTheSameNOnly) {
  const auto section_of = [](const StudyResults& results) {
    for (const ReportSection& section : build_report(results, quoted()).sections) {
      if (section.title == "Published numbers") return section;
    }
    return ReportSection{};
  };
  const auto has = [](const ReportTable& table, const std::string& n, const std::string& origin) {
    for (const auto& row : table.rows) {
      if (row[3] == n && row[4] == origin) return true;
    }
    return false;
  };
  StudyResults results = example_results();
  const ReportSection two = section_of(results);
  ASSERT_EQ(two.tables.size(), 2u);
  EXPECT_TRUE(has(two.tables[0], "2", kQuoted));
  EXPECT_TRUE(has(two.tables[0], "2", kMeasured));
  EXPECT_FALSE(has(two.tables[0], "4", kQuoted));
  EXPECT_TRUE(has(two.tables[1], "4", kQuoted));
  EXPECT_FALSE(has(two.tables[1], "2", kQuoted));
  results.ranks = 4;
  const ReportSection four = section_of(results);
  EXPECT_TRUE(has(four.tables[0], "4", kQuoted));
  EXPECT_FALSE(has(four.tables[0], "2", kQuoted));
}

/// Every text of the results becomes `text`, except what links its parts.
StudyResults hostile_results(const std::string& text) {
  StudyResults results = example_results();
  for (std::string* each : {&results.preset, &results.date, &results.commit, &results.torch, &results.python,
                            &results.emulation.source})
    *each = text;
  for (Machine& machine : results.machines) {
    machine.cpu = machine.kernel = machine.openssl = machine.cc = text;
    machine.gpus = machine.crypto_features = {text};
  }
  for (ModelRecord& model : results.models) model.name = model.description = text;
  for (CaseRecord& record : results.cases) record.suite = record.origin = text;
  for (CountRecord& count : results.counts) count.algorithm = text;
  for (CipherRecord& cipher : results.ciphers) cipher.suite = text;
  for (WorkloadRecord& workload : results.workloads) workload.name = text;
  return results;
}

std::size_t cells_of(const std::string& row) {
  std::size_t out = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] == '\\')
      ++i;
    else if (row[i] == '|')
      ++out;
  }
  return out;
}

TEST(Report, TextFromFilesIsNothingButText) {
  const std::string text =
      "# <script>alert(1)</script><img src=x onerror=y> a|b \\|c &lt; \x1b[2J\r\nd ![p](http://x) [q]: r "
      "\xe2\x80\xae";
  const std::string markdown = to_markdown(build_report(hostile_results(text), quoted()));
  EXPECT_THAT(markdown, HasSubstr("# &lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=y&gt; a\\|b "
                                  "\\\\\\|c &amp;lt; \\\\x1b[2J\\\\r d !\\[p]\\(http://x) [q]\\: r "
                                  "\\\\xe2\\\\x80\\\\xae"));
  EXPECT_EQ(markdown.find('<'), std::string::npos);
  EXPECT_THAT(markdown, Not(HasSubstr("\n# &lt;")));  // no paragraph becomes a heading
  std::size_t rows = 0, wanted = 0;
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(
        std::all_of(line.begin(), line.end(), [](unsigned char c) { return c >= 0x20 && c != 0x7f; }));
    const bool row = line.starts_with("|");
    if (row && wanted > 0) {
      EXPECT_EQ(cells_of(line), wanted) << line;
    }
    wanted = row ? cells_of(line) : 0;
    rows += row ? 1 : 0;
  }
  EXPECT_GT(rows, 50u);
  const std::string shown = summary_text(hostile_results(text));
  EXPECT_EQ(shown.find('\x1b'), std::string::npos);
}

TEST(Report, ADamagedQuotedFileIsSaidAndNotFatal) {
  EXPECT_THAT(to_markdown(build_report(example_results(), "{")), HasSubstr("MALFORMED"));
}

}  // namespace
}  // namespace sealring
