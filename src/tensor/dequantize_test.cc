#include "tensor/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <vector>

namespace tidemill::dequantize_test {
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

// Sixteen bytes whose nibbles are 0..15 upwards (elements 0..15) and 15..0 (elements 16..31).
std::vector<uint8_t> Staircase() {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 16; ++i) bytes.push_back(static_cast<uint8_t>(i | ((15 - i) << 4)));
  return bytes;
}

TEST(DequantizeRow, Q5_0_TakesTheFifthBitFromTheWord) {
  std::vector<uint8_t> bytes = {0x00, 0x40, 0x05, 0x80, 0x01, 0xC0};  // d = 2; bits 0, 2, 15, 16, 30, 31
  for (const uint8_t byte : Staircase()) bytes.push_back(byte);
  EXPECT_EQ(Dequantize(DType::kQ5_0, bytes, 32),
            (std::vector<float>{0,  -30, 4,  -26, -24, -22, -20, -18, -16, -14, -12, -10, -8,  -6,  -4, 30,
                                30, -4,  -6, -8,  -10, -12, -14, -16, -18, -20, -22, -24, -26, -28, 2,  0}));
}

TEST(DequantizeRow, Q5_1_AddsTheMinimum) {
  std::vector<uint8_t> bytes = {0x00, 0x40, 0x00, 0xC1, 0x05, 0x80, 0x01, 0xC0};  // d = 2, m = -2.5, bits as above
  for (const uint8_t byte : Staircase()) bytes.push_back(byte);
  EXPECT_EQ(Dequantize(DType::kQ5_1, bytes, 32),
            (std::vector<float>{29.5F, -.5F,  33.5F, 3.5F,  5.5F,  7.5F,  9.5F,  11.5F, 13.5F, 15.5F, 17.5F,
                                19.5F, 21.5F, 23.5F, 25.5F, 59.5F, 59.5F, 25.5F, 23.5F, 21.5F, 19.5F, 17.5F,
                                15.5F, 13.5F, 11.5F, 9.5F,  7.5F,  5.5F,  3.5F,  1.5F,  31.5F, 29.5F}));
}

// d = 0.5, dmin = -0.25, and twelve bytes made by hand from these scales and minima.
const std::vector<uint8_t> kHeadWithMinima = {0x00, 0x38, 0x00, 0xB4,  //
                                              0x41, 0xC2, 0x21, 0xFF, 0x83, 0x7C, 0xC0, 0x1F, 0xF1, 0x00, 0xF5, 0xAE};
constexpr int kScales[8] = {1, 2, 33, 63, 17, 48, 5, 62}, kMinima[8] = {3, 60, 0, 31, 47, 16, 63, 10};

TEST(DequantizeRow, Q4_K_HasAScaleAndAMinimumForEach32) {
  std::vector<uint8_t> bytes = kHeadWithMinima;
  for (int i = 0; i < 128; ++i) bytes.push_back(static_cast<uint8_t>(i * 37 + 11));
  const std::vector<float> y = Dequantize(DType::kQ4_K, bytes, 256);
  EXPECT_EQ(y[0], 0.5F * 1 * 11 + 0.25F * 3);             // byte 0 = 0x0B
  EXPECT_EQ(y[32], 0.5F * 2 * 0 + 0.25F * 60);            // its high nibble
  EXPECT_EQ(y[64 + 31], 0.5F * 33 * 6 + 0.25F * 0);       // byte 63 = 9 * 256 + 0x26: 63 * 37 + 11 = 2342
  EXPECT_EQ(y[7 * 32 + 31], 0.5F * 62 * 6 + 0.25F * 10);  // byte 127 = 4710 = 0x66
  for (size_t i = 0; i < 256; ++i) {
    const size_t j = i / 32;
    const uint8_t byte = static_cast<uint8_t>((j / 2 * 32 + i % 32) * 37 + 11);
    const int q = j % 2 == 0 ? byte & 15 : byte >> 4;
    EXPECT_EQ(y[i], 0.5F * static_cast<float>(kScales[j] * q) + 0.25F * static_cast<float>(kMinima[j])) << i;
  }
}

TEST(DequantizeRow, Q5_K_TakesBitJOfEachByteForSubBlockJ) {
  std::vector<uint8_t> bytes = kHeadWithMinima;
  for (int l = 0; l < 32; ++l) bytes.push_back(static_cast<uint8_t>(l * 73 + 5));
  for (int i = 0; i < 128; ++i) bytes.push_back(static_cast<uint8_t>(i * 37 + 11));
  const std::vector<float> y = Dequantize(DType::kQ5_K, bytes, 256);
  EXPECT_EQ(y[0], 0.5F * 1 * (11 + 16) + 0.25F * 3);             // h[0] = 5: bit 0 is set,
  EXPECT_EQ(y[32], 0.5F * 2 * 0 + 0.25F * 60);                   // bit 1 is not,
  EXPECT_EQ(y[64], 0.5F * 33 * (11 + 16) + 0.25F * 0);           // bit 2 is: byte 32 = 1195 = 0xAB
  EXPECT_EQ(y[7 * 32 + 31], 0.5F * 62 * (6 + 16) + 0.25F * 10);  // h[31] = 2268 = 0xDC
  for (size_t i = 0; i < 256; ++i) {
    const size_t j = i / 32;
    const uint8_t byte = static_cast<uint8_t>((j / 2 * 32 + i % 32) * 37 + 11);
    const uint8_t high = static_cast<uint8_t>(i % 32 * 73 + 5);
    const int q = (j % 2 == 0 ? byte & 15 : byte >> 4) + 16 * (high >> j & 1);
    EXPECT_EQ(y[i], 0.5F * static_cast<float>(kScales[j] * q) + 0.25F * static_cast<float>(kMinima[j])) << i;
  }
}

TEST(DequantizeRow, Q6_K_HasASignedScaleForEach16) {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 128; ++i) bytes.push_back(static_cast<uint8_t>(i * 37 + 11));
  for (int i = 0; i < 64; ++i) bytes.push_back(static_cast<uint8_t>(i * 73 + 5));
  constexpr int kSigned[16] = {1, -1, 127, -128, 0, 5, -77, 64, 3, -3, 100, -100, 31, -32, 2, -90};
  for (const int scale : kSigned) bytes.push_back(static_cast<uint8_t>(scale));
  bytes.insert(bytes.end(), {0x00, 0xBE});  // d = -1.5
  const std::vector<float> y = Dequantize(DType::kQ6_K, bytes, 256);
  EXPECT_EQ(y[0], -1.5F * 1 * (11 + 16 * 1 - 32));         // nibble of 0x0B, bits 0 and 1 of 5
  EXPECT_EQ(y[32], -1.5F * 127 * (11 + 16 * 1 - 32));      // byte 32 = 0xAB, bits 2 and 3 of 5
  EXPECT_EQ(y[64], -1.5F * 0 * (0 + 16 * 0 - 32));         // byte 0 high, bits 4 and 5
  EXPECT_EQ(y[96 + 16], -1.5F * 64 * (15 + 16 * 2 - 32));  // byte 48 = 1787 = 0xFB high, h[16] = 1173 = 0x95
  EXPECT_EQ(y[255], -1.5F * -90 * (6 + 16 * 3 - 32));      // byte 127 = 0x66 high, h[63] = 4604 = 0xFC: 3
  for (size_t i = 0; i < 256; ++i) {
    const size_t p = i / 128, quarter = i % 128 / 32, l = i % 32;
    const uint8_t byte = static_cast<uint8_t>((64 * p + quarter % 2 * 32 + l) * 37 + 11);
    const uint8_t high = static_cast<uint8_t>((32 * p + l) * 73 + 5);
    const int q = (quarter < 2 ? byte & 15 : byte >> 4) + 16 * (high >> (2 * quarter) & 3) - 32;
    EXPECT_EQ(y[i], -1.5F * static_cast<float>(kSigned[i / 16] * q)) << i;
  }
}

// What another implementation makes of every bit: tools/make_dequantize_hashes.py says how the bytes come about.
TEST(DequantizeRow, SeededBytes_GiveTheBitsOfThePythonPackageGguf) {
  struct Kept {
    DType dtype;
    uint64_t seed, hash;
  };
  constexpr Kept kAll[] = {{DType::kQ8_0, 8, 0xD9D19617718B6C7D},  {DType::kQ4_0, 2, 0xAF6C1D603AE08A95},
                           {DType::kQ4_1, 3, 0x5304F06615C1B51D},  {DType::kQ5_0, 6, 0x65EDB1B326261BED},
                           {DType::kQ5_1, 7, 0x071BBE2880A932BE},  {DType::kQ4_K, 12, 0x6F1844C51520F935},
                           {DType::kQ5_K, 13, 0x306D76B4E715FAC3}, {DType::kQ6_K, 14, 0x437AF967D04F23E8}};
  for (const Kept& kept : kAll) {
    const DTypeInfo info = InfoOf(kept.dtype);
    const bool minimum = kept.dtype == DType::kQ4_1 || kept.dtype == DType::kQ5_1 || kept.dtype == DType::kQ4_K ||
                         kept.dtype == DType::kQ5_K;
    const size_t first_half = kept.dtype == DType::kQ6_K ? 208 : 0;
    std::vector<uint8_t> bytes;
    uint64_t state = kept.seed;
    for (size_t i = 0; i < 64 * info.block_bytes; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      bytes.push_back(static_cast<uint8_t>(state >> 56));
      const size_t within = i % info.block_bytes;
      if (within == first_half + 1 || (minimum && within == 3)) bytes.back() &= 0xBF;
    }
    uint64_t hash = 0xCBF29CE484222325U;
    for (const float value : Dequantize(kept.dtype, bytes, 64 * info.block_elements)) {
      for (unsigned shift = 0; shift < 32; shift += 8)
        hash = (hash ^ (std::bit_cast<uint32_t>(value) >> shift & 255U)) * 0x100000001B3U;
    }
    EXPECT_EQ(hash, kept.hash) << info.name;
  }
}

TEST(DequantizeRow, NoElements_IsFine) {
  for (int i = 0; i < kNumDTypes; ++i) EXPECT_TRUE(Dequantize(static_cast<DType>(i), {}, 0).empty());
}

TEST(DequantizeRowDeathTest, WrongSizes_StopTheProcess) {
  EXPECT_DEATH(Dequantize(DType::kQ8_0, std::vector<uint8_t>(33), 32), "internal check failed");
  EXPECT_DEATH(Dequantize(DType::kQ4_0, std::vector<uint8_t>(9), 16), "internal check failed");
  EXPECT_DEATH(Dequantize(DType::kQ4_K, std::vector<uint8_t>(72), 128), "internal check failed");
}

}  // namespace
}  // namespace tidemill::dequantize_test
