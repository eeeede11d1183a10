// Claim: buckets are cut as PyTorch's DDP cuts them, and the six models give the published parameter and
// bucket counts. How: a truth table around every edge of the rule; the committed parameter lists at caps 25
// and 400 MiB.
#include "sealring/ddp/bucketizer.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "sealring/ddp/workload.h"

namespace sealring {
namespace {

using testing::ElementsAre;

std::vector<std::uint64_t> bytes_of(const std::vector<Bucket>& buckets) {
  std::vector<std::uint64_t> out;
  for (const Bucket& bucket : buckets) out.push_back(bucket.bytes);
  return out;
}

std::vector<std::uint64_t> cut(std::vector<std::uint64_t> parameters, std::uint64_t cap,
                               std::uint64_t first) {
  return bytes_of(assign_buckets(parameters, cap, first));
}

TEST(Bucketizer, TruthTable) {
  EXPECT_THAT(cut({}, 10, 4), ElementsAre());
  EXPECT_THAT(cut({1}, 10, 4), ElementsAre(1));
  EXPECT_THAT(cut({4}, 10, 4), ElementsAre(4));
  EXPECT_THAT(cut({9, 4}, 10, 4), ElementsAre(4, 9));            // first closed at exactly its limit
  EXPECT_THAT(cut({9, 3}, 10, 4), ElementsAre(12));              // one short of it: the next joins
  EXPECT_THAT(cut({1, 9, 4}, 10, 4), ElementsAre(4, 10));        // exactly the cap closes
  EXPECT_THAT(cut({1, 1, 9, 4}, 10, 4), ElementsAre(4, 10, 1));  // what is left is a bucket too
  EXPECT_THAT(cut({100, 4}, 10, 4), ElementsAre(4, 100));        // never split: beyond the cap
  EXPECT_THAT(cut({5, 100, 5, 4}, 10, 4), ElementsAre(4, 105, 5));
  EXPECT_THAT(cut({0, 4}, 10, 4), ElementsAre(4, 0));  // an empty parameter still is reduced
  EXPECT_THAT(cut({3, 3, 3}, 1, 1), ElementsAre(3, 3, 3));
  EXPECT_THAT(cut({3, 3, 3}, 100, 100), ElementsAre(9));
}

TEST(Bucketizer, ReverseOrderAndEveryParameterOnce) {
  const std::vector<std::uint64_t> sizes{5, 6, 7, 8};
  const auto buckets = assign_buckets(sizes, 13, 8);
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_THAT(buckets[0].parameters, ElementsAre(3));
  EXPECT_THAT(buckets[1].parameters, ElementsAre(2, 1));
  EXPECT_THAT(buckets[2].parameters, ElementsAre(0));
}

struct Model {
  const char* id;
  std::uint64_t elements;
  std::size_t buckets_25, buckets_400;
};

class PaperModel : public testing::TestWithParam<Model> {};

TEST_P(PaperModel, TotalsAndBuckets) {
  const Model& expected = GetParam();
  const auto workload =
      load_workload(std::string(SEALRING_SOURCE_DIR "/data/workloads/") + expected.id + ".json");
  ASSERT_TRUE(workload) << workload.error().message();
  EXPECT_EQ(workload->id, expected.id);
  EXPECT_EQ(workload->elements(), expected.elements);
  const auto sizes = workload->parameter_bytes();
  EXPECT_EQ(assign_buckets(sizes).size(), expected.buckets_25);
  EXPECT_EQ(assign_buckets(sizes, 400u << 20).size(), expected.buckets_400);
  std::uint64_t total = 0;
  for (const Bucket& bucket : assign_buckets(sizes)) total += bucket.bytes;
  EXPECT_EQ(total, 4 * expected.elements);
}

INSTANTIATE_TEST_SUITE_P(
    Study, PaperModel,
    testing::Values(Model{"resnet50", 25'557'032, 5, 2}, Model{"resnet101", 44'549'160, 8, 2},
                    Model{"bert-base", 109'483'778, 14, 2}, Model{"bert-large", 335'143'938, 38, 4},
                    Model{"gpt2-large", 774'030'080, 109, 8}, Model{"gpt2-xl", 1'557'611'200, 145, 15}),
    [](const auto& tested) {
      std::string name = tested.param.id;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(Workload, ForeignFilesAreRefused) {
  const auto code_of = [](const std::string& text) { return parse_workload(text).error().code; };
  const std::string head =
      R"({"schema":"sealring-workload-1","id":"x","name":"x","provenance":"p","dtype":"fp32",)";
  ASSERT_TRUE(parse_workload(head + R"("parameters":[{"name":"w","shape":[2,3]}]})"));
  EXPECT_EQ(code_of(""), Code::malformed);
  EXPECT_EQ(code_of("{}"), Code::malformed);
  EXPECT_EQ(code_of(R"({"schema":"sealring-workload-2"})"), Code::malformed);
  EXPECT_EQ(code_of(head + R"("parameters":[]})"), Code::malformed);
  EXPECT_EQ(code_of(head + R"("parameters":[{"name":"w","shape":[0]}]})"), Code::malformed);
  EXPECT_EQ(code_of(head + R"("parameters":[{"name":"w","shape":[4294967296,4294967296]}]})"),
            Code::malformed);
  EXPECT_EQ(code_of(head + R"("parameters":[{"name":"w","shape":[-1]}]})"), Code::malformed);
  EXPECT_EQ(load_workload("/nonexistent/x.json").error().code, Code::file);
}

}  // namespace
}  // namespace sealring
