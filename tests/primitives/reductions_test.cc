// Claim: 16-bit conversions round to nearest even for every code and around every midpoint; integer
// arithmetic wraps. How: all 65536 codes, all midpoints and their neighbours, against a table search; tables
// of edge values for the rest.
#include "sealring/primitives/reductions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/primitives/half_reference.h"

namespace sealring {
namespace {

using reductions::combine;
using reductions::complete;
using test::HalfFormat;
using test::kBfloat16;
using test::kBinary16;

template <class Decode>
void expect_decodes_all(const HalfFormat& format, Decode decode) {
  for (std::uint32_t code = 0; code <= 0xFFFF; ++code) {
    const double wanted = format.decode(static_cast<std::uint16_t>(code));
    const float got = decode(static_cast<std::uint16_t>(code));
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(got)) << code;
    } else {
      ASSERT_EQ(wanted, static_cast<double>(got)) << code;
      ASSERT_EQ(std::signbit(wanted), std::signbit(got)) << code;
    }
  }
}

template <class Encode>
void expect_encodes(const HalfFormat& format, float value, Encode encode) {
  const std::uint16_t wanted = format.encode(static_cast<double>(value));
  ASSERT_EQ(wanted, encode(value)) << std::hexfloat << value;
}

// The value itself, the midpoint to the next and its two neighbours in fp32 decide every rounding.
template <class Encode>
void expect_encodes_all(const HalfFormat& format, Encode encode) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (std::uint16_t code = 0; code < format.infinity(); ++code) {
    const double here = format.decode(code);
    const auto before = static_cast<std::uint16_t>(code - 1);
    const auto after = static_cast<std::uint16_t>(code + 1);
    const double next = after == format.infinity() ? 2 * here - format.decode(before) : format.decode(after);
    const float middle = static_cast<float>((here + next) / 2);
    for (const float sign : {1.0f, -1.0f}) {
      for (const float value : {static_cast<float>(here), middle, std::nextafter(middle, 0.0f),
                                std::nextafter(middle, kInfinity)}) {
        ASSERT_NO_FATAL_FAILURE(expect_encodes(format, sign * value, encode));
      }
    }
  }
  for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::lowest(), std::numeric_limits<float>::denorm_min()}) {
    ASSERT_NO_FATAL_FAILURE(expect_encodes(format, value, encode));
  }
  std::mt19937 random(7);
  for (int i = 0; i < 200'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(value)) continue;
    ASSERT_NO_FATAL_FAILURE(expect_encodes(format, value, encode));
  }
}

// Every NaN, also one whose payload sits in the bits that are cut off, stays a quiet NaN of its sign.
template <class Encode>
void expect_nan_stays(std::uint16_t infinity, std::uint16_t quiet_bit, Encode encode) {
  for (const std::uint32_t bits :
       {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFC00000u, 0x7FBFFFFFu}) {
    const std::uint16_t code = encode(std::bit_cast<float>(bits));
    EXPECT_EQ(infinity, code & infinity) << bits;
    EXPECT_NE(0, code & quiet_bit) << bits;
    EXPECT_EQ(bits >> 31, code >> 15) << bits;
  }
}

TEST(Halves, BinarySixteenDecodes) { expect_decodes_all(kBinary16, reductions::f32_of_f16); }
TEST(Halves, BinarySixteenEncodes) { expect_encodes_all(kBinary16, reductions::f16_of_f32); }
TEST(Halves, BfloatDecodes) { expect_decodes_all(kBfloat16, reductions::f32_of_bf16); }
TEST(Halves, BfloatEncodes) { expect_encodes_all(kBfloat16, reductions::bf16_of_f32); }
TEST(Halves, NanStaysNan) {
  expect_nan_stays(0x7C00, 0x0200, reductions::f16_of_f32);
  expect_nan_stays(0x7F80, 0x0040, reductions::bf16_of_f32);
}

TEST(Halves, KnownCodes) {
  static_assert(reductions::f16_of_f32(65504.0f) == 0x7BFF);
  static_assert(reductions::f16_of_f32(65520.0f) == 0x7C00,
                "a tie with the next power goes to even: infinity");
  static_assert(reductions::f16_of_f32(0x1p-24f) == 0x0001);
  static_assert(reductions::f16_of_f32(0x1p-25f) == 0x0000, "a tie with zero goes to zero");
  static_assert(reductions::f16_of_f32(-0.0f) == 0x8000);
  static_assert(reductions::bf16_of_f32(1.0f) == 0x3F80);
  static_assert(reductions::bf16_of_f32(0x1.01p0f) == 0x3F80, "1 + 2^-8 is a tie: to even");
  static_assert(reductions::bf16_of_f32(0x1.03p0f) == 0x3F82);
}

template <DType D>
void expect_wraps() {
  using T = typename reductions::Element<D>::Value;
  using Limits = std::numeric_limits<T>;
  EXPECT_EQ(Limits::min(), (combine<D, RedOp::sum>(Limits::max(), T{1})));
  EXPECT_EQ(static_cast<T>(1), (combine<D, RedOp::product>(Limits::max(), Limits::max())));
  EXPECT_EQ(T{0}, (combine<D, RedOp::sum>(Limits::max(), static_cast<T>(-Limits::max()))));
  EXPECT_EQ(Limits::min(), (combine<D, RedOp::min>(Limits::max(), Limits::min())));
  EXPECT_EQ(Limits::max(), (combine<D, RedOp::max>(Limits::min(), Limits::max())));
}

TEST(Integers, SumsAndProductsWrap) {
  expect_wraps<DType::i8>();
  expect_wraps<DType::i16>();
  expect_wraps<DType::i32>();
  expect_wraps<DType::i64>();
  expect_wraps<DType::u8>();
}

TEST(Integers, AverageTruncatesTowardZero) {
  EXPECT_EQ(-2, complete<DType::i32>(-7, 3));
  EXPECT_EQ(2, complete<DType::i32>(7, 3));
  EXPECT_EQ(0, complete<DType::i8>(-128, 200));
  EXPECT_EQ(127, complete<DType::u8>(255, 2));
  EXPECT_EQ(std::numeric_limits<std::int64_t>::min() / 2,
            complete<DType::i64>(std::numeric_limits<std::int64_t>::min(), 2));
}

TEST(Booleans, AnyNonZeroIsTrue) {
  using Bool = reductions::Element<DType::boolean>;
  EXPECT_EQ(1, Bool::widen(0xFF));
  EXPECT_EQ(1, Bool::widen(2));
  EXPECT_EQ(0, Bool::widen(0));
  EXPECT_EQ(1, (combine<DType::boolean, RedOp::sum>(1, 1)));
  EXPECT_EQ(1, (combine<DType::boolean, RedOp::max>(0, 1)));
  EXPECT_EQ(0, (combine<DType::boolean, RedOp::product>(1, 0)));
  EXPECT_EQ(0, (combine<DType::boolean, RedOp::min>(1, 0)));
}

template <DType D>
void expect_nan_propagates() {
  using T = typename reductions::Element<D>::Value;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  EXPECT_TRUE(std::isnan(combine<D, RedOp::min>(nan, T{1})));
  EXPECT_TRUE(std::isnan(combine<D, RedOp::min>(T{1}, nan)));
  EXPECT_TRUE(std::isnan(combine<D, RedOp::max>(nan, T{1})));
  EXPECT_TRUE(std::isnan(combine<D, RedOp::max>(T{1}, nan)));
  EXPECT_EQ(T{-2}, (combine<D, RedOp::min>(T{-2}, T{1})));
  EXPECT_EQ(T{1}, (combine<D, RedOp::max>(T{-2}, T{1})));
}

TEST(Floats, MinAndMaxPropagateNan) {
  expect_nan_propagates<DType::f32>();
  expect_nan_propagates<DType::f64>();
  expect_nan_propagates<DType::f16>();
  expect_nan_propagates<DType::bf16>();
}

}  // namespace
}  // namespace sealring
