// GGUF's numbers for tensor types. gguf.cc reads those that have a DType; the others are known by name so that a message can say
// what a file holds.
#ifndef TIDEMILL_FORMATS_GGUF_TENSOR_TYPE_H_
#define TIDEMILL_FORMATS_GGUF_TENSOR_TYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace tidemill {

// The type with this number, if this build reads it.
constexpr std::optional<DType> GgufTensorDType(uint32_t number) {
  switch (number) {
    case 0: return DType::kF32;
    case 1: return DType::kF16;
    case 2: return DType::kQ4_0;
    case 3: return DType::kQ4_1;
    case 6: return DType::kQ5_0;
    case 7: return DType::kQ5_1;
    case 8: return DType::kQ8_0;
    case 12: return DType::kQ4_K;
    case 13: return DType::kQ5_K;
    case 14: return DType::kQ6_K;
    case 30: return DType::kBF16;
    default: return std::nullopt;
  }
}

constexpr uint32_t GgufTensorTypeNumber(DType dtype) {
  switch (dtype) {
    case DType::kF32: return 0;
    case DType::kF16: return 1;
    case DType::kBF16: return 30;
    case DType::kQ8_0: return 8;
    case DType::kQ4_0: return 2;
    case DType::kQ4_1: return 3;
    case DType::kQ5_0: return 6;
    case DType::kQ5_1: return 7;
    case DType::kQ4_K: return 12;
    case DType::kQ5_K: return 13;
    case DType::kQ6_K: return 14;
  }
  return UINT32_MAX;
}

// The name ggml gives a number, readable here or not; empty when this build has never heard of it.
constexpr std::string_view GgufTensorTypeName(uint32_t number) {
  constexpr std::string_view kNames[] = {
      "F32",      "F16",      "Q4_0",    "Q4_1",  "Q4_2",       "Q4_3",       "Q5_0",       "Q5_1",      // 0-7
      "Q8_0",     "Q8_1",     "Q2_K",    "Q3_K",  "Q4_K",       "Q5_K",       "Q6_K",       "Q8_K",      // 8-15
      "IQ2_XXS",  "IQ2_XS",   "IQ3_XXS", "IQ1_S", "IQ4_NL",     "IQ3_S",      "IQ2_S",      "IQ4_XS",    // 16-23
      "I8",       "I16",      "I32",     "I64",   "F64",        "IQ1_M",      "BF16",       "Q4_0_4_4",  // 24-31
      "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",   "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",     // 32-39
      "NVFP4",    "Q1_0",     "Q2_0"};                                                                   // 40-42
  return number < std::size(kNames) ? kNames[number] : std::string_view();
}

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_GGUF_TENSOR_TYPE_H_
