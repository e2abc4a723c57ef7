#include "kernels/weight_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/checked_math.h"
#include "kernels/strip_packing.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"

namespace tidemill {
namespace {

constexpr size_t kPackPieceBytes = size_t{4} << 20;

const std::byte* FileRow(const WeightSource& source, size_t row) {
  return source.bytes.data() + source.order.FileRow(row) * source.row_stride;
}

// Element k of a lane stands at this place of its strip, counted in elements: BF16 in pairs.
size_t PlaceOf(DType dtype, size_t lane, size_t k) {
  return dtype == DType::kBF16 ? (k / 2 * kStripRows + lane) * 2 + k % 2 : k * kStripRows + lane;
}

template <typename T>
void ScatterRow(const std::byte* row, size_t cols, size_t lane, std::byte* strip) {
  for (size_t k = 0; k < cols; ++k)
    std::memcpy(strip + (k * kStripRows + lane) * sizeof(T), row + k * sizeof(T), sizeof(T));
}

// BF16: two columns at a time, a zero behind an odd last one.
void ScatterPairs(const std::byte* row, size_t cols, size_t lane, std::byte* strip) {
  ScatterRow<uint32_t>(row, cols / 2, lane, strip);
  if (cols % 2 == 0) return;
  std::byte last[sizeof(uint32_t)] = {};
  std::memcpy(last, row + (cols - 1) * sizeof(uint16_t), sizeof(uint16_t));
  ScatterRow<uint32_t>(last, 1, lane, strip + cols / 2 * kStripRows * sizeof last);
}

// `floats` holds cols elements when the row has to be dequantised, else nothing.
void PackStrip(const WeightSource& source, DType dtype, size_t strip_index, std::span<float> floats, std::byte* strip) {
  const size_t first = strip_index * kStripRows;
  const size_t rows = std::min(kStripRows, source.rows - first);
  if (rows < kStripRows) std::memset(strip, 0, WeightMatrix::StripBytes(dtype, source.cols));
  for (size_t lane = 0; lane < rows; ++lane) {
    const std::byte* row = FileRow(source, first + lane);
    if (dtype != source.dtype) {
      DequantizeRow(source.dtype, {row, RowBytes(source.dtype, source.cols)}, floats);
      ScatterRow<float>(reinterpret_cast<const std::byte*>(floats.data()), source.cols, lane, strip);
    } else if (InfoOf(dtype).quantized) {
      PackStripRow(dtype, row, source.cols, lane, strip);
    } else if (dtype == DType::kF32) {
      ScatterRow<uint32_t>(row, source.cols, lane, strip);
    } else if (dtype == DType::kBF16) {
      ScatterPairs(row, source.cols, lane, strip);
    } else {
      ScatterRow<uint16_t>(row, source.cols, lane, strip);
    }
  }
}

DType PackedType(const WeightSource& source, bool as_f32) { return as_f32 ? DType::kF32 : source.dtype; }

}  // namespace

size_t WeightMatrix::StripBytes(DType dtype, size_t cols) {
  if (InfoOf(dtype).quantized) return QuantizedStripBytes(dtype, cols);
  return (dtype == DType::kBF16 ? RoundUp<size_t>(cols, 2) : cols) * kStripRows * InfoOf(dtype).block_bytes;
}

Result<WeightMatrix> WeightMatrix::Pack(const WeightSource& given, bool as_f32, ThreadPool& threads,
                                        const std::function<void(std::span<const std::byte>)>& release,
                                        BufferArena* arena) {
  WeightMatrix matrix = Map(given, as_f32);
  const WeightSource& source = matrix.source_;
  const size_t strip_bytes = matrix.strip_bytes();
  const size_t bytes = matrix.packed_bytes();
  TIDEMILL_TRY(packed, arena != nullptr ? arena->Allocate(bytes) : AlignedBuffer::Create(bytes));
  matrix.packed_ = std::move(packed);
  const size_t piece = std::max<size_t>(1, kPackPieceBytes / (source.row_stride * kStripRows));  // strips
  const size_t floats = matrix.dtype_ == source.dtype ? 0 : source.cols;
  std::vector<std::vector<float>> rows(threads.num_threads(), std::vector<float>(floats));
  for (size_t first = 0; first < matrix.num_strips(); first += piece) {
    const size_t count = std::min(piece, matrix.num_strips() - first);
    threads.ParallelFor(count, [&](size_t chunk, size_t thread) {
      PackStrip(source, matrix.dtype_, first + chunk, rows[thread],
                matrix.packed_.data() + (first + chunk) * strip_bytes);
    });
    // Interleaved rows stay within their head: where a head straddles a piece, some pages are simply read again.
    const size_t begin_row = first * kStripRows, end_row = std::min((first + count) * kStripRows, source.rows);
    const size_t begin = begin_row * source.row_stride;
    if (release)
      release(source.bytes.subspan(begin, std::min(end_row * source.row_stride, source.bytes.size()) - begin));
  }
  matrix.source_.bytes = {};
  return matrix;
}

WeightMatrix WeightMatrix::Map(const WeightSource& source, bool as_f32) {
  WeightMatrix matrix;
  matrix.source_ = source;
  if (source.row_stride == 0) matrix.source_.row_stride = RowBytes(source.dtype, source.cols);
  matrix.dtype_ = PackedType(source, as_f32);
  TIDEMILL_CHECK(source.cols % InfoOf(source.dtype).block_elements == 0);
  TIDEMILL_CHECK(source.rows == 0 || source.bytes.size() == (source.rows - 1) * matrix.source_.row_stride +
                                                                RowBytes(source.dtype, source.cols));
  return matrix;
}

const std::byte* WeightMatrix::Strips(size_t first, size_t count, std::span<std::byte> scratch) const {
  TIDEMILL_DCHECK(first + count <= num_strips());
  if (packed()) return packed_.data() + first * strip_bytes();
  // Behind the strips, room for one dequantised row: callers size scratch with MatMulScratchBytes.
  TIDEMILL_CHECK(count * strip_bytes() <= scratch.size());
  std::span<float> floats;
  if (dtype_ != source_.dtype) {
    const size_t used = count * strip_bytes();
    TIDEMILL_CHECK(used + source_.cols * sizeof(float) <= scratch.size());
    floats = {reinterpret_cast<float*>(scratch.data() + used), source_.cols};
  }
  for (size_t i = 0; i < count; ++i) PackStrip(source_, dtype_, first + i, floats, scratch.data() + i * strip_bytes());
  return scratch.data();
}

namespace {

float PackedFloat(const std::byte* strip, DType dtype, size_t lane, size_t k) {
  const std::byte* at = strip + PlaceOf(dtype, lane, k) * InfoOf(dtype).block_bytes;
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
  const std::byte* strip = packed_.data() + row / kStripRows * strip_bytes();
  const size_t lane = row % kStripRows;
  if (quantized()) return ReadStripRow(dtype_, strip, lane, out);
  for (size_t k = 0; k < cols(); ++k) out[k] = PackedFloat(strip, dtype_, lane, k);
}

}  // namespace tidemill
