#include "tensor/dequantize.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tidemill {
namespace {

std::vector<float> Dequantize(DType dtype, const std::vector<uint8_t>& bytes, size_t cols) {
  std::vector<float> out(cols, -1000.0f);
  DequantizeRow(dtype, std::as_bytes(std::span(bytes)), out);
  return out;
}

TEST(DequantizeRow, F32_CopiesBits) {
  EXPECT_EQ(Dequantize(DType::kF32, {0x00, 0x00, 0x80, 0x3F, 0x00, 0x00, 0x20, 0xC0}, 2),
            (std::vector<float>{1.0f, -2.5f}));
}

TEST(DequantizeRow, F16_ReadsHalves) {
  EXPECT_EQ(Dequantize(DType::kF16, {0x00, 0x3C, 0x00, 0xC1, 0x01, 0x00}, 3),
            (std::vector<float>{1.0f, -2.5f, 0x1p-24f}));
}

TEST(DequantizeRow, BF16_ReadsUpperHalves) {
  EXPECT_EQ(Dequantize(DType::kBF16, {0x80, 0x3F, 0x20, 0xC0}, 2), (std::vector<float>{1.0f, -2.5f}));
}

TEST(DequantizeRow, Q8_0_ScalesSignedBytes) {
  std::vector<uint8_t> bytes = {0x00, 0x38};  // d = 0.5
  for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<uint8_t>(i * 8 - 128));
  bytes.insert(bytes.end(), {0x00, 0xBC});  // second block: d = -1
  bytes.insert(bytes.end(), 32, 0x7F);
  const std::vector<float> y = Dequantize(DType::kQ8_0, bytes, 64);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], 0.5f * static_cast<float>(i * 8 - 128)) << i;
  for (size_t i = 32; i < 64; ++i) EXPECT_EQ(y[i], -127.0f) << i;
}

TEST(DequantizeRow, Q4_0_LowNibblesAreTheFirstHalf) {
  std::vector<uint8_t> bytes = {0x00, 0x40};  // d = 2
  for (int i = 0; i < 16; ++i) bytes.push_back(static_cast<uint8_t>(i | ((15 - i) << 4)));
  const std::vector<float> y = Dequantize(DType::kQ4_0, bytes, 32);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(y[static_cast<size_t>(i)], 2.0f * static_cast<float>(i - 8)) << i;
    EXPECT_EQ(y[static_cast<size_t>(i + 16)], 2.0f * static_cast<float>(7 - i)) << i;
  }
}

TEST(DequantizeRow, Q4_1_AddsTheMinimum) {
  std::vector<uint8_t> bytes = {0x00, 0x40, 0x00, 0xC1};  // d = 2, m = -2.5
  for (int i = 0; i < 16; ++i) bytes.push_back(static_cast<uint8_t>(i | ((15 - i) << 4)));
  const std::vector<float> y = Dequantize(DType::kQ4_1, bytes, 32);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(y[static_cast<size_t>(i)], 2.0f * static_cast<float>(i) - 2.5f) << i;
    EXPECT_EQ(y[static_cast<size_t>(i + 16)], 2.0f * static_cast<float>(15 - i) - 2.5f) << i;
  }
}

TEST(DequantizeRow, NoElements_IsFine) {
  for (int i = 0; i < kNumDTypes; ++i) EXPECT_TRUE(Dequantize(static_cast<DType>(i), {}, 0).empty());
}

TEST(DequantizeRowDeathTest, WrongSizes_StopTheProcess) {
  EXPECT_DEATH(Dequantize(DType::kQ8_0, std::vector<uint8_t>(33), 32), "internal check failed");
  EXPECT_DEATH(Dequantize(DType::kQ4_0, std::vector<uint8_t>(9), 16), "internal check failed");
}

}  // namespace
}  // namespace tidemill
