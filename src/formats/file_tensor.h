// A tensor as a model file holds it, whatever the file's format: what the readers hand out and the loader takes.
#ifndef TIDEMILL_FORMATS_FILE_TENSOR_H_
#define TIDEMILL_FORMATS_FILE_TENSOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"
#include "tidemill/result.h"

namespace tidemill {

inline constexpr size_t kMaxTensorRank = 4;

// How `bytes` hold the elements.
enum class TensorEncoding : uint8_t {
  kDType,   // as `dtype` says
  kF8E4M3,  // one byte each, which formats/f8.h turns into `dtype`, F16, without loss
  kF8E5M2,  // the same
  kOther,   // a type that no weight here has, such as I64 position ids: `dtype` says nothing
};

struct FileTensor {
  std::string_view name;  // borrows the file, as `bytes` does
  DType dtype = DType::kF32;
  TensorEncoding encoding = TensorEncoding::kDType;
  uint8_t rank = 1;   // may be above kMaxTensorRank in a file whose format allows it: see CheckReadable
  uint64_t rows = 1;  // product of all dimensions but the last: out_features; 1 for a vector
  uint64_t cols = 0;  // the last dimension: in_features, contiguous
  std::array<uint64_t, kMaxTensorRank> shape = {1, 1, 1, 1};  // outermost first; `rank` of them, then ones
  std::string_view type_name;                                 // as the format spells it: "Q8_0", "F8_E4M3", "I64"
  std::span<const std::byte> bytes;                           // rows x cols elements, row-major; any alignment
};

// kUnsupported for a tensor that may be in a file as long as nobody wants it: of a type that is no DType's and not convertible to one,
// or with more than kMaxTensorRank dimensions.
Result<void> CheckReadable(const FileTensor& tensor);

// "[4, 2, 64]".
inline std::string ShapeText(std::span<const uint64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_FILE_TENSOR_H_
