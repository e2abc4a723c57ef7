#include "tests/support/encode_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tensor/dequantize.h"

namespace tidemill::testing {
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

TEST(EncodeWeights, ConstantBlock_ComesBackExactly) {
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto dtype = static_cast<DType>(t);
    EXPECT_EQ(RoundTrip(dtype, std::vector<float>(32, 0.0f)), std::vector<float>(32, 0.0f)) << InfoOf(dtype).name;
  }
  EXPECT_EQ(RoundTrip(DType::kQ4_1, std::vector<float>(32, -1.5f)), std::vector<float>(32, -1.5f));
  EXPECT_EQ(RoundTrip(DType::kQ4_0, std::vector<float>(32, -1.5f)), std::vector<float>(32, -1.5f));
}

}  // namespace
}  // namespace tidemill::testing
