#include "tensor/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tidemill::half_test {
namespace {

constexpr uint32_t kHalfCount = 1U << 16;

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

bool IsHalfNan(uint32_t half) { return (half & 0x7C00U) == 0x7C00U && (half & 0x3FFU) != 0; }

// The definition of binary16 in f64 arithmetic, independent of the bit tricks under test.
double HalfByDefinition(uint32_t half) {
  const double sign = (half & 0x8000U) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>((half >> 10) & 0x1FU);
  const double mantissa = half & 0x3FFU;
  if (exponent == 31) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Half, EveryPattern_IsItsDefinitionAndComesBack) {
  for (uint32_t half = 0; half < kHalfCount; ++half) {
    const float value = HalfToFloat(static_cast<uint16_t>(half));
    if (IsHalfNan(half)) {
      ASSERT_TRUE(std::isnan(value)) << half;
      ASSERT_EQ(FloatToHalf(value), half | 0x200U) << half;  // quiet, same payload
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), HalfByDefinition(half)) << half;
    ASSERT_EQ(std::signbit(value), (half & 0x8000U) != 0) << half;
    ASSERT_EQ(FloatToHalf(value), half);
  }
}

TEST(Half, BetweenEveryTwoNeighbours_RoundsToNearestTiesToEven) {
  for (uint32_t half = 0; half < 0x7C00U; ++half) {
    const float low = HalfToFloat(static_cast<uint16_t>(half));
    const float high = half == 0x7BFFU ? 65536.0f : HalfToFloat(static_cast<uint16_t>(half + 1));
    const float middle = low + (high - low) / 2;  // exact: one bit more than a half has
    const uint32_t even = (half & 1U) == 0 ? half : half + 1;
    ASSERT_EQ(FloatToHalf(middle), even) << half;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), half) << half;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 1e9f)), half + 1) << half;
    ASSERT_EQ(FloatToHalf(-middle), even | 0x8000U) << half;
  }
}

TEST(Half, BeyondTheRange_IsInfinityOrZero) {
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00U);
  EXPECT_EQ(FloatToHalf(std::nextafter(65520.0f, 0.0f)), 0x7BFFU);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::max()), 0x7C00U);
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::infinity()), 0xFC00U);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::denorm_min()), 0U);
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::denorm_min()), 0x8000U);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0U);
  EXPECT_EQ(FloatToHalf(std::nextafter(0x1p-25f, 1.0f)), 1U);
}

TEST(Half, Nan_StaysNanEvenWhenThePayloadDoesNotFit) {
  EXPECT_EQ(FloatToHalf(std::bit_cast<float>(0x7F800001U)), 0x7E00U);
  EXPECT_EQ(FloatToHalf(std::bit_cast<float>(0xFFC00000U)), 0xFE00U);
  EXPECT_EQ(Bits(HalfToFloat(0x7C01)), 0x7FC02000U);
}

TEST(BFloat16, EveryPattern_ComesBack) {
  for (uint32_t bits = 0; bits < kHalfCount; ++bits) {
    const float value = BFloat16ToFloat(static_cast<uint16_t>(bits));
    ASSERT_EQ(Bits(value), bits << 16);
    ASSERT_EQ(FloatToBFloat16(value), std::isnan(value) ? bits | 0x40U : bits);
  }
}

TEST(BFloat16, BetweenEveryTwoNeighbours_RoundsToNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7F80U; ++bits) {
    const uint32_t even = (bits & 1U) == 0 ? bits : bits + 1;
    ASSERT_EQ(FloatToBFloat16(std::bit_cast<float>((bits << 16) + 0x7FFFU)), bits);
    ASSERT_EQ(FloatToBFloat16(std::bit_cast<float>((bits << 16) + 0x8000U)), even);
    ASSERT_EQ(FloatToBFloat16(std::bit_cast<float>((bits << 16) + 0x8001U)), bits + 1);
    ASSERT_EQ(FloatToBFloat16(std::bit_cast<float>(0x80000000U | ((bits << 16) + 0x8001U))), 0x8000U | (bits + 1));
  }
}

TEST(BFloat16, Nan_StaysNanEvenWhenThePayloadDoesNotFit) {
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0x7F800001U)), 0x7FC0U);
  EXPECT_EQ(FloatToBFloat16(std::bit_cast<float>(0xFFFFFFFFU)), 0xFFFFU);
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::max()), 0x7F80U);
}

}  // namespace
}  // namespace tidemill::half_test
