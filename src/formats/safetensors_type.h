// The element types of safetensors, by the names that its files give them. Three are types of ours, two become F16, the others are
// known so that their tensors can be measured and named.
#ifndef TIDEMILL_FORMATS_SAFETENSORS_TYPE_H_
#define TIDEMILL_FORMATS_SAFETENSORS_TYPE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "formats/file_tensor.h"
#include "tensor/dtype.h"

namespace tidemill {

struct SafetensorsType {
  std::string_view name;
  uint32_t bits;  // of one element
  TensorEncoding encoding = TensorEncoding::kOther;
  DType dtype = DType::kF32;  // as in FileTensor
};

inline constexpr std::array<SafetensorsType, 22> kSafetensorsTypes = {{
    {"F32", 32, TensorEncoding::kDType, DType::kF32},
    {"F16", 16, TensorEncoding::kDType, DType::kF16},
    {"BF16", 16, TensorEncoding::kDType, DType::kBF16},
    {"F8_E4M3", 8, TensorEncoding::kF8E4M3, DType::kF16},
    {"F8_E5M2", 8, TensorEncoding::kF8E5M2, DType::kF16},
    {"BOOL", 8},
    {"F4", 4},
    {"F6_E2M3", 6},
    {"F6_E3M2", 6},
    {"U8", 8},
    {"I8", 8},
    {"F8_E8M0", 8},
    {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8},
    {"U16", 16},
    {"I16", 16},
    {"U32", 32},
    {"I32", 32},
    {"U64", 64},
    {"I64", 64},
    {"F64", 64},
    {"C64", 64},
}};

// Null for a name that is none of them.
constexpr const SafetensorsType* FindSafetensorsType(std::string_view name) {
  const auto* found = std::find_if(kSafetensorsTypes.begin(), kSafetensorsTypes.end(),
                                   [&](const SafetensorsType& type) { return type.name == name; });
  return found == kSafetensorsTypes.end() ? nullptr : found;
}

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_SAFETENSORS_TYPE_H_
