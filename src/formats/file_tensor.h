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

namespace tidemill {

inline constexpr size_t kMaxTensorRank = 4;

struct FileTensor {
  std::string_view name;  // borrows the file, as `bytes` does
  DType dtype = DType::kF32;
  uint64_t rows = 1;  // product of all dimensions but the last: out_features; 1 for a vector
  uint64_t cols = 0;  // the last dimension: in_features, contiguous
  uint8_t rank = 1;
  std::array<uint64_t, kMaxTensorRank> shape = {1, 1, 1, 1};  // outermost first; `rank` of them, then ones
  std::span<const std::byte> bytes;                           // rows x cols elements, row-major
};

// "[4, 2, 64]".
inline std::string ShapeText(std::span<const uint64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_FILE_TENSOR_H_
