// Claim: a benchmark on loopback gives right sums for every operation, counts what the schedule says, and
// exact rows. How: 2 and 3 ranks as threads, every operation in and out of place; the table's cells; the
// targets' arithmetic.
#include "sealring/study/bench_run.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "sealring/study/bench_launch.h"
#include "sealring/study/bench_table.h"
#include "sealring/study/bench_targets.h"

namespace sealring {
namespace {

using testing::HasSubstr;

BenchSpec small_spec(Op op, std::uint16_t ranks) {
  BenchSpec spec;
  spec.op = op;
  spec.ranks = ranks;
  spec.sizes_bytes = {240, 24'000};
  spec.iterations = 3;
  spec.warmup = 1;
  spec.loopback = true;
  spec.segment_bytes = 16 * 1024;
  spec.timeout_s = 60;
  spec.cases = {{.gloo = false, .suite = Suite::plain, .algorithm = {}},
                {.gloo = false, .suite = Suite::aes_256_gcm, .algorithm = {}}};
  return spec;
}

std::vector<BenchRow> rows_of(const BenchSpec& spec) {
  std::vector<BenchRow> rows;
  BenchReporter reporter;
  reporter.row = [&](const BenchRow& row) { rows.push_back(row); };
  const auto done = run_loopback_bench(spec, reporter);
  EXPECT_TRUE(done) << done.error().message();
  return rows;
}

class EveryOperation : public testing::TestWithParam<std::tuple<Op, std::uint16_t>> {};

TEST_P(EveryOperation, IsRight) {
  const auto [op, ranks] = GetParam();
  const BenchSpec spec = small_spec(op, ranks);
  const auto rows = rows_of(spec);
  const BenchSize size = bench_size(spec, 240);
  const std::size_t places = (size.has_in_place ? 1u : 0u) + (size.has_out_of_place ? 1u : 0u);
  ASSERT_EQ(rows.size(), 2 * 2 * places);
  for (const BenchRow& row : rows) {
    EXPECT_EQ(row.wrong, 0u);
    EXPECT_EQ(row.samples_us.size(), 3u);
    EXPECT_GT(row.median_us, 0);
    EXPECT_GT(row.seals, 0);
    EXPECT_GT(row.opens, 0);
    ASSERT_TRUE(row.ratio_to_plain);
    if (row.case_index == 0) {
      EXPECT_DOUBLE_EQ(*row.ratio_to_plain, 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bench, EveryOperation,
                         testing::Combine(testing::Values(Op::all_reduce, Op::reduce_scatter, Op::all_gather,
                                                          Op::broadcast, Op::reduce, Op::all_to_all,
                                                          Op::send),
                                          testing::Values(std::uint16_t{2}, std::uint16_t{3})),
                         [](const auto& tested) {
                           return std::string(to_string(std::get<0>(tested.param))) + "_" +
                                  std::to_string(std::get<1>(tested.param));
                         });

TEST(BenchRun, CountsAreOfTheOperationAloneWithoutBarriers) {
  BenchSpec spec = small_spec(Op::all_reduce, 3);
  spec.cases = {{.gloo = false, .suite = Suite::aes_256_gcm, .algorithm = Algorithm::ring}};
  for (const BenchRow& row : rows_of(spec)) {
    EXPECT_EQ(row.seals + row.opens, 4 * (3 - 1));
    EXPECT_EQ(row.sealed_bytes, static_cast<double>(row.size.size_bytes) * 4 / 3);
    EXPECT_FALSE(row.ratio_to_plain);
  }
}

TEST(BenchRun, ReducedTypesAreExact) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::i8, DType::u8, DType::f64}) {
    BenchSpec spec = small_spec(Op::all_reduce, 3);
    spec.sizes_bytes = {2'400};
    spec.dtype = dtype;
    spec.redop = RedOp::max;
    for (const BenchRow& row : rows_of(spec)) EXPECT_EQ(row.wrong, 0u) << to_string(dtype);
  }
}

BenchRow example_row() {
  BenchRow row;
  row.size = {1 << 20, 262144, 262144, 262144, true, true};
  row.case_index = 1;
  row.samples_us = {100, 101, 140};
  row.median_us = 101;
  row.mad_percent = 6;
  row.wrong = 2;
  row.ratio_to_plain = 1.25;
  row.seals = 2;
  return row;
}

TEST(BenchTable, LinesHaveEveryColumnAndMarkNoise) {
  const BenchSpec spec = small_spec(Op::all_reduce, 2);
  const std::string line = bench_line(spec, example_row());
  for (const char* cell : {" 1M ", "262144", "fp32", "sum", "aes-256-gcm", "101.0", "6.0*", "1.25"}) {
    EXPECT_THAT(line, HasSubstr(cell));
  }
  EXPECT_EQ(line.size(),
            bench_head(spec, Machine{}, {}).size() - bench_head(spec, Machine{}, {}).rfind("\n#") - 1);
  EXPECT_THAT(bench_foot(spec, {example_row()}), HasSubstr("1 of 1 rows are noisy"));
  EXPECT_THAT(bench_foot(spec, {example_row()}), HasSubstr("2 wrong elements"));
  const auto json = nlohmann::json::parse(bench_json(spec, Machine{}, {example_row()}));
  EXPECT_EQ(json.at("rows").at(0).at("samples_us").size(), 3u);
  EXPECT_EQ(json.at("rows").at(0).at("origin"), "measured");
  EXPECT_EQ(json.at("schema"), "sealring-bench-1");
}

TEST(BenchTargets, VerdictsFollowTheBlocks) {
  TargetBlocks blocks;
  blocks.size_bytes = 64u << 20;
  const double bytes = 64u << 20;
  for (int i = 0; i < 5; ++i) {
    const double drift = 1 + 0.001 * i;
    blocks.gloo_us.push_back(40'000 * drift);
    blocks.plain_us.push_back(36'000 * drift);
    blocks.seal_gb_s.push_back(4);
    blocks.open_gb_s.push_back(4);
    blocks.sealed_us.push_back((36'000 + 2 * bytes / 4 / 1000) * 1.1 * drift);
  }
  const auto rows = judge_targets(small_spec(Op::all_reduce, 2), {blocks}, 12);
  const auto verdict_of = [&](const std::string& name) {
    for (const TargetRow& row : rows) {
      if (row.name.rfind(name, 0) == 0) return row.verdict;
    }
    return Verdict::undecided;
  };
  EXPECT_EQ(verdict_of("own plain at least 1.0x Gloo"), Verdict::met);
  EXPECT_EQ(verdict_of("sealed at most 1.25x"), Verdict::met);
  EXPECT_EQ(verdict_of("sealed at least 0.6x Gloo"), Verdict::missed);  // 40 / 76 is 0.52
  EXPECT_EQ(verdict_of("sealed with 2 crypto threads"), Verdict::not_run);
  EXPECT_EQ(verdict_of("memory"), Verdict::met);
  const auto missed = judge_targets(small_spec(Op::all_reduce, 2), {blocks}, 200).back();
  EXPECT_EQ(missed.verdict, Verdict::missed);
}

}  // namespace
}  // namespace sealring
