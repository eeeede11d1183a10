// Claim: code numbers are those of docs/wire-format.md and never change; names go both ways; deadlines tell
// the truth. How: the numbers written out once more; every enumerator through its name; a deadline at, before
// and after now.
#include "sealring/base/types.h"

#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "sealring/base/deadline.h"

namespace sealring {
namespace {

template <class T>
unsigned number(T value) {
  return static_cast<unsigned>(value);
}

TEST(Types, NumbersNeverChange) {
  EXPECT_EQ(number(Suite::aes_256_gcm), 1u);
  EXPECT_EQ(number(Suite::aes_128_gcm), 2u);
  EXPECT_EQ(number(Suite::chacha20_poly1305), 3u);
  EXPECT_EQ(number(Suite::plain), 0xF0u);
  EXPECT_EQ(number(Suite::chained_gmac), 0xF1u);
  const std::pair<Op, unsigned> ops[] = {{Op::all_reduce, 1}, {Op::reduce_scatter, 2}, {Op::all_gather, 3},
                                         {Op::broadcast, 4},  {Op::barrier, 5},        {Op::send, 6},
                                         {Op::all_to_all, 7}, {Op::reduce, 8},         {Op::gather, 9},
                                         {Op::scatter, 10}};
  for (const auto& [op, wanted] : ops) EXPECT_EQ(number(op), wanted);
  const std::pair<RedOp, unsigned> redops[] = {{RedOp::none, 0},       {RedOp::sum, 1}, {RedOp::avg, 2},
                                               {RedOp::premul_sum, 3}, {RedOp::min, 4}, {RedOp::max, 5},
                                               {RedOp::product, 6}};
  for (const auto& [redop, wanted] : redops) EXPECT_EQ(number(redop), wanted);
  const std::pair<DType, unsigned> dtypes[] = {
      {DType::f32, 1}, {DType::f64, 2}, {DType::f16, 3}, {DType::bf16, 4},    {DType::i8, 5},
      {DType::i32, 6}, {DType::i64, 7}, {DType::u8, 8},  {DType::boolean, 9}, {DType::i16, 10}};
  for (const auto& [dtype, wanted] : dtypes) EXPECT_EQ(number(dtype), wanted);
  const std::pair<Algorithm, unsigned> algorithms[] = {
      {Algorithm::ring, 1}, {Algorithm::one_hop, 2}, {Algorithm::one_shot, 3}, {Algorithm::ring_forward, 4},
      {Algorithm::tree, 5}, {Algorithm::direct, 6},  {Algorithm::two_level, 7}};
  for (const auto& [algorithm, wanted] : algorithms) EXPECT_EQ(number(algorithm), wanted);
  EXPECT_EQ(number(Kind::pair), 1u);
  EXPECT_EQ(number(Kind::p2p), 2u);
  EXPECT_EQ(number(Kind::ctl), 3u);
  EXPECT_EQ(number(Kind::conn), 4u);
  EXPECT_EQ(number(Kind::sender), 5u);
  EXPECT_EQ(number(IdentityKind::job_key), 1u);
  EXPECT_EQ(number(IdentityKind::tee), 2u);
  EXPECT_EQ(number(IdentityKind::tee_job_key), 3u);
  EXPECT_EQ(number(IdentityKind::simulated_tee), 0xF0u);
  EXPECT_EQ(number(IdentityKind::study), 0xF1u);
}

template <class T, class Parse>
void names_go_both_ways(std::span<const T> all, std::size_t wanted, Parse parse) {
  EXPECT_EQ(all.size(), wanted);
  std::set<std::string> names;
  for (const T value : all) {
    const std::string name(to_string(value));
    EXPECT_NE(name, "?");
    EXPECT_TRUE(names.insert(name).second) << name;
    ASSERT_TRUE(parse(name).has_value()) << name;
    EXPECT_EQ(*parse(name), value);
  }
  for (const char* text : {"", "?", "AES-256-GCM", "sum ", " sum"})
    EXPECT_FALSE(parse(text).has_value()) << text;
}

TEST(Types, NamesGoBothWays) {
  names_go_both_ways(all_suites(), 5, parse_suite);
  names_go_both_ways(all_ops(), 10, parse_op);
  names_go_both_ways(all_redops(), 7, parse_redop);
  names_go_both_ways(all_dtypes(), 10, parse_dtype);
  names_go_both_ways(all_algorithms(), 7, parse_algorithm);
}

TEST(Types, TheDocumentHasEveryNameWithItsNumber) {
  std::ifstream in(SEALRING_SOURCE_DIR "/docs/wire-format.md");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto listed = [&text](std::string_view name, unsigned value) {
    const std::string row = "| `" + std::string(name) + "` | " + std::to_string(value);
    const auto at = text.find(row);
    return at != std::string::npos && !std::isdigit(static_cast<unsigned char>(text[at + row.size()]));
  };
  for (const Suite one : all_suites()) EXPECT_TRUE(listed(to_string(one), number(one))) << to_string(one);
  for (const Op one : all_ops()) EXPECT_TRUE(listed(to_string(one), number(one))) << to_string(one);
  for (const RedOp one : all_redops()) EXPECT_TRUE(listed(to_string(one), number(one))) << to_string(one);
  for (const DType one : all_dtypes()) EXPECT_TRUE(listed(to_string(one), number(one))) << to_string(one);
  for (const Algorithm one : all_algorithms())
    EXPECT_TRUE(listed(to_string(one), number(one))) << to_string(one);
  for (const Kind one : {Kind::pair, Kind::p2p, Kind::ctl, Kind::conn, Kind::sender}) {
    EXPECT_TRUE(listed(to_string(one), number(one))) << to_string(one);
  }
}

TEST(Types, UnknownNumbersHaveNoName) {
  EXPECT_EQ(to_string(static_cast<Op>(99)), "?");
  EXPECT_EQ(to_string(static_cast<Suite>(99)), "?");
  EXPECT_EQ(to_string(static_cast<Kind>(99)), "?");
  EXPECT_EQ(to_string(static_cast<IdentityKind>(99)), "?");
}

TEST(Types, SizesOfElementsAndKeys) {
  const std::pair<DType, unsigned> bytes[] = {
      {DType::f32, 4}, {DType::f64, 8}, {DType::f16, 2}, {DType::bf16, 2}, {DType::i8, 1},
      {DType::i16, 2}, {DType::i32, 4}, {DType::i64, 8}, {DType::u8, 1},   {DType::boolean, 1}};
  for (const auto& [dtype, wanted] : bytes) EXPECT_EQ(dtype_bytes(dtype), wanted);
  for (const DType dtype : all_dtypes()) {
    const bool is_float =
        dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
    EXPECT_EQ(dtype_is_float(dtype), is_float) << to_string(dtype);
  }
  EXPECT_EQ(suite_key_bytes(Suite::aes_256_gcm), 32u);
  EXPECT_EQ(suite_key_bytes(Suite::aes_128_gcm), 16u);
  EXPECT_EQ(suite_key_bytes(Suite::chacha20_poly1305), 32u);
  EXPECT_EQ(suite_key_bytes(Suite::plain), 0u);
  for (const Suite suite : all_suites()) {
    EXPECT_EQ(suite_is_study(suite), suite == Suite::plain || suite == Suite::chained_gmac);
  }
}

TEST(Deadline, TellsTheTruth) {
  using namespace std::chrono_literals;
  const Deadline past = Deadline::in(-1s), soon = Deadline::in(1h), never = Deadline::never();
  EXPECT_TRUE(past.expired());
  EXPECT_EQ(past.left(), 0ms);
  EXPECT_FALSE(soon.expired());
  EXPECT_GT(soon.left(), 59min);
  EXPECT_LE(soon.left(), 1h);
  EXPECT_FALSE(never.expired());
  EXPECT_EQ(never.left(), 1h);
  EXPECT_EQ(soon.earlier(past).when(), past.when());
  EXPECT_EQ(past.earlier(soon).when(), past.when());
  EXPECT_EQ(never.earlier(soon).when(), soon.when());
  // Rounded up: a wait of what is left never ends before the deadline.
  EXPECT_EQ(Deadline::in(1ns + 0s).left() <= 1ms, true);
}

TEST(Deadline, TheClockForTimersDoesNotRunBack) {
  const std::uint64_t first = now_ns();
  EXPECT_LE(first, now_ns());
}

}  // namespace
}  // namespace sealring
