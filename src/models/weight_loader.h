// Finds weights by name in a model's files, checks their shapes, and converts them to the form that kernels read.
#ifndef TIDEMILL_MODELS_WEIGHT_LOADER_H_
#define TIDEMILL_MODELS_WEIGHT_LOADER_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "formats/model_files.h"
#include "kernels/weight_matrix.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "tidemill/result.h"

namespace tidemill {

struct LoadSettings {
  bool f32 = false;     // dequantise every weight to f32
  bool mapped = false;  // keep to the file's mapping instead of packing
  ThreadPool* threads = nullptr;
  std::function<void(double)> progress;  // 0..1 by bytes; may be empty
};

// A weight under either of its names: a checkpoint's, or llama.cpp's in a GGUF file. ".weight" and ".bias" are added.
struct WeightName {
  std::string checkpoint;
  std::string gguf;
};

// A part of a matrix: rows [row_begin, row_end), columns [col_begin, col_end), the columns in multiples of the type's block. A row order
// applies to the whole matrix first, so that row ranges keep whole heads.
struct WeightRange {
  size_t row_begin = 0, row_end = 0;
  size_t col_begin = 0, col_end = 0;
};

// How the file's matrix becomes the layer's.
struct WeightForm {
  RowOrder order = {};      // rows that a GGUF file holds in another order
  bool transposed = false;  // the file holds [in, out], as GPT-2's checkpoints do; F32, F16 and BF16 only
  size_t parts = 1;         // the file holds this many matrices of our shape ...
  size_t part = 0;          // ... of which this is wanted,
  size_t part_rows = 0;     // interleaved every part_rows rows; 0: one after the other
  // Any rows of the file, `order` and parts aside.
  std::vector<uint32_t> rows = {};      // the file's row of each of ours
  size_t file_rows = 0;                 // of the whole matrix in the file; with `rows`
  std::vector<uint32_t> cols = {};      // the file's column of each of ours, all of them; F32, F16, BF16 and F8 only
  std::string_view suffix = ".weight";  // of the name
};

enum class Bias { kNone, kOptional, kRequired };

class WeightLoader {
 public:
  // Borrows both.
  WeightLoader(const ModelFiles& files, const LoadSettings& settings)
      : files_(files), settings_(settings), read_(files.tensors().size()) {}

  // How the files spell a name, where that is neither a checkpoint's nor a GGUF file's.
  using Spelling = std::function<std::string(const std::string& name)>;
  void SetSpelling(Spelling spelling) { spelling_ = std::move(spelling); }

  // Where a matrix NAME.weight is spelled NAME.base_layer.weight, PEFT's adapter beside it is added:
  //   w + (alpha / r) B A,  A = NAME.lora_A.default.weight [r, in], B = NAME.lora_B.default.weight [out, r]; in double, then rounded to w's type
  void SetLoraAlpha(double alpha) { lora_alpha_ = alpha; }

  bool gguf() const { return files_.gguf() != nullptr; }
  bool Has(const WeightName& name, std::string_view suffix = ".weight") const;
  bool HasTensor(const std::string& name) const { return files_.FindTensor(SpelledAs(name)) != nullptr; }
  bool HasAny(std::string_view prefix) const;  // whose name begins so

  // A matrix of exactly [rows, cols]. kCorruptFile: not there, or of another shape (with both shapes).
  Result<WeightMatrix> Matrix(const WeightName& name, size_t rows, size_t cols, const WeightForm& form = {});
  // The same, a part of it. Not with a transposed or interleaved form.
  Result<WeightMatrix> Matrix(const WeightName& name, size_t rows, size_t cols, const WeightForm& form,
                              const WeightRange& range);
  // A matrix and its bias; kNone refuses a present bias by name (kUnsupported).
  Result<Linear> Layer(const WeightName& name, size_t rows, size_t cols, Bias bias, const WeightForm& form = {});
  // The head, of the embedding's shape. tied: not present; if the file has one, it must equal the embedding.
  Result<Linear> Head(const WeightName& name, const WeightName& embedding, bool tied, size_t rows, size_t cols);
  // A vector of exactly `size` elements, as f32; `suffix` as the file has it.
  Result<std::vector<float>> Vector(const WeightName& name, size_t size, std::string_view suffix = ".weight");
  // [rows, cols] as f32, row by row: small tables that kernels do not multiply by.
  Result<std::vector<float>> Table(const WeightName& name, size_t rows, size_t cols,
                                   std::string_view suffix = ".weight");
  // A vector of exactly `size` whole numbers, of type I64, I32, U8 or BOOL; `name` as the file has it, without a suffix.
  Result<std::vector<int64_t>> Integers(const std::string& name, size_t size);
  // A matrix, or no rows if it equals `other`, in the same type or another.
  Result<WeightMatrix> MatrixUnless(const WeightMatrix& other, const WeightName& name, size_t rows, size_t cols);
  // w, or 1 + w if a checkpoint stores w (GGUF files include the 1).
  Result<Norm> Rms(const WeightName& name, size_t size, double eps, bool one_plus = false);
  Result<Norm> LayerNorm(const WeightName& name, size_t size, double eps);
  // Counts tensors whose names begin so as read, since nothing here needs them.
  void Skip(std::string_view prefix);

  // After loading: kUnsupported if the file has unread weights, but for what frameworks save beside weights (docs/models.md). `prefix`: of
  // those that count.
  Result<void> CheckAllRead(std::string_view prefix = {}) const;

 private:
  std::string Spelled(const WeightName& name, std::string_view suffix = ".weight") const {
    return SpelledAs((gguf() ? name.gguf : name.checkpoint) + std::string(suffix));
  }
  std::string SpelledAs(std::string name) const { return spelling_ ? spelling_(name) : name; }
  // Marks it as read. any_type: also one that no weight has.
  Result<const FileTensor*> Find(const std::string& name, size_t rows, size_t cols, bool any_type = false);
  Result<std::vector<float>> Floats(const std::string& name, size_t rows, size_t cols);
  Result<WeightMatrix> Slice(const std::string& name, const FileTensor& tensor, const RowOrder& order,
                             const WeightRange& range);
  Result<WeightMatrix> Bring(const std::string& name, const WeightSource& source, bool may_map);
  Result<WeightMatrix> BringRearranged(const std::string& name, const FileTensor& tensor, size_t rows, size_t cols,
                                       const WeightForm& form, bool is_copy = false);
  Result<WeightMatrix> BringAdapted(const std::string& name, const FileTensor& tensor, size_t rows, size_t cols,
                                    const WeightForm& form);

  const ModelFiles& files_;
  const LoadSettings& settings_;
  Spelling spelling_;
  double lora_alpha_ = 0;
  std::vector<bool> read_;  // [files_.tensors()]
  BufferArena arena_;       // of packed matrices
  uint64_t bytes_done_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_WEIGHT_LOADER_H_
