// Claim: the cases of a preset are those of the study's method, orders are drawn from the seed, costs are
// fitted right. How: lists compared with what they must hold; permutations; a fit of runs made from known a
// and b.
#include "sealring/study/cases.h"

#include <gmock/gmock.h>

#include <set>

#include "example_results.h"

namespace sealring {
namespace {

using testing::ElementsAre;

TEST(Cases, SearchHoldsEverySearchedEngineAtEveryCap) {
  const auto cases = search_cases("gpt2", {1, 5, 25});
  std::set<std::string> ids;
  for (const CaseRecord& each : cases) ids.insert(each.id);
  EXPECT_EQ(ids.size(), cases.size());
  for (const char* engine : {"gloo", "plain-ring", "sealed-ring", "sealed-one-hop", "plain-copy"}) {
    for (const char* cap : {"1", "5", "25"})
      EXPECT_EQ(ids.count(std::string("gpt2/") + engine + "@" + cap), 1u);
  }
  EXPECT_EQ(cases.size(), 15u);
}

TEST(Cases, FinalStageHasBestAndEqualCapAndTheChecks) {
  StudyResults results = example_results();
  std::set<std::string> ids;
  for (const CaseRecord& each : final_cases(results, "gpt2")) ids.insert(each.id);
  EXPECT_EQ(ids, (std::set<std::string>{"gpt2/gloo@5", "gpt2/gloo@25", "gpt2/plain-ring@5",
                                        "gpt2/plain-ring@25", "gpt2/sealed-ring@5", "gpt2/sealed-ring@25",
                                        "gpt2/sealed-one-hop@5", "gpt2/sealed-one-hop@25",
                                        "gpt2/plain-ring-again@5", "gpt2/emulated-ring@5"}));
  EXPECT_EQ(results.find_case("gpt2/emulated-ring@5")->origin, kEmulated);
  EXPECT_EQ(results.find_case("gpt2/sealed-ring@5")->origin, kMeasured);
}

TEST(Cases, OrdersArePermutationsDrawnFromTheSeed) {
  const auto first = block_order(1, "2/0/gpt2", 10);
  std::set<std::size_t> all(first.begin(), first.end());
  EXPECT_EQ(all.size(), 10u);
  EXPECT_EQ(*all.rbegin(), 9u);
  EXPECT_EQ(block_order(1, "2/0/gpt2", 10), first);
  EXPECT_NE(block_order(2, "2/0/gpt2", 10), first);
  EXPECT_NE(block_order(1, "2/1/gpt2", 10), first);
  EXPECT_TRUE(block_order(1, "x", 0).empty());
}

TEST(Cases, EmulationIsFittedToWhatSealingAdds) {
  // 7 us a record and 0.25 ns a byte, at three sizes.
  StudyResults results;
  results.cases = search_cases("gpt2", {1, 5, 25});
  BlockRecord block;
  block.stage = 1;
  for (const CaseRecord& each : results.cases) {
    RunRecord run;
    run.case_id = each.id;
    run.iteration_ms = {1};
    const double operations = 40 / each.cap_mib, bytes = 2e7;
    run.seals = run.opens = operations / 2;
    run.sealed_bytes = run.opened_bytes = bytes / 2;
    const double copy_ms = 1;
    run.seal_ms = copy_ms;
    if (each.engine == "sealed-ring") run.seal_ms += (7e-3 * operations + 0.25e-6 * bytes);
    block.runs.push_back(run);
  }
  results.blocks = {block};
  results.ciphers = {{"aes-256-gcm", 4, 2, 7}};
  const EmulationRecord fitted = fit_emulation(results);
  EXPECT_EQ(fitted.a_us, 7);
  EXPECT_NEAR(fitted.b_ns_per_kib, 256, 1e-6);
  EXPECT_NEAR(fitted.spread_percent, 0, 1e-6);

  results.blocks[0].runs.resize(2);  // too few
  const EmulationRecord rates = fit_emulation(results);
  EXPECT_EQ(rates.a_us, 7);
  EXPECT_DOUBLE_EQ(rates.b_ns_per_kib, 1024 * 0.375);
}

}  // namespace
}  // namespace sealring
