#include "kernels/weight_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/checked_math.h"
#include "kernels/panel_packing.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"

namespace tidemill {
namespace {

constexpr size_t kPackPieceBytes = size_t{4} << 20;

const std::byte* FileRow(const WeightSource& source, size_t row) {
  return source.bytes.data() + source.order.FileRow(row) * source.row_stride;
}

// Element k of a lane stands at this place of its panel, counted in elements: BF16 in pairs.
size_t PlaceOf(DType dtype, size_t lane, size_t k) {
  return dtype == DType::kBF16 ? (k / 2 * kPanelRows + lane) * 2 + k % 2 : k * kPanelRows + lane;
}

template <typename T>
void ScatterRow(const std::byte* row, size_t cols, size_t lane, std::byte* panel) {
  for (size_t k = 0; k < cols; ++k)
    std::memcpy(panel + (k * kPanelRows + lane) * sizeof(T), row + k * sizeof(T), sizeof(T));
}

// BF16: two columns at a time, a zero behind an odd last one.
void ScatterPairs(const std::byte* row, size_t cols, size_t lane, std::byte* panel) {
  ScatterRow<uint32_t>(row, cols / 2, lane, panel);
  if (cols % 2 == 0) return;
  std::byte last[sizeof(uint32_t)] = {};
  std::memcpy(last, row + (cols - 1) * sizeof(uint16_t), sizeof(uint16_t));
  ScatterRow<uint32_t>(last, 1, lane, panel + cols / 2 * kPanelRows * sizeof last);
}

// `floats` holds cols elements when the row has to be dequantised, else nothing.
void PackPanel(const WeightSource& source, DType dtype, size_t panel_index, std::span<float> floats, std::byte* panel) {
  const size_t first = panel_index * kPanelRows;
  const size_t rows = std::min(kPanelRows, source.rows - first);
  if (rows < kPanelRows) std::memset(panel, 0, WeightMatrix::PanelBytes(dtype, source.cols));
  for (size_t lane = 0; lane < rows; ++lane) {
    const std::byte* row = FileRow(source, first + lane);
    if (dtype != source.dtype) {
      DequantizeRow(source.dtype, {row, RowBytes(source.dtype, source.cols)}, floats);
      ScatterRow<float>(reinterpret_cast<const std::byte*>(floats.data()), source.cols, lane, panel);
    } else if (InfoOf(dtype).quantized) {
      PackPanelRow(dtype, row, source.cols, lane, panel);
    } else if (dtype == DType::kF32) {
      ScatterRow<uint32_t>(row, source.cols, lane, panel);
    } else if (dtype == DType::kBF16) {
      ScatterPairs(row, source.cols, lane, panel);
    } else {
      ScatterRow<uint16_t>(row, source.cols, lane, panel);
    }
  }
}

// Calls release(bytes) for rows [begin, end), those that follow each other in the file at once.
void ReleaseRows(const WeightSource& source, size_t begin, size_t end,
                 const std::function<void(std::span<const std::byte>)>& release) {
  const size_t row_bytes = RowBytes(source.dtype, source.cols);
  while (begin < end) {
    const size_t first = source.order.list.empty() ? begin : source.order.list[begin];
    size_t count = source.order.list.empty() ? end - begin : 1;
    while (begin + count < end && source.order.FileRow(begin + count) == first + count) ++count;
    const size_t at = first * source.row_stride;
    const bool is_last = at + count * source.row_stride > source.bytes.size();
    release(
        source.bytes.subspan(at, is_last ? (count - 1) * source.row_stride + row_bytes : count * source.row_stride));
    begin += count;
  }
}

DType PackedType(const WeightSource& source, bool as_f32) { return as_f32 ? DType::kF32 : source.dtype; }

}  // namespace

size_t WeightMatrix::PanelBytes(DType dtype, size_t cols) {
  if (InfoOf(dtype).quantized) return QuantizedPanelBytes(dtype, cols);
  return (dtype == DType::kBF16 ? RoundUp<size_t>(cols, 2) : cols) * kPanelRows * InfoOf(dtype).block_bytes;
}

Result<WeightMatrix> WeightMatrix::Pack(const WeightSource& given, bool as_f32, ThreadPool& threads,
                                        const std::function<void(std::span<const std::byte>)>& release,
                                        BufferArena* arena) {
  WeightMatrix matrix = Map(given, as_f32);
  const WeightSource& source = matrix.source_;
  const size_t panel_bytes = matrix.panel_bytes();
  const size_t bytes = matrix.packed_bytes();
  TIDEMILL_TRY(packed, arena != nullptr ? arena->Allocate(bytes) : AlignedBuffer::Create(bytes));
  matrix.packed_ = std::move(packed);
  const size_t piece = std::max<size_t>(1, kPackPieceBytes / (source.row_stride * kPanelRows));  // panels
  const size_t floats = matrix.dtype_ == source.dtype ? 0 : source.cols;
  std::vector<std::vector<float>> rows(threads.num_threads(), std::vector<float>(floats));
  for (size_t first = 0; first < matrix.num_panels(); first += piece) {
    const size_t count = std::min(piece, matrix.num_panels() - first);
    threads.ParallelFor(count, [&](size_t chunk, size_t thread) {
      PackPanel(source, matrix.dtype_, first + chunk, rows[thread],
                matrix.packed_.data() + (first + chunk) * panel_bytes);
    });
    // Interleaved rows stay within their head: where a head straddles a piece, some pages are simply read again.
    const size_t begin_row = first * kPanelRows, end_row = std::min((first + count) * kPanelRows, source.rows);
    if (release) ReleaseRows(source, begin_row, end_row, release);
  }
  matrix.source_.bytes = {};
  matrix.source_.order = {};
  return matrix;
}

WeightMatrix WeightMatrix::Map(const WeightSource& source, bool as_f32) {
  WeightMatrix matrix;
  matrix.source_ = source;
  if (source.row_stride == 0) matrix.source_.row_stride = RowBytes(source.dtype, source.cols);
  matrix.dtype_ = PackedType(source, as_f32);
  TIDEMILL_CHECK(source.cols % InfoOf(source.dtype).block_elements == 0);
  const size_t row_bytes = RowBytes(source.dtype, source.cols), stride = matrix.source_.row_stride;
  const std::vector<uint32_t>& list = source.order.list;
  if (list.empty()) {
    TIDEMILL_CHECK(source.rows == 0 || source.bytes.size() == (source.rows - 1) * stride + row_bytes);
  } else {
    TIDEMILL_CHECK(list.size() == source.rows);
    TIDEMILL_CHECK(*std::max_element(list.begin(), list.end()) * stride + row_bytes <= source.bytes.size());
  }
  return matrix;
}

const std::byte* WeightMatrix::Panels(size_t first, size_t count, std::span<std::byte> scratch) const {
  TIDEMILL_DCHECK(first + count <= num_panels());
  if (packed()) return packed_.data() + first * panel_bytes();
  // Behind the panels, room for one dequantised row: callers size scratch with MatMulScratchBytes.
  TIDEMILL_CHECK(count * panel_bytes() <= scratch.size());
  std::span<float> floats;
  if (dtype_ != source_.dtype) {
    const size_t used = count * panel_bytes();
    TIDEMILL_CHECK(used + source_.cols * sizeof(float) <= scratch.size());
    floats = {reinterpret_cast<float*>(scratch.data() + used), source_.cols};
  }
  for (size_t i = 0; i < count; ++i) PackPanel(source_, dtype_, first + i, floats, scratch.data() + i * panel_bytes());
  return scratch.data();
}

namespace {

float PackedFloat(const std::byte* panel, DType dtype, size_t lane, size_t k) {
  const std::byte* at = panel + PlaceOf(dtype, lane, k) * InfoOf(dtype).block_bytes;
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return dtype == DType::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
}

}  // namespace

void WeightMatrix::CopyRow(size_t row, std::span<float> out) const {
  TIDEMILL_CHECK(row < rows() && out.size() == cols());
  if (!packed()) {
    DequantizeRow(source_.dtype, {FileRow(source_, row), RowBytes(source_.dtype, cols())}, out);
    return;
  }
  const std::byte* panel = packed_.data() + row / kPanelRows * panel_bytes();
  const size_t lane = row % kPanelRows;
  if (quantized()) return ReadPanelRow(dtype_, panel, lane, out);
  for (size_t k = 0; k < cols(); ++k) out[k] = PackedFloat(panel, dtype_, lane, k);
}

}  // namespace tidemill
