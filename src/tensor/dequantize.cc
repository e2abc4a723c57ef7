#include "tensor/dequantize.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace tidemill {
namespace {

uint16_t LoadU16(const std::byte* from) {
  uint16_t value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
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
        for (size_t i = 0; i < 16; ++i) {
          const int packed = std::to_integer<int>(block[2 + i]);
          y[i] = d * static_cast<float>((packed & 0xF) - 8);
          y[i + 16] = d * static_cast<float>((packed >> 4) - 8);
        }
        break;
      }
      case DType::kQ4_1: {
        const float d = HalfToFloat(LoadU16(block));
        const float m = HalfToFloat(LoadU16(block + 2));
        for (size_t i = 0; i < 16; ++i) {
          const int packed = std::to_integer<int>(block[4 + i]);
          y[i] = d * static_cast<float>(packed & 0xF) + m;
          y[i + 16] = d * static_cast<float>(packed >> 4) + m;
        }
        break;
      }
    }
  }
}

}  // namespace tidemill
