#include "tensor/dequantize.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"
#include "tensor/six_bit_scales.h"

namespace tidemill {
namespace {

uint16_t LoadU16(const std::byte* from) {
  uint16_t value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

uint32_t LoadU32(const std::byte* from) {
  uint32_t value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// Elements of a block with one nibble each, i and i + 16 in byte i; bit i of `high` is element i's fifth.
int SmallQuant(const std::byte* nibbles, uint32_t high, size_t i) {
  const int byte = std::to_integer<int>(nibbles[i % 16]);
  return (i < 16 ? byte & 0xF : byte >> 4) + static_cast<int>((high >> i & 1U) << 4);
}

// Q4_K (high: null) and Q5_K.
void DequantizeWithMinima(const std::byte* block, const std::byte* high, const std::byte* nibbles, float* y) {
  const float d = HalfToFloat(LoadU16(block));
  const float dmin = HalfToFloat(LoadU16(block + 2));
  for (size_t j = 0; j < 8; ++j) {
    const SixBitScale scale = ReadSixBitScale(block + 4, j);
    const float d_w = d * static_cast<float>(scale.sc);
    const float m_w = dmin * static_cast<float>(scale.m);
    for (size_t l = 0; l < 32; ++l) {
      const int byte = std::to_integer<int>(nibbles[j / 2 * 32 + l]);
      int q = j % 2 == 0 ? byte & 0xF : byte >> 4;
      if (high != nullptr) q += (std::to_integer<int>(high[l]) >> j & 1) << 4;
      y[j * 32 + l] = d_w * static_cast<float>(q) - m_w;
    }
  }
}

void DequantizeQ6_K(const std::byte* block, float* y) {
  const std::byte* nibbles = block;
  const std::byte* high = block + 128;
  const std::byte* scales = block + 192;
  const float d = HalfToFloat(LoadU16(block + 208));
  for (size_t i = 0; i < 256; ++i) {
    const size_t p = i / 128, c = i % 128 / 32, l = i % 32;
    const int byte = std::to_integer<int>(nibbles[64 * p + 32 * (c % 2) + l]);
    const int bits = std::to_integer<int>(high[32 * p + l]) >> (2 * c) & 3;
    const int q = (c < 2 ? byte & 0xF : byte >> 4) + (bits << 4) - 32;
    const float d_w = d * static_cast<float>(std::bit_cast<int8_t>(scales[i / 16]));
    y[i] = d_w * static_cast<float>(q);
  }
}

}  // namespace

void DequantizeRow(DType dtype, std::span<const std::byte> row, std::span<float> out) {
  const DTypeInfo info = InfoOf(dtype);
  TIDEMILL_CHECK(out.size() % info.block_elements == 0);
  TIDEMILL_CHECK(row.size() == RowBytes(dtype, out.size()));
  const size_t blocks = out.size() / info.block_elements;
  for (size_t b = 0; b < blocks; ++b) {
    const std::byte* block = row.data() + b * info.block_bytes;
    float* y = out.data() + b * info.block_elements;
    switch (dtype) {
      case DType::kF32: std::memcpy(y, block, sizeof(float)); break;
      case DType::kF16: *y = HalfToFloat(LoadU16(block)); break;
      case DType::kBF16: *y = BFloat16ToFloat(LoadU16(block)); break;
      case DType::kQ8_0: {
        const float d = HalfToFloat(LoadU16(block));
        for (size_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(std::bit_cast<int8_t>(block[2 + i]));
        break;
      }
      case DType::kQ4_0: {
        const float d = HalfToFloat(LoadU16(block));
        for (size_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(SmallQuant(block + 2, 0, i) - 8);
        break;
      }
      case DType::kQ4_1: {
        const float d = HalfToFloat(LoadU16(block)), m = HalfToFloat(LoadU16(block + 2));
        for (size_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(SmallQuant(block + 4, 0, i)) + m;
        break;
      }
      case DType::kQ5_0: {
        const float d = HalfToFloat(LoadU16(block));
        const uint32_t high = LoadU32(block + 2);
        for (size_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(SmallQuant(block + 6, high, i) - 16);
        break;
      }
      case DType::kQ5_1: {
        const float d = HalfToFloat(LoadU16(block)), m = HalfToFloat(LoadU16(block + 2));
        const uint32_t high = LoadU32(block + 4);
        for (size_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(SmallQuant(block + 8, high, i)) + m;
        break;
      }
      case DType::kQ4_K: DequantizeWithMinima(block, nullptr, block + 16, y); break;
      case DType::kQ5_K: DequantizeWithMinima(block, block + 16, block + 48, y); break;
      case DType::kQ6_K: DequantizeQ6_K(block, y); break;
    }
  }
}

}  // namespace tidemill
