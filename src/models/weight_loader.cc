#include "models/weight_loader.h"

#include <algorithm>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/checked_math.h"
#include "base/printable_name.h"
#include "formats/f8.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"

namespace tidemill {
namespace {

constexpr std::string_view kBaseLayer = ".base_layer.weight";  // of a name

std::string ShapeName(uint64_t rows, uint64_t cols) {
  return rows == 1 ? "[" + std::to_string(cols) + "]" : "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

// The file's row of our row, where the file's rows belong to several matrices.
size_t FileRow(const WeightForm& form, size_t rows, size_t row) {
  if (!form.rows.empty()) return form.rows[row];
  if (form.part_rows == 0) return form.part * rows + row;
  return (row / form.part_rows * form.parts + form.part) * form.part_rows + row % form.part_rows;
}

size_t FileRows(const WeightForm& form, size_t rows) {
  size_t file_rows = form.file_rows;
  if (form.rows.empty()) TIDEMILL_CHECK(CheckedMul(rows, form.parts, &file_rows));  // settings are bounded
  return file_rows;
}

// Buffers that frameworks save beside the weights, and that follow from the settings: inverse frequencies of rotary positions (Llama,
// GPT-NeoX), causal masks and what they mask with (GPT-2, GPT-NeoX).
bool FollowsFromSettings(std::string_view name) {
  constexpr std::string_view kEnds[] = {"inv_freq",          ".attn_rot_embd.weight", ".attn.bias",
                                        ".attn.masked_bias", ".attention.bias",       ".attention.masked_bias"};
  return std::any_of(std::begin(kEnds), std::end(kEnds), [&](std::string_view end) { return name.ends_with(end); });
}

}  // namespace

bool WeightLoader::Has(const WeightName& name, std::string_view suffix) const {
  return files_.FindTensor(Spelled(name, suffix)) != nullptr;
}

bool WeightLoader::HasAny(std::string_view prefix) const {
  return std::any_of(files_.tensors().begin(), files_.tensors().end(),
                     [prefix](const FileTensor& tensor) { return tensor.name.starts_with(prefix); });
}

Result<const FileTensor*> WeightLoader::Find(const std::string& name, size_t rows, size_t cols, bool any_type) {
  const FileTensor* tensor = files_.FindTensor(name);
  if (tensor == nullptr) {
    return Error(ErrorCode::kCorruptFile, "tensor \"" + name + "\": expected shape " + ShapeName(rows, cols) +
                                              ", but the file has no such tensor");
  }
  if (!any_type) TIDEMILL_TRY_VOID(CheckReadable(*tensor));
  if (tensor->rows != rows || tensor->cols != cols) {
    return Error(ErrorCode::kCorruptFile, "tensor \"" + name + "\": expected shape " + ShapeName(rows, cols) +
                                              " from the metadata, found " + ShapeName(tensor->rows, tensor->cols));
  }
  read_[static_cast<size_t>(tensor - files_.tensors().data())] = true;
  return tensor;
}

Result<WeightMatrix> WeightLoader::Matrix(const WeightName& name, size_t rows, size_t cols, const WeightForm& form) {
  const std::string spelled = Spelled(name, form.suffix);
  const size_t file_rows = FileRows(form, rows);
  TIDEMILL_TRY(tensor, form.transposed ? Find(spelled, cols, file_rows) : Find(spelled, file_rows, cols));
  if (lora_alpha_ != 0 && spelled.ends_with(kBaseLayer)) return BringAdapted(spelled, *tensor, rows, cols, form);
  if (form.transposed || !form.cols.empty() || tensor->encoding != TensorEncoding::kDType)
    return BringRearranged(spelled, *tensor, rows, cols, form);
  if (!form.rows.empty() || (form.parts > 1 && form.part_rows != 0)) {
    WeightSource source{
        .dtype = tensor->dtype, .rows = rows, .cols = cols, .bytes = tensor->bytes, .row_stride = 0, .order = {}};
    for (size_t r = 0; r < rows; ++r)
      source.order.list.push_back(static_cast<uint32_t>(FileRow(form, rows, form.order.FileRow(r))));
    return Bring(spelled, source, true);
  }
  const size_t first = form.part * rows;
  return Slice(spelled, *tensor, form.order, {first, first + rows, 0, cols});
}

Result<WeightMatrix> WeightLoader::Matrix(const WeightName& name, size_t rows, size_t cols, const WeightForm& form,
                                          const WeightRange& range) {
  const std::string spelled = Spelled(name);
  TIDEMILL_TRY(tensor, Find(spelled, rows, cols));
  TIDEMILL_CHECK(!form.transposed && form.parts == 1 && form.rows.empty() && form.cols.empty() &&
                 tensor->encoding == TensorEncoding::kDType);
  return Slice(spelled, *tensor, form.order, range);
}

Result<WeightMatrix> WeightLoader::Slice(const std::string& name, const FileTensor& tensor, const RowOrder& order,
                                         const WeightRange& range) {
  const size_t block = InfoOf(tensor.dtype).block_elements;
  TIDEMILL_CHECK(range.row_begin <= range.row_end && range.row_end <= tensor.rows && range.col_begin <= range.col_end &&
                 range.col_end <= tensor.cols);
  TIDEMILL_CHECK(range.col_begin % block == 0 && range.col_end % block == 0);
  WeightSource source;
  source.dtype = tensor.dtype;
  source.rows = range.row_end - range.row_begin;
  source.cols = range.col_end - range.col_begin;
  source.row_stride = RowBytes(tensor.dtype, tensor.cols);
  source.order = order;
  const size_t begin = range.row_begin * source.row_stride + RowBytes(tensor.dtype, range.col_begin);
  const size_t bytes =
      source.rows == 0 ? 0 : (source.rows - 1) * source.row_stride + RowBytes(tensor.dtype, source.cols);
  source.bytes = tensor.bytes.subspan(begin, bytes);
  return Bring(name, source, true);
}

Result<WeightMatrix> WeightLoader::Bring(const std::string& name, const WeightSource& source, bool may_map) {
  // A safetensors file may begin its data at any address; kernels read mapped elements where they are.
  const bool aligned = reinterpret_cast<uintptr_t>(source.bytes.data()) % alignof(float) == 0;
  if (settings_.mapped && may_map && aligned) return WeightMatrix::Map(source, settings_.f32);
  const auto release = [&](std::span<const std::byte> piece) {
    if (may_map) files_.Release(piece);
    bytes_done_ += piece.size();
    if (settings_.progress)
      settings_.progress(static_cast<double>(bytes_done_) / static_cast<double>(files_.file_bytes()));
  };
  auto matrix = WeightMatrix::Pack(source, settings_.f32, *settings_.threads, release, &arena_);
  return std::move(matrix).WithContext("tensor \"" + name + "\"");
}

// Through a copy in the usual order, which is then packed, mapped weights or not.
Result<WeightMatrix> WeightLoader::BringRearranged(const std::string& name, const FileTensor& tensor, size_t rows,
                                                   size_t cols, const WeightForm& form, bool is_copy) {
  const bool f8 = tensor.encoding != TensorEncoding::kDType;
  TIDEMILL_CHECK(!form.transposed || form.cols.empty());
  if (InfoOf(tensor.dtype).quantized) {
    return Error(ErrorCode::kUnsupported,
                 "tensor \"" + name + "\": expected F32, F16 or BF16 for a matrix " +
                     (form.transposed ? "stored as [in, out]" : "with columns in another order") + ", found " +
                     std::string(tensor.type_name));
  }
  const size_t row_bytes = RowBytes(tensor.dtype, cols),
               file_row_bytes = f8 ? tensor.cols : RowBytes(tensor.dtype, tensor.cols);
  const size_t element = f8 ? 1 : InfoOf(tensor.dtype).block_bytes;
  TIDEMILL_TRY(copy, AlignedBuffer::Create(rows * row_bytes));
  const auto copy_element = [&](const std::byte* from, std::byte* to) {
    if (!f8) {
      std::memcpy(to, from, element);
      return;
    }
    const auto byte = std::to_integer<uint8_t>(*from);
    const uint16_t half = tensor.encoding == TensorEncoding::kF8E4M3 ? F8E4M3ToHalf(byte) : F8E5M2ToHalf(byte);
    std::memcpy(to, &half, sizeof half);
  };
  const size_t out_element = f8 ? sizeof(uint16_t) : element;
  for (size_t r = 0; r < rows; ++r) {
    std::byte* to = copy.data() + r * row_bytes;
    const size_t file_row = FileRow(form, rows, r);
    if (!form.transposed && !f8 && form.cols.empty()) {
      std::memcpy(to, tensor.bytes.data() + file_row * file_row_bytes, row_bytes);
      continue;
    }
    for (size_t c = 0; c < cols; ++c) {
      const size_t file_col = form.cols.empty() ? c : form.cols[c];
      const std::byte* from = form.transposed ? tensor.bytes.data() + c * file_row_bytes + file_row * element
                                              : tensor.bytes.data() + file_row * file_row_bytes + file_col * element;
      copy_element(from, to + c * out_element);
    }
  }
  auto matrix = Bring(name,
                      {.dtype = tensor.dtype,
                       .rows = rows,
                       .cols = cols,
                       .bytes = {copy.data(), rows * row_bytes},
                       .row_stride = 0,
                       .order = form.order},
                      false);
  if (!settings_.mapped && !is_copy) files_.Release(tensor.bytes);
  return matrix;
}

Result<WeightMatrix> WeightLoader::BringAdapted(const std::string& name, const FileTensor& tensor, size_t rows,
                                                size_t cols, const WeightForm& form) {
  const std::string root = name.substr(0, name.size() - kBaseLayer.size());
  const std::string a_name = root + ".lora_A.default.weight", b_name = root + ".lora_B.default.weight";
  const FileTensor* const found = files_.FindTensor(a_name);
  const size_t rank = found == nullptr ? 0 : found->rows, out = form.transposed ? tensor.cols : tensor.rows,
               in = form.transposed ? tensor.rows : tensor.cols;
  TIDEMILL_TRY(a, Floats(a_name, rank, in));
  TIDEMILL_TRY(b, Floats(b_name, out, rank));
  if (tensor.encoding != TensorEncoding::kDType || InfoOf(tensor.dtype).block_elements != 1) {
    return Error(
        ErrorCode::kUnsupported,
        "tensor \"" + name + "\": expected F32, F16 or BF16 beside an adapter, found " + std::string(tensor.type_name));
  }
  const double scale = lora_alpha_ / static_cast<double>(rank);
  TIDEMILL_TRY(copy, AlignedBuffer::Create(tensor.bytes.size()));
  const size_t element = InfoOf(tensor.dtype).block_bytes;
  std::vector<float> row(tensor.cols);
  for (size_t r = 0; r < tensor.rows; ++r) {
    DequantizeRow(tensor.dtype, tensor.bytes.subspan(r * tensor.cols * element, tensor.cols * element), row);
    for (size_t c = 0; c < tensor.cols; ++c) {
      const size_t o = form.transposed ? c : r, i = form.transposed ? r : c;
      double sum = 0;
      for (size_t k = 0; k < rank; ++k)
        sum += static_cast<double>(b[o * rank + k]) * static_cast<double>(a[k * in + i]);
      const auto value = static_cast<float>(static_cast<double>(row[c]) + scale * sum);
      std::byte* const to = copy.data() + (r * tensor.cols + c) * element;
      const uint16_t half = tensor.dtype == DType::kF16 ? FloatToHalf(value) : FloatToBFloat16(value);
      if (tensor.dtype == DType::kF32) {
        std::memcpy(to, &value, sizeof(value));
      } else {
        std::memcpy(to, &half, sizeof(half));
      }
    }
  }
  files_.Release(tensor.bytes);
  FileTensor merged = tensor;
  merged.bytes = {copy.data(), tensor.bytes.size()};
  return BringRearranged(name, merged, rows, cols, form, true);
}

Result<Linear> WeightLoader::Layer(const WeightName& name, size_t rows, size_t cols, Bias bias,
                                   const WeightForm& form) {
  Linear linear;
  TIDEMILL_TRY(weight, Matrix(name, rows, cols, form));
  linear.weight = std::move(weight);
  const bool there = files_.FindTensor(Spelled(name, ".bias")) != nullptr;
  if (bias == Bias::kNone && there)
    return Error(ErrorCode::kUnsupported, "tensor \"" + Spelled(name, ".bias") + "\": this family has no such bias");
  if (bias == Bias::kNone || (bias == Bias::kOptional && !there)) return linear;
  TIDEMILL_TRY(all, Vector(name, FileRows(form, rows), ".bias"));
  linear.bias.resize(rows);
  for (size_t r = 0; r < rows; ++r) linear.bias[r] = all[FileRow(form, rows, form.order.FileRow(r))];
  return linear;
}

Result<Linear> WeightLoader::Head(const WeightName& name, const WeightName& embedding, bool tied, size_t rows,
                                  size_t cols) {
  if (!tied) return Layer(name, rows, cols, Bias::kNone);
  if (!Has(name)) return Linear();
  TIDEMILL_TRY(head, Find(Spelled(name), rows, cols));
  TIDEMILL_TRY(twin, Find(Spelled(embedding), rows, cols));
  constexpr size_t kPieceBytes = 4 << 20;  // at a time in memory
  bool equal = head->dtype == twin->dtype && head->encoding == twin->encoding;
  for (size_t at = 0; equal && at < head->bytes.size(); at += kPieceBytes) {
    const size_t size = std::min(kPieceBytes, head->bytes.size() - at);
    const auto a = head->bytes.subspan(at, size), b = twin->bytes.subspan(at, size);
    equal = std::memcmp(a.data(), b.data(), size) == 0;
    files_.Release(a);
    files_.Release(b);
  }
  if (equal) return Linear();
  return Error(ErrorCode::kCorruptFile, "tensor " + QuoteName(Spelled(name)) + ": expected the numbers of " +
                                            QuoteName(Spelled(embedding)) +
                                            ", since tie_word_embeddings is true, found others; if they are the "
                                            "model's head, set tie_word_embeddings to false in config.json");
}

Result<std::vector<float>> WeightLoader::Vector(const WeightName& name, size_t size, std::string_view suffix) {
  return Floats(Spelled(name, suffix), 1, size);
}

Result<std::vector<float>> WeightLoader::Table(const WeightName& name, size_t rows, size_t cols,
                                               std::string_view suffix) {
  return Floats(Spelled(name, suffix), rows, cols);
}

Result<std::vector<float>> WeightLoader::Floats(const std::string& name, size_t rows, size_t cols) {
  TIDEMILL_TRY(tensor, Find(name, rows, cols));
  if (tensor->encoding != TensorEncoding::kDType) {
    return Error(ErrorCode::kUnsupported, "tensor \"" + name + "\": " + std::string(tensor->type_name) +
                                              " is not supported for a " + (rows == 1 ? "vector" : "table"));
  }
  std::vector<float> values(rows * cols);  // a row of whole blocks
  DequantizeRow(tensor->dtype, tensor->bytes, values);
  return values;
}

Result<std::vector<int64_t>> WeightLoader::Integers(const std::string& name, size_t size) {
  TIDEMILL_TRY(tensor, Find(name, 1, size, true));
  const std::string_view type = tensor->type_name;
  const auto read = [&](auto number) {
    std::vector<int64_t> values(size);
    for (size_t i = 0; i < size; ++i) {
      std::memcpy(&number, tensor->bytes.data() + i * sizeof number, sizeof number);
      values[i] = static_cast<int64_t>(number);
    }
    return values;
  };
  if (type == "I64") return read(int64_t{});
  if (type == "I32") return read(int32_t{});
  if (type == "U8" || type == "BOOL") return read(uint8_t{});
  return Error(ErrorCode::kUnsupported, "tensor " + QuoteName(name) +
                                            ": expected whole numbers of type I64, I32, U8 or BOOL, found type " +
                                            std::string(type));
}

Result<WeightMatrix> WeightLoader::MatrixUnless(const WeightMatrix& other, const WeightName& name, size_t rows,
                                                size_t cols) {
  TIDEMILL_TRY(tensor, Find(Spelled(name), rows, cols));
  if (other.rows() != rows || other.cols() != cols || tensor->encoding != TensorEncoding::kDType)
    return Matrix(name, rows, cols);
  const size_t row_bytes = RowBytes(tensor->dtype, cols);
  const size_t piece_rows = std::max<size_t>(1, (size_t{4} << 20) / row_bytes);  // at a time in memory
  std::vector<float> ours(cols), theirs(cols);
  for (size_t row = 0; row < rows; ++row) {
    DequantizeRow(tensor->dtype, tensor->bytes.subspan(row * row_bytes, row_bytes), ours);
    other.CopyRow(row, theirs);
    if (std::memcmp(ours.data(), theirs.data(), cols * sizeof(float)) != 0) return Matrix(name, rows, cols);
    if (row % piece_rows == piece_rows - 1 || row + 1 == rows) {
      const size_t first = row / piece_rows * piece_rows;
      files_.Release(tensor->bytes.subspan(first * row_bytes, (row + 1 - first) * row_bytes));
    }
  }
  return WeightMatrix();
}

Result<Norm> WeightLoader::Rms(const WeightName& name, size_t size, double eps, bool one_plus) {
  Norm norm{.kind = Norm::Kind::kRms, .eps = static_cast<float>(eps)};
  TIDEMILL_TRY(weight, Vector(name, size));
  norm.weight = std::move(weight);
  for (float& w : norm.weight) w = one_plus && !gguf() ? 1 + w : w;
  return norm;
}

Result<Norm> WeightLoader::LayerNorm(const WeightName& name, size_t size, double eps) {
  Norm norm{.kind = Norm::Kind::kLayer, .eps = static_cast<float>(eps)};
  TIDEMILL_TRY(weight, Vector(name, size));
  TIDEMILL_TRY(bias, Vector(name, size, ".bias"));
  norm.weight = std::move(weight);
  norm.bias = std::move(bias);
  return norm;
}

void WeightLoader::Skip(std::string_view prefix) {
  for (size_t i = 0; i < read_.size(); ++i) read_[i] = read_[i] || files_.tensors()[i].name.starts_with(prefix);
}

Result<void> WeightLoader::CheckAllRead(std::string_view prefix) const {
  size_t unread = 0;
  std::string_view first;
  for (size_t i = 0; i < read_.size(); ++i) {
    const std::string_view name = files_.tensors()[i].name;
    if (read_[i] || !name.starts_with(prefix) || FollowsFromSettings(name)) continue;
    if (unread++ == 0) first = name;
  }
  if (unread == 0) return {};
  return Error(ErrorCode::kUnsupported,
               "tensors: " + std::to_string(unread) +
                   (unread == 1 ? " weight that nothing reads, " : " weights that nothing reads, the first ") +
                   QuoteName(first) + ": the model is of another family or variant than the settings say, or deeper");
}

}  // namespace tidemill
