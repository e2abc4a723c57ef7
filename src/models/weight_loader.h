// Finds weights by name in a model file, checks their shape against the settings, and brings them into the form that kernels read.
#ifndef TIDEMILL_MODELS_WEIGHT_LOADER_H_
#define TIDEMILL_MODELS_WEIGHT_LOADER_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "formats/gguf.h"
#include "kernels/weight_matrix.h"
#include "tidemill/result.h"

namespace tidemill {

struct LoadSettings {
  bool f32 = false;     // dequantise every weight to f32
  bool mapped = false;  // keep to the file's mapping instead of packing
  ThreadPool* threads = nullptr;
  std::function<void(double)> progress;  // 0..1 by bytes; may be empty
};

// A part of a matrix, for ranks that hold slices: rows [row_begin, row_end), columns [col_begin, col_end), the columns in multiples
// of the type's block. A row order other than the file's applies to the whole matrix, so that row ranges then keep whole heads.
struct WeightRange {
  size_t row_begin = 0, row_end = 0;
  size_t col_begin = 0, col_end = 0;
};

class WeightLoader {
 public:
  // Borrows all three; `file` is `gguf`'s bytes.
  WeightLoader(const GgufFile& gguf, const MappedFile& file, const LoadSettings& settings)
      : gguf_(gguf), file_(file), settings_(settings) {}

  bool Has(std::string_view name) const { return gguf_.FindTensor(name) != nullptr; }

  // A matrix of exactly [rows, cols]. kCorruptFile: not there, or of another shape (with both shapes).
  Result<WeightMatrix> Matrix(std::string_view name, size_t rows, size_t cols, RowOrder order = {});
  // The same, a part of it.
  Result<WeightMatrix> Matrix(std::string_view name, size_t rows, size_t cols, RowOrder order,
                              const WeightRange& range);
  // A vector of exactly `size` elements, as f32.
  Result<std::vector<float>> Vector(std::string_view name, size_t size);

 private:
  Result<const FileTensor*> Find(std::string_view name, size_t rows, size_t cols) const;

  const GgufFile& gguf_;
  const MappedFile& file_;
  const LoadSettings& settings_;
  uint64_t bytes_done_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_WEIGHT_LOADER_H_
