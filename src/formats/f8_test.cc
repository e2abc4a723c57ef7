#include "formats/f8.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/half.h"

namespace tidemill::f8_test {
namespace {

// The value by its definition: sign, exponent of `bits` bits with `bias`, mantissa of the rest.
double ByDefinition(uint8_t f8, int exponent_bits, int bias) {
  const int mantissa_bits = 7 - exponent_bits;
  const int exponent = (f8 >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = f8 & ((1 << mantissa_bits) - 1);
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return (f8 & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(F8, EveryE4M3_IsTheSameNumberInF16) {
  for (int i = 0; i < 256; ++i) {
    const auto f8 = static_cast<uint8_t>(i);
    const float half = HalfToFloat(F8E4M3ToHalf(f8));
    EXPECT_EQ(std::signbit(half), i >= 128) << i;
    if ((i & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(half)) << i;
    } else {
      EXPECT_EQ(static_cast<double>(half), ByDefinition(f8, 4, 7)) << i;
    }
  }
  EXPECT_EQ(HalfToFloat(F8E4M3ToHalf(0x7E)), 448.0f);
  EXPECT_EQ(HalfToFloat(F8E4M3ToHalf(0x01)), 0x1p-9f);
}

TEST(F8, EveryE5M2_IsTheSameNumberInF16) {
  for (int i = 0; i < 256; ++i) {
    const auto f8 = static_cast<uint8_t>(i);
    const float half = HalfToFloat(F8E5M2ToHalf(f8));
    EXPECT_EQ(std::signbit(half), i >= 128) << i;
    if ((i & 0x7F) > 0x7C) {
      EXPECT_TRUE(std::isnan(half)) << i;
      EXPECT_NE(F8E5M2ToHalf(f8) & 0x200, 0) << i;  // quiet
    } else if ((i & 0x7F) == 0x7C) {
      EXPECT_TRUE(std::isinf(half)) << i;
    } else {
      EXPECT_EQ(static_cast<double>(half), ByDefinition(f8, 5, 15)) << i;
    }
  }
  EXPECT_EQ(HalfToFloat(F8E5M2ToHalf(0x7B)), 57344.0f);
  EXPECT_EQ(HalfToFloat(F8E5M2ToHalf(0x01)), 0x1p-16f);
}

}  // namespace
}  // namespace tidemill::f8_test
