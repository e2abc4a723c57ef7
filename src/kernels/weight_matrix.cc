#include "kernels/weight_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"

namespace tidemill {
namespace {

constexpr size_t kBlock = 32;  // elements of every quantised block so far
constexpr size_t kPackPieceBytes = size_t{4} << 20;

// Bytes of quants and of scales of one block of k of a strip.
struct StripBlock {
  size_t quant_bytes;
  size_t scale_bytes;
  size_t file_scale_bytes;  // scales stand first in the file's block
};

constexpr StripBlock StripBlockOf(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0: return {kBlock * kStripRows, 2 * kStripRows, 2};
    case DType::kQ4_0: return {kBlock / 2 * kStripRows, 2 * kStripRows, 2};
    case DType::kQ4_1: return {kBlock / 2 * kStripRows, 4 * kStripRows, 4};
    default: return {0, 0, 0};
  }
}

const std::byte* FileRow(const WeightSource& source, size_t row) {
  return source.bytes.data() + source.order.FileRow(row) * source.row_stride;
}

// Moves four bytes of quants at a time: the file's nibbles already stand as the strip wants them.
void PackQuantizedRow(const WeightSource& source, const std::byte* row, size_t lane, std::byte* strip) {
  const StripBlock block = StripBlockOf(source.dtype);
  const size_t blocks = source.cols / kBlock;
  const size_t words = block.quant_bytes / kStripRows / 4;
  const bool offset_binary = source.dtype == DType::kQ8_0;
  std::byte* scales = strip + blocks * block.quant_bytes;
  for (size_t b = 0; b < blocks; ++b) {
    const std::byte* in = row + b * InfoOf(source.dtype).block_bytes;
    for (size_t half = 0; half < block.file_scale_bytes / 2; ++half) {
      std::memcpy(scales + b * block.scale_bytes + (half * kStripRows + lane) * 2, in + half * 2, 2);
    }
    std::byte* out = strip + b * block.quant_bytes + lane * 4;
    for (size_t g = 0; g < words; ++g) {
      uint32_t word;
      std::memcpy(&word, in + block.file_scale_bytes + g * 4, 4);
      if (offset_binary) word ^= 0x80808080U;  // int8 to u8 = q + 128
      std::memcpy(out + g * kStripRows * 4, &word, 4);
    }
  }
}

template <typename T>
void ScatterRow(const std::byte* row, size_t cols, size_t lane, std::byte* strip) {
  for (size_t k = 0; k < cols; ++k)
    std::memcpy(strip + (k * kStripRows + lane) * sizeof(T), row + k * sizeof(T), sizeof(T));
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
      PackQuantizedRow(source, row, lane, strip);
    } else if (dtype == DType::kF32) {
      ScatterRow<uint32_t>(row, source.cols, lane, strip);
    } else {
      ScatterRow<uint16_t>(row, source.cols, lane, strip);
    }
  }
}

DType PackedType(const WeightSource& source, bool as_f32) { return as_f32 ? DType::kF32 : source.dtype; }

}  // namespace

size_t WeightMatrix::StripBytes(DType dtype, size_t cols) {
  const StripBlock block = StripBlockOf(dtype);
  if (block.quant_bytes != 0) return cols / kBlock * (block.quant_bytes + block.scale_bytes);
  return cols * kStripRows * InfoOf(dtype).block_bytes;
}

Result<WeightMatrix> WeightMatrix::Pack(const WeightSource& given, bool as_f32, ThreadPool& threads,
                                        const std::function<void(std::span<const std::byte>)>& release) {
  WeightMatrix matrix = Map(given, as_f32);
  const WeightSource& source = matrix.source_;
  const size_t strip_bytes = matrix.strip_bytes();
  TIDEMILL_TRY(packed, AlignedBuffer::Create(matrix.num_strips() * strip_bytes));
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

// The row's own file bytes back from its strip.
float PackedElement(const std::byte* strip, DType dtype, size_t lane, size_t cols, size_t k) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, strip + (k * kStripRows + lane) * 4, 4);
    return value;
  }
  if (dtype == DType::kF16 || dtype == DType::kBF16) {
    uint16_t bits;
    std::memcpy(&bits, strip + (k * kStripRows + lane) * 2, 2);
    return dtype == DType::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
  }
  const StripBlock block = StripBlockOf(dtype);
  const size_t blocks = cols / kBlock, b = k / kBlock, within = k % kBlock;
  const std::byte* scales = strip + blocks * block.quant_bytes + b * block.scale_bytes;
  uint16_t d_bits;
  std::memcpy(&d_bits, scales + lane * 2, 2);
  const float d = HalfToFloat(d_bits);
  const std::byte* quants = strip + b * block.quant_bytes;
  if (dtype == DType::kQ8_0) {
    const int q = std::to_integer<int>(quants[(within / 4 * kStripRows + lane) * 4 + within % 4]) - 128;
    return d * static_cast<float>(q);
  }
  const size_t low = within % 16;
  const int byte = std::to_integer<int>(quants[(low / 4 * kStripRows + lane) * 4 + low % 4]);
  const int nibble = within < 16 ? byte & 15 : byte >> 4;
  if (dtype == DType::kQ4_0) return d * static_cast<float>(nibble - 8);
  uint16_t m_bits;
  std::memcpy(&m_bits, scales + (kStripRows + lane) * 2, 2);
  return d * static_cast<float>(nibble) + HalfToFloat(m_bits);
}

}  // namespace

void WeightMatrix::CopyRow(size_t row, std::span<float> out) const {
  TIDEMILL_CHECK(row < rows() && out.size() == cols());
  if (!packed()) {
    DequantizeRow(source_.dtype, {FileRow(source_, row), RowBytes(source_.dtype, cols())}, out);
    return;
  }
  const std::byte* strip = packed_.data() + row / kStripRows * strip_bytes();
  for (size_t k = 0; k < cols(); ++k) out[k] = PackedElement(strip, dtype_, row % kStripRows, cols(), k);
}

}  // namespace tidemill
