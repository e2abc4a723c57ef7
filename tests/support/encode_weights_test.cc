#include "tests/support/encode_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tensor/dequantize.h"

namespace tidemill::testing::encode_weights_test {
namespace {

std::vector<float> RoundTrip(DType dtype, const std::vector<float>& values) {
  const std::string bytes = EncodeWeights(dtype, values);
  EXPECT_EQ(bytes.size(), RowBytes(dtype, values.size()));
  std::vector<float> out(values.size());
  DequantizeRow(dtype, std::as_bytes(std::span(bytes)), out);
  return out;
}

TEST(EncodeWeights, RandomBlocks_ComeBackWithinTolerance) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto dtype = static_cast<DType>(t);
    for (const float amax : {0.05f, 1.0f, 300.0f}) {
      std::vector<float> values(32 * 200);
      for (float& v : values) v = amax * uniform(random);
      const std::vector<float> back = RoundTrip(dtype, values);
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_LE(std::fabs(back[i] - values[i]), EncodeTolerance(dtype, amax))
            << InfoOf(dtype).name << " amax " << amax << " element " << i << ": " << values[i] << " -> " << back[i];
      }
    }
  }
}

TEST(EncodeWeights, Q8_0_KnownBytes) {
  std::vector<float> values(32, 0.0f);
  values[0] = 127.0f;
  values[1] = -127.0f;
  values[2] = 2.5f;  // away from zero
  values[31] = -2.5f;
  std::string expected("\x00\x3C\x7F\x81\x03", 5);
  expected += std::string(28, '\0') + "\xFD";
  EXPECT_EQ(EncodeWeights(DType::kQ8_0, values), expected);
}

TEST(EncodeWeights, Q4_0_KnownBytes) {
  std::vector<float> values(32, 0.0f);
  values[0] = -8.0f;  // d = 1, nibble 0
  values[16] = 7.0f;  // nibble 15, in the same byte
  values[1] = 1.0f;
  EXPECT_EQ(EncodeWeights(DType::kQ4_0, values), std::string("\x00\x3C\xF0\x89", 4) + std::string(14, '\x88'));
}

TEST(EncodeWeights, Q4_1_KnownBytes) {
  std::vector<float> values(32, -1.0f);
  values[0] = 29.0f;  // d = 2, m = -1, nibble 15
  values[17] = 5.0f;  // nibble 3, high half of byte 1
  EXPECT_EQ(EncodeWeights(DType::kQ4_1, values), std::string("\x00\x40\x00\xBC\x0F\x30", 6) + std::string(14, '\0'));
}

TEST(EncodeWeights, Q5_0_KnownBytes) {
  std::vector<float> values(32, 0.0f);
  values[0] = -16.0f;  // d = 1, q = 0
  values[16] = 15.0f;  // q = 31, in the same byte
  values[1] = 1.0f;
  EXPECT_EQ(EncodeWeights(DType::kQ5_0, values),
            std::string("\x00\x3C\xFE\xFF\xFF\xFF\xF0\x01", 8) + std::string(14, '\0'));
}

TEST(EncodeWeights, Q5_1_KnownBytes) {
  std::vector<float> values(32, -1.0f);
  values[0] = 61.0f;   // d = 2, m = -1, q = 31
  values[17] = 37.0f;  // q = 19, high half of byte 1
  EXPECT_EQ(EncodeWeights(DType::kQ5_1, values),
            std::string("\x00\x40\x00\xBC\x01\x00\x02\x00\x0F\x30", 10) + std::string(14, '\0'));
}

TEST(EncodeWeights, ConstantBlock_ComesBackExactly) {
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto dtype = static_cast<DType>(t);
    EXPECT_EQ(RoundTrip(dtype, std::vector<float>(256, 0.0f)), std::vector<float>(256, 0.0f)) << InfoOf(dtype).name;
  }
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1}) {
    EXPECT_EQ(RoundTrip(dtype, std::vector<float>(32, -1.5f)), std::vector<float>(32, -1.5f)) << InfoOf(dtype).name;
  }
}

// Values that the type can hold come back, so that no scale, minimum or high bit is lost on the way.
TEST(EncodeWeights, KQuantsOfWhatTheyCanHold_ComeBackExactly) {
  for (const auto& [dtype, largest] : {std::pair<DType, int>{DType::kQ4_K, 15}, {DType::kQ5_K, 31}}) {
    std::vector<float> values;
    for (int i = 0; i < 256; ++i) {
      const int j = i / 32, q = i % 32 == 0 ? 0 : i % 32 == 1 ? largest : i * 7 % (largest + 1);
      const int sc = j == 3 ? 63 : 5 + 8 * j, m = j == 6 ? 63 : 57 - 8 * j;  // d = 0.25, dmin = 0.125
      values.push_back(static_cast<float>(sc * q) * 0.25f - static_cast<float>(m) * 0.125f);
    }
    EXPECT_EQ(RoundTrip(dtype, values), values) << InfoOf(dtype).name;
  }
  std::vector<float> values;
  for (int i = 0; i < 256; ++i) {
    const int s = i / 16, sc = s == 5 ? -127 : 15 * s - 120, q = i % 16 == 3 ? -32 : i * 7 % 63 - 31;
    values.push_back(static_cast<float>(sc * q) * 0.5f);
  }
  EXPECT_EQ(RoundTrip(DType::kQ6_K, values), values);
}

}  // namespace
}  // namespace tidemill::testing::encode_weights_test
