// Claim: reduce_cpu gives the reference's result for every pair of the table, length, alignment and legal
// aliasing. How: edge values and seeded bits through a slow reference that shares no code with it; guard
// bytes around outputs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "sealring/device/bulk_cipher.h"
#include "sealring/device/cpu/half_blocks.h"
#include "sealring/device/cpu/vector_level.h"
#include "sealring/primitives/reductions.h"
#include "tests/primitives/half_reference.h"

namespace sealring {
namespace {

using cpu::VectorLevel;
using Memory = std::vector<std::byte>;

// --- the reference: one element at a time, in the widest type that makes it obvious ---

struct Number {
  bool is_float = false;
  double real = 0;
  std::int64_t whole = 0;
};

template <class T>
T read_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

Number read(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::f32:
      return {true, read_as<float>(at), 0};
    case DType::f64:
      return {true, read_as<double>(at), 0};
    case DType::f16:
      return {true, test::kBinary16.decode(read_as<std::uint16_t>(at)), 0};
    case DType::bf16:
      return {true, test::kBfloat16.decode(read_as<std::uint16_t>(at)), 0};
    case DType::i8:
      return {false, 0, read_as<std::int8_t>(at)};
    case DType::i16:
      return {false, 0, read_as<std::int16_t>(at)};
    case DType::i32:
      return {false, 0, read_as<std::int32_t>(at)};
    case DType::i64:
      return {false, 0, read_as<std::int64_t>(at)};
    case DType::u8:
      return {false, 0, read_as<std::uint8_t>(at)};
    case DType::boolean:
      return {false, 0, read_as<std::uint8_t>(at) != 0 ? 1 : 0};
  }
  return {};
}

// Rounds to what is computed with: fp32 for all but fp64. A double holds the exact sum or product of two
// floats well enough that rounding it again to float gives the float operation's result (24 * 2 + 2 <= 53
// bits).
double round_value(DType dtype, double value) {
  return dtype == DType::f64 ? value : static_cast<double>(static_cast<float>(value));
}

double reduce_floats(DType dtype, RedOp redop, double a, double b) {
  switch (redop) {
    case RedOp::min:
      return std::isnan(a) || std::isnan(b) ? NAN : a < b ? a : b;
    case RedOp::max:
      return std::isnan(a) || std::isnan(b) ? NAN : a > b ? a : b;
    case RedOp::product:
      return round_value(dtype, a * b);
    default:
      return round_value(dtype, a + b);
  }
}

__extension__ using Wide = __int128;

// Wraps at the element's width.
std::int64_t wrap(DType dtype, Wide value) {
  const auto low = static_cast<std::uint64_t>(value);
  switch (dtype) {
    case DType::i8:
      return static_cast<std::int8_t>(low);
    case DType::i16:
      return static_cast<std::int16_t>(low);
    case DType::i32:
      return static_cast<std::int32_t>(low);
    case DType::u8:
      return static_cast<std::uint8_t>(low);
    default:
      return static_cast<std::int64_t>(low);
  }
}

std::int64_t reduce_integers(DType dtype, RedOp redop, std::int64_t a, std::int64_t b) {
  switch (redop) {
    case RedOp::min:
      return std::min(a, b);
    case RedOp::max:
      return std::max(a, b);
    case RedOp::product:
      return wrap(dtype, Wide{a} * b);
    default:
      return dtype == DType::boolean ? (a | b) : wrap(dtype, Wide{a} + b);
  }
}

void write(DType dtype, const Number& number, std::byte* at) {
  const auto put = [&](auto value) { std::memcpy(at, &value, sizeof(value)); };
  switch (dtype) {
    case DType::f32:
      return put(static_cast<float>(number.real));
    case DType::f64:
      return put(number.real);
    case DType::f16:
      return put(test::kBinary16.encode(number.real));
    case DType::bf16:
      return put(test::kBfloat16.encode(number.real));
    default:
      std::memcpy(at, &number.whole, dtype_bytes(dtype));  // little-endian
  }
}

Memory reference(const ReduceJob& job) {
  const std::uint32_t bytes = dtype_bytes(job.dtype);
  Memory out(job.elements * bytes);
  for (std::uint64_t i = 0; i < job.elements; ++i) {
    Number sum;
    for (std::size_t k = 0; k < job.sources.size(); ++k) {
      Number next = read(job.dtype, job.sources[k] + i * bytes);
      if (job.scale != 1.0) {
        const double factor = round_value(job.dtype, job.scale);
        next.real = round_value(job.dtype, next.real * factor);
      }
      if (k == 0) {
        sum = next;
      } else if (sum.is_float) {
        sum.real = reduce_floats(job.dtype, job.redop, sum.real, next.real);
      } else {
        sum.whole = reduce_integers(job.dtype, job.redop, sum.whole, next.whole);
      }
    }
    if (job.divisor != 1) {
      if (sum.is_float)
        sum.real = round_value(job.dtype, sum.real / job.divisor);
      else
        sum.whole /= static_cast<std::int64_t>(job.divisor);
    }
    write(job.dtype, sum, out.data() + i * bytes);
  }
  return out;
}

// --- inputs ---

// Bits of edge values of a type, to be mixed among random ones.
std::vector<std::uint64_t> edges(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return {0,          0x80000000, 0x3F800000, 0xBF800000, 0x7F7FFFFF,
              0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 1};
    case DType::f64:
      return {0,
              1ull << 63,
              0x3FF0000000000000,
              0x7FEFFFFFFFFFFFFF,
              0x7FF0000000000000,
              0xFFF0000000000000,
              0x7FF8000000000000,
              1};
    case DType::f16:
      return {0, 0x8000, 0x3C00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 1, 0x03FF, 0x0400};
    case DType::bf16:
      return {0, 0x8000, 0x3F80, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 1, 0x007F, 0x0080};
    case DType::boolean:
      return {0, 1, 2, 0xFF};
    default: {
      const unsigned bits = 8 * dtype_bytes(dtype);
      return {0, 1, ~0ull, 1ull << (bits - 1), (1ull << (bits - 1)) - 1, 2};
    }
  }
}

void fill(DType dtype, std::byte* at, std::uint64_t elements, std::mt19937_64& random) {
  const std::uint32_t bytes = dtype_bytes(dtype);
  const std::vector<std::uint64_t> special = edges(dtype);
  for (std::uint64_t i = 0; i < elements; ++i) {
    std::uint64_t bits = random();
    const std::uint64_t kind = random() % 4;
    if (kind == 0) bits = special[random() % special.size()];
    if (kind == 1 && dtype == DType::f32)
      bits = std::bit_cast<std::uint32_t>(static_cast<float>(random() % 100));
    std::memcpy(at + i * bytes, &bits, bytes);
  }
}

bool is_nan(DType dtype, const std::byte* at) {
  const Number number = read(dtype, at);
  return number.is_float && std::isnan(number.real);
}

// Equal bits, except that any NaN equals any other: which payload survives is the processor's choice.
void expect_equal(DType dtype, const Memory& wanted, const std::byte* got) {
  const std::uint32_t bytes = dtype_bytes(dtype);
  for (std::size_t at = 0; at < wanted.size(); at += bytes) {
    if (is_nan(dtype, wanted.data() + at)) {
      ASSERT_TRUE(is_nan(dtype, got + at)) << "element " << at / bytes;
    } else {
      ASSERT_EQ(0, std::memcmp(wanted.data() + at, got + at, bytes)) << "element " << at / bytes;
    }
  }
}

constexpr std::byte kGuard{0xA5};

struct Case {
  std::uint64_t elements;
  std::size_t sources;
  unsigned alignment;
  std::uint32_t divisor = 1;
  double scale = 1.0;
  int alias = -1;  ///< dst is this source
};

// At every level that this processor runs, up to the one that reduce_cpu takes.
std::vector<VectorLevel> levels() {
  std::vector<VectorLevel> out;
  for (const VectorLevel level : {VectorLevel::portable, VectorLevel::avx2, VectorLevel::avx512}) {
    if (level <= cpu::vector_level_max()) out.push_back(level);
  }
  return out;
}

void check_at(VectorLevel level, DType dtype, RedOp redop, const Case& c, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << "level " << static_cast<int>(level) << " " << to_string(dtype) << " "
                                  << to_string(redop) << " elements " << c.elements << " sources "
                                  << c.sources << " alignment " << c.alignment << " divisor " << c.divisor
                                  << " scale " << c.scale << " alias " << c.alias);
  const std::uint64_t bytes = c.elements * dtype_bytes(dtype);
  std::vector<Memory> inputs;
  std::vector<const std::byte*> sources;
  for (std::size_t k = 0; k < c.sources; ++k) {
    const std::size_t shift = (c.alignment * (k + 1)) % 16;
    inputs.emplace_back(bytes + 64, kGuard);
    fill(dtype, inputs.back().data() + 16 + shift, c.elements, random);
    sources.push_back(inputs.back().data() + 16 + shift);
  }
  Memory own(bytes + 64, kGuard);
  const bool aliased = c.alias >= 0;
  Memory& holder = aliased ? inputs[static_cast<std::size_t>(c.alias)] : own;
  std::byte* const dst = aliased ? const_cast<std::byte*>(sources[static_cast<std::size_t>(c.alias)])
                                 : own.data() + 16 + c.alignment;
  ReduceJob job;
  job.dtype = dtype;
  job.redop = redop;
  job.sources = sources;
  job.dst = dst;
  job.elements = c.elements;
  job.divisor = c.divisor;
  job.scale = c.scale;
  const Memory wanted = reference(job);
  ASSERT_TRUE(cpu::reduce_at(level, job).has_value());
  ASSERT_NO_FATAL_FAILURE(expect_equal(dtype, wanted, dst));
  for (const std::byte* at = holder.data(); at < dst; ++at) ASSERT_EQ(kGuard, *at);
  for (const std::byte* at = dst + bytes; at < holder.data() + holder.size(); ++at) ASSERT_EQ(kGuard, *at);
}

void check(DType dtype, RedOp redop, const Case& c, std::mt19937_64& random) {
  for (const VectorLevel level : levels()) ASSERT_NO_FATAL_FAILURE(check_at(level, dtype, redop, c, random));
}

class ReduceTable : public testing::TestWithParam<DType> {};

TEST_P(ReduceTable, MatchesReferenceAtEveryLengthAndAlignment) {
  std::mt19937_64 random(static_cast<std::uint64_t>(GetParam()));
  for (const RedOp redop : all_redops()) {
    if (!reduction_supported(GetParam(), redop)) continue;
    for (unsigned alignment = 0; alignment < 16; ++alignment) {
      for (const std::uint64_t elements : {0u, 1u, 7u, 64u, 511u, 512u, 513u, 1029u}) {
        ASSERT_NO_FATAL_FAILURE(check(GetParam(), redop, {elements, 2, alignment}, random));
      }
      if (alignment % 5 != 0) continue;
      ASSERT_NO_FATAL_FAILURE(check(GetParam(), redop, {530, 1, alignment}, random));
      ASSERT_NO_FATAL_FAILURE(check(GetParam(), redop, {530, 3, alignment}, random));
      ASSERT_NO_FATAL_FAILURE(check(GetParam(), redop, {513, 8, alignment}, random));
    }
  }
}

TEST_P(ReduceTable, DstMayBeAnySource) {
  std::mt19937_64 random(11);
  for (const RedOp redop : all_redops()) {
    if (!reduction_supported(GetParam(), redop)) continue;
    for (const std::size_t sources : {1u, 2u, 4u}) {
      for (int alias = 0; alias < static_cast<int>(sources); ++alias) {
        for (const unsigned alignment : {0u, 5u}) {
          Case c{777, sources, alignment};
          c.alias = alias;
          ASSERT_NO_FATAL_FAILURE(check(GetParam(), redop, c, random));
        }
      }
    }
  }
}

class Average : public testing::TestWithParam<DType> {};

TEST_P(Average, DividesOnce) {
  std::mt19937_64 random(12);
  for (const std::uint32_t divisor : {1u, 2u, 3u, 7u, 128u, 200u, 1024u}) {
    for (const std::size_t sources : {1u, 2u, 3u}) {
      Case c{600, sources, 3};
      c.divisor = divisor;
      ASSERT_NO_FATAL_FAILURE(check(GetParam(), RedOp::avg, c, random));
    }
  }
}

class Premul : public testing::TestWithParam<DType> {};

TEST_P(Premul, ScalesEverySource) {
  std::mt19937_64 random(13);
  for (const double scale : {0.5, -3.0, 1.0 / 3, 0.0}) {
    for (const std::size_t sources : {1u, 2u, 3u}) {
      Case c{600, sources, 1};
      c.scale = scale;
      ASSERT_NO_FATAL_FAILURE(check(GetParam(), RedOp::premul_sum, c, random));
    }
  }
}

std::vector<DType> types_with(RedOp redop) {
  std::vector<DType> out;
  for (const DType dtype : all_dtypes()) {
    if (reduction_supported(dtype, redop)) out.push_back(dtype);
  }
  return out;
}

constexpr auto kNameOfType = [](const testing::TestParamInfo<DType>& tested) {
  return std::string(to_string(tested.param));
};
INSTANTIATE_TEST_SUITE_P(AllTypes, ReduceTable, testing::ValuesIn(types_with(RedOp::sum)), kNameOfType);
INSTANTIATE_TEST_SUITE_P(AllTypes, Average, testing::ValuesIn(types_with(RedOp::avg)), kNameOfType);
INSTANTIATE_TEST_SUITE_P(AllTypes, Premul, testing::ValuesIn(types_with(RedOp::premul_sum)), kNameOfType);

TEST(ReduceSupport, TableIsExact) {
  for (const DType dtype : all_dtypes()) {
    EXPECT_FALSE(reduction_supported(dtype, RedOp::none));
    for (const RedOp redop : {RedOp::sum, RedOp::min, RedOp::max, RedOp::product}) {
      EXPECT_TRUE(reduction_supported(dtype, redop));
    }
    EXPECT_EQ(dtype != DType::boolean, reduction_supported(dtype, RedOp::avg));
    EXPECT_EQ(dtype_is_float(dtype), reduction_supported(dtype, RedOp::premul_sum));
  }
}

TEST(ReduceSupport, OutsideTheTableIsUnsupportedAndTouchesNothing) {
  std::byte one{1};
  const std::byte* const sources[] = {&one, &one};
  std::byte dst{7};
  for (const RedOp redop : {RedOp::avg, RedOp::premul_sum, RedOp::none}) {
    const Result<void> result = reduce_cpu({DType::boolean, redop, sources, &dst, 1, 1, 1.0});
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(Code::unsupported, result.error().code);
    EXPECT_EQ(std::byte{7}, dst);
  }
}

TEST(HalfBlocks, EveryLevelGivesTheSameBits) {
  const cpu::HalfBlocks& portable = cpu::half_blocks(VectorLevel::portable);
  std::vector<std::uint16_t> codes(65536 + 7);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
  std::mt19937 random(3);
  std::vector<float> values(codes.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Every other one in the range of binary16 itself, which few random exponents meet.
    const std::uint32_t exponent = 127 - 28 + static_cast<std::uint32_t>(random() % 46);
    const auto bits = static_cast<std::uint32_t>(random());
    values[i] = std::bit_cast<float>(i % 2 == 0 ? bits : (exponent << 23) | (bits & 0x807FFFFFu));
  }
  std::vector<float> wide(codes.size()), wide_wanted(codes.size());
  std::vector<std::uint16_t> narrow(codes.size()), narrow_wanted(codes.size());
  const auto run = [&](const cpu::HalfBlocks& halves, std::vector<float>& out,
                       std::vector<std::uint16_t>& back) {
    halves.widen(reinterpret_cast<const std::byte*>(codes.data()), out.data(), out.size());
    halves.narrow(values.data(), reinterpret_cast<std::byte*>(back.data()), back.size());
  };
  run(portable, wide_wanted, narrow_wanted);
  for (const VectorLevel level : levels()) {
    run(cpu::half_blocks(level), wide, narrow);
    EXPECT_EQ(0, std::memcmp(wide_wanted.data(), wide.data(), 4 * wide.size()));
    EXPECT_EQ(narrow_wanted, narrow);
  }
}

TEST(Poison, FillsWithNanOrAllOnes) {
  for (const DType dtype : all_dtypes()) {
    for (const std::uint64_t elements : {0u, 1u, 33u}) {
      Memory memory(elements * dtype_bytes(dtype) + 8, kGuard);
      const std::uint64_t bytes = elements * dtype_bytes(dtype);
      poison(dtype, std::span(memory).subspan(3, bytes));
      for (std::uint64_t i = 0; i < elements; ++i) {
        const std::byte* at = memory.data() + 3 + i * dtype_bytes(dtype);
        if (dtype_is_float(dtype)) {
          EXPECT_TRUE(is_nan(dtype, at));
        } else {
          const std::byte wanted = dtype == DType::boolean ? std::byte{1} : std::byte{0xFF};
          for (std::uint32_t b = 0; b < dtype_bytes(dtype); ++b) EXPECT_EQ(wanted, at[b]);
        }
      }
      for (std::uint64_t at = 0; at < 3; ++at) EXPECT_EQ(kGuard, memory[at]);
      for (std::uint64_t at = 3 + bytes; at < memory.size(); ++at) EXPECT_EQ(kGuard, memory[at]);
    }
  }
}

}  // namespace
}  // namespace sealring
