// Element types of weights and states, and the byte layout of the quantised blocks as files hold them.
#ifndef TIDEMILL_TENSOR_DTYPE_H_
#define TIDEMILL_TENSOR_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tidemill {

enum class DType : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_1 };
inline constexpr int kNumDTypes = 6;

// Elements are stored in blocks of `block_elements`, each `block_bytes` long; plain types have blocks of one.
struct DTypeInfo {
  std::string_view name;  // as people write it: "Q4_1"
  size_t block_elements;
  size_t block_bytes;
  bool quantized;
};

constexpr DTypeInfo InfoOf(DType dtype) {
  switch (dtype) {
    case DType::kF32: return {"F32", 1, 4, false};
    case DType::kF16: return {"F16", 1, 2, false};
    case DType::kBF16: return {"BF16", 1, 2, false};
    case DType::kQ8_0: return {"Q8_0", 32, 34, true};  // f16 scale d; int8 q[32].                  w = d * q
    case DType::kQ4_0: return {"Q4_0", 32, 18, true};  // f16 d; u8 n[16]: elements i, i + 16.      w = d * (nibble - 8)
    case DType::kQ4_1: return {"Q4_1", 32, 20, true};  // f16 d; f16 m; u8 n[16]: i low, i+16 high. w = d * nibble + m
  }
  return {"unknown", 1, 1, false};
}

// Bytes of one row of `cols` elements. cols must be a multiple of block_elements and is at most 2^40.
constexpr size_t RowBytes(DType dtype, size_t cols) {
  const DTypeInfo info = InfoOf(dtype);
  return cols / info.block_elements * info.block_bytes;
}

}  // namespace tidemill

#endif  // TIDEMILL_TENSOR_DTYPE_H_
