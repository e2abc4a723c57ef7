// Element types of weights and states, and the byte layout of the quantised blocks as files hold them.
#ifndef TIDEMILL_TENSOR_DTYPE_H_
#define TIDEMILL_TENSOR_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tidemill {

enum class DType : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ4_K, kQ5_K, kQ6_K };
inline constexpr int kNumDTypes = 11;

// Blocks, byte by byte. f16 and u32 are little-endian; i counts the elements of a block; w is the element's value.
//
//   Q8_0 {f16 d; i8 q[32]}                             w = d * q
//   Q4_0 {f16 d; u8 n[16]}                             w = d * (nibble - 8)
//   Q4_1 {f16 d; f16 m; u8 n[16]}                      w = d * nibble + m
//   Q5_0 {f16 d; u32 h; u8 n[16]}                      w = d * (q - 16)
//   Q5_1 {f16 d; f16 m; u32 h; u8 n[16]}               w = d * q + m
//     element i < 16 has the low nibble of n[i], element i + 16 the high one;  q = nibble + 16 * (bit i of h)
//
//   Q4_K {f16 d; f16 dmin; u8 s[12]; u8 n[128]}            w = (d * sc[j]) * nibble - dmin * m[j]
//   Q5_K {f16 d; f16 dmin; u8 s[12]; u8 h[32]; u8 n[128]}  w = (d * sc[j]) * q - dmin * m[j]
//     sub-block j = i / 32, l = i % 32: the low (j even) or high (j odd) nibble of n[32 * (j / 2) + l];
//     q = nibble + 16 * (bit j of h[l]);  sc and m, 6 bits each, are in s as tensor/six_bit_scales.h reads them
//
//   Q6_K {u8 n[128]; u8 h[64]; i8 sc[16]; f16 d}           w = (d * sc[i / 16]) * (q - 32)
//     half p = i / 128, c = i % 128 / 32, l = i % 32: the low (c < 2) or high nibble of n[64 * p + 32 * (c % 2) + l];
//     q = nibble + 16 * (bits 2 * c and 2 * c + 1 of h[32 * p + l])

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
    case DType::kQ8_0: return {"Q8_0", 32, 34, true};
    case DType::kQ4_0: return {"Q4_0", 32, 18, true};
    case DType::kQ4_1: return {"Q4_1", 32, 20, true};
    case DType::kQ5_0: return {"Q5_0", 32, 22, true};
    case DType::kQ5_1: return {"Q5_1", 32, 24, true};
    case DType::kQ4_K: return {"Q4_K", 256, 144, true};
    case DType::kQ5_K: return {"Q5_K", 256, 176, true};
    case DType::kQ6_K: return {"Q6_K", 256, 210, true};
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
