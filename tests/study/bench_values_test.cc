// Claim: the values of `bench` have exact results in every type, and a wrong element is counted.
// How: sums by independent arithmetic for every type, reduction and several worlds; ranges; one element
// changed.
#include "sealring/study/bench_values.h"

#include <gtest/gtest.h>

#include <cstring>

#include "sealring/base/bytes.h"
#include "sealring/device/bulk_cipher.h"
#include "sealring/study/bench_spec.h"

namespace sealring {
namespace {

TEST(BenchValues, EncodingsOfSmallNumbers) {
  EXPECT_EQ(encode_value(DType::f32, 1), 0x3f800000u);
  EXPECT_EQ(encode_value(DType::f32, -2), 0xc0000000u);
  EXPECT_EQ(encode_value(DType::f64, 1), 0x3ff0000000000000u);
  EXPECT_EQ(encode_value(DType::bf16, 3), 0x4040u);
  EXPECT_EQ(encode_value(DType::f16, 0), 0u);
  EXPECT_EQ(encode_value(DType::f16, 1), 0x3c00u);
  EXPECT_EQ(encode_value(DType::f16, -2), 0xc000u);
  EXPECT_EQ(encode_value(DType::f16, 2047), 0x67ffu);
  EXPECT_EQ(encode_value(DType::i8, -1), 0xffu);
  EXPECT_EQ(encode_value(DType::i16, -2), 0xfffeu);
  EXPECT_EQ(encode_value(DType::i64, -1), ~0ull);
  EXPECT_EQ(encode_value(DType::boolean, 7), 1u);
}

TEST(BenchValues, RangesHoldEveryReductionExactly) {
  for (const std::uint16_t ranks : {std::uint16_t{1}, std::uint16_t{2}, std::uint16_t{3}, std::uint16_t{8}}) {
    for (const RedOp redop : all_redops()) {
      const ValueSpec spec{7, ranks, DType::bf16, redop};
      for (std::uint64_t i = 0; i < 500; ++i) {
        const std::int64_t sum = reduced_value(spec, i);
        EXPECT_LE(std::abs(sum), 127) << to_string(redop) << " " << ranks;
        if (redop != RedOp::avg) continue;
        std::int64_t total = 0;
        for (Rank rank = 0; rank < ranks; ++rank) total += input_value(spec, rank, i);
        EXPECT_EQ(total, sum * ranks);  // the mean is whole: nothing is rounded
      }
    }
  }
}

/// The library's own reduction of the generated inputs gives the generated result, in every type.
TEST(BenchValues, AgreeWithTheReductionOfTheDevice) {
  constexpr std::uint64_t kElements = 257;
  for (const DType dtype : all_dtypes()) {
    for (const RedOp redop : all_redops()) {
      if (redop == RedOp::none || !reduction_supported(dtype, redop)) continue;
      const ValueSpec spec{3, 3, dtype, redop};
      std::vector<Bytes> inputs;
      std::vector<const std::byte*> sources;
      for (Rank rank = 0; rank < 3; ++rank) {
        inputs.emplace_back(kElements * dtype_bytes(dtype));
        fill_input(spec, rank, 11, inputs.back());
        EXPECT_EQ(count_wrong_input(spec, rank, 11, inputs.back()), 0u);
      }
      for (const Bytes& input : inputs) sources.push_back(input.data());
      Bytes out(kElements * dtype_bytes(dtype));
      ReduceJob job;
      job.dtype = dtype;
      job.redop = redop;
      job.sources = sources;
      job.dst = out.data();
      job.elements = kElements;
      job.divisor = redop == RedOp::avg ? 3 : 1;
      job.scale = redop == RedOp::premul_sum ? kPremulFactor : 1.0;
      ASSERT_TRUE(reduce_cpu(job));
      EXPECT_EQ(count_wrong_reduced(spec, 11, out), 0u) << to_string(dtype) << " " << to_string(redop);
      out[5 * dtype_bytes(dtype)] ^= std::byte{1};
      EXPECT_EQ(count_wrong_reduced(spec, 11, out), 1u) << to_string(dtype) << " " << to_string(redop);
    }
  }
}

TEST(BenchSpec, SurvivesItsJson) {
  BenchSpec spec;
  spec.op = Op::reduce_scatter;
  spec.ranks = 6;
  spec.node_ranks = 3;
  spec.sizes_bytes = {1024, 4096};
  spec.cases = {{.gloo = true, .suite = Suite::plain, .algorithm = {}},
                {.gloo = false, .suite = Suite::chacha20_poly1305, .algorithm = Algorithm::one_hop}};
  spec.dtype = DType::bf16;
  spec.redop = RedOp::avg;
  spec.max_mad_percent = 2.5;
  spec.json_path = "a \"b\".json";
  const auto back = BenchSpec::from_json(spec.to_json());
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->to_json(), spec.to_json());
  EXPECT_EQ(back->cases, spec.cases);
  EXPECT_EQ(back->node_ranks, 3);
  EXPECT_EQ(back->max_mad_percent, 2.5);
  EXPECT_EQ(BenchSpec::from_json("{").error().code, Code::malformed);
  EXPECT_EQ(BenchSpec::from_json("{}").error().code, Code::malformed);
}

TEST(BenchSpec, AutoKnowsTheNodes) {
  BenchSpec spec;
  spec.ranks = 8;
  const BenchCase automatic;
  EXPECT_EQ(algorithm_name(spec, automatic, 1u << 30), "one-hop");
  spec.node_ranks = 4;
  for (const bool cuda : {false, true}) {
    spec.cuda = cuda;
    EXPECT_EQ(algorithm_name(spec, automatic, 1u << 30), "two-level");
    EXPECT_NE(algorithm_name(spec, automatic, 1024), "two-level");
  }
}

TEST(BenchSpec, SizesAndFactorsAreThoseOfNcclTests) {
  BenchSpec spec;
  spec.ranks = 4;
  spec.op = Op::all_gather;
  const BenchSize gathered = bench_size(spec, 1024);
  EXPECT_EQ(gathered.count, 64u);
  EXPECT_EQ(gathered.size_bytes, 1024u);
  EXPECT_EQ(gathered.in_elements, 64u);
  EXPECT_EQ(gathered.out_elements, 256u);
  spec.op = Op::reduce_scatter;
  EXPECT_EQ(bench_size(spec, 1024).in_elements, 256u);
  EXPECT_EQ(bench_size(spec, 1024).out_elements, 64u);
  spec.op = Op::all_reduce;
  EXPECT_EQ(bench_size(spec, 1).size_bytes, 4u);
  EXPECT_EQ(bench_size(spec, 1026).size_bytes, 1024u);
  EXPECT_DOUBLE_EQ(bus_factor(Op::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Op::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Op::reduce_scatter, 2), 0.5);
  EXPECT_DOUBLE_EQ(bus_factor(Op::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Op::send, 4), 1);
}

TEST(BenchSpec, ByteTexts) {
  EXPECT_EQ(*parse_bytes("1K"), 1024u);
  EXPECT_EQ(*parse_bytes("64M"), 64u << 20);
  EXPECT_EQ(*parse_bytes("2G"), 2ull << 30);
  EXPECT_EQ(*parse_bytes("1.5M"), 3u << 19);
  EXPECT_EQ(*parse_bytes("16KiB"), 16384u);
  EXPECT_EQ(*parse_bytes("1000"), 1000u);
  for (const char* bad : {"", "K", "-1", "1X", "nan", "1e30"}) {
    EXPECT_EQ(parse_bytes(bad).error().code, Code::invalid_argument) << bad;
  }
  EXPECT_EQ(format_bytes(1024), "1K");
  EXPECT_EQ(format_bytes(3u << 19), "1536K");
  EXPECT_EQ(format_bytes(1000), "1000");
}

}  // namespace
}  // namespace sealring
