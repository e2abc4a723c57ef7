#include "models/weight_loader.h"

#include "base/check.h"
#include "tensor/dequantize.h"

namespace tidemill {
namespace {

std::string ShapeName(uint64_t rows, uint64_t cols) {
  return rows == 1 ? "[" + std::to_string(cols) + "]" : "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

}  // namespace

Result<const FileTensor*> WeightLoader::Find(std::string_view name, size_t rows, size_t cols) const {
  const FileTensor* tensor = gguf_.FindTensor(name);
  if (tensor == nullptr) {
    return Error(ErrorCode::kCorruptFile, "tensor \"" + std::string(name) + "\": expected shape " +
                                              ShapeName(rows, cols) + ", but the file has no such tensor");
  }
  if (tensor->rows != rows || tensor->cols != cols) {
    return Error(ErrorCode::kCorruptFile, "tensor \"" + std::string(name) + "\": expected shape " +
                                              ShapeName(rows, cols) + " from the metadata, found " +
                                              ShapeName(tensor->rows, tensor->cols));
  }
  return tensor;
}

Result<WeightMatrix> WeightLoader::Matrix(std::string_view name, size_t rows, size_t cols, RowOrder order) {
  return Matrix(name, rows, cols, order, {0, rows, 0, cols});
}

Result<WeightMatrix> WeightLoader::Matrix(std::string_view name, size_t rows, size_t cols, RowOrder order,
                                          const WeightRange& range) {
  TIDEMILL_TRY(tensor, Find(name, rows, cols));
  const size_t block = InfoOf(tensor->dtype).block_elements;
  TIDEMILL_CHECK(range.row_begin <= range.row_end && range.row_end <= rows && range.col_begin <= range.col_end &&
                 range.col_end <= cols);
  TIDEMILL_CHECK(range.col_begin % block == 0 && range.col_end % block == 0);
  WeightSource source;
  source.dtype = tensor->dtype;
  source.rows = range.row_end - range.row_begin;
  source.cols = range.col_end - range.col_begin;
  source.row_stride = RowBytes(tensor->dtype, cols);
  source.order = order;
  const size_t begin = range.row_begin * source.row_stride + RowBytes(tensor->dtype, range.col_begin);
  const size_t bytes =
      source.rows == 0 ? 0 : (source.rows - 1) * source.row_stride + RowBytes(tensor->dtype, source.cols);
  source.bytes = tensor->bytes.subspan(begin, bytes);
  if (settings_.mapped) return WeightMatrix::Map(source, settings_.f32);
  auto matrix = WeightMatrix::Pack(source, settings_.f32, *settings_.threads, [this](std::span<const std::byte> piece) {
    file_.Release(piece);
    bytes_done_ += piece.size();
    if (settings_.progress)
      settings_.progress(static_cast<double>(bytes_done_) / static_cast<double>(file_.bytes().size()));
  });
  return std::move(matrix).WithContext("tensor \"" + std::string(name) + "\"");
}

Result<std::vector<float>> WeightLoader::Vector(std::string_view name, size_t size) {
  TIDEMILL_TRY(tensor, Find(name, 1, size));
  std::vector<float> values(size);
  DequantizeRow(tensor->dtype, tensor->bytes, values);
  return values;
}

}  // namespace tidemill
