// A weight matrix [rows, cols] (out_features, in_features) in the form that the matrix kernels read.
//
// Packed form. Sixteen output rows are one panel; lane c of a vector is row 16 * panel + c; rows past the end are zeros.
// The panel is the unit of work: its bytes are contiguous, blocks of k ascend.
//
//   struct Panel<F32>  { f32 w[cols][16]; }                       F16: the same with u16
//   struct Panel<BF16> { u16 w[(cols + 1) / 2][16][2]; }                              a zero follows an odd last column
//   struct Panel<Q8_0> { f16 d[16];  u8 w[8][16][4]; } [cols/32]                      w = q + 128, k = 32*b + 4*g + j
//   struct Panel<Q4_0> { f16 d[16];  u8 n[4][16][4]; } [cols/32]                      low nibble: group g, high: group g + 4
//   struct Panel<Q4_1> { f16 d_m[2][16];  u8 n[4][16][4]; } [cols/32]
//   struct Panel<Q5_0> { f16 d[16];  u8 n[5][16][4]; } [cols/32]                      n[4]: bit g is group g's fifth
//   struct Panel<Q5_1> { f16 d_m[2][16];  u8 n[5][16][4]; } [cols/32]
//   struct Panel<Q4_K> { f16 d_dmin[2][16];  u8 sc_m[8][2][16];  u8 n[8][4][16][4]; } [cols/256]
//   struct Panel<Q5_K> { f16 d_dmin[2][16];  u8 sc_m[8][2][16];  u8 n[8][5][16][4]; } [cols/256]
//   struct Panel<Q6_K> { f16 d[16];  i8 sc[8][2][16];  u8 n[8][6][16][4]; } [cols/256]
//                        n[b][4]: bits 2*g and 2*g + 1 are the upper two of group g; n[b][5]: those of group g + 4
// Scales stand with their quants, so that a panel is one stream from memory.
//
// These are the file's bits in another order: a packed matrix is as large as its file form (rows rounded up to 16, columns of BF16 to
// pairs), but for Q4_K and Q5_K, whose 6-bit scales take a byte each: 148 bytes for 144 and 180 for 176.
// Mapped form: the file's own bytes; kernels pack one group of panels into scratch memory whenever they need it.
#ifndef TIDEMILL_KERNELS_WEIGHT_MATRIX_H_
#define TIDEMILL_KERNELS_WEIGHT_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "tensor/dtype.h"
#include "tidemill/result.h"

namespace tidemill {

inline constexpr size_t kPanelRows = 16;

// Order of the rows in the file. Files of architecture `llama` store each head's q and k rows interleaved for another form of
// RoPE: file row (head, i, half) holds row (head, half, i), half in {0, 1}, i < head_dim / 2 (0: rows are in their usual order).
struct RowOrder {
  size_t interleaved_head_dim = 0;
  std::vector<uint32_t> list =
      {};  // the file row of each row, some of the file's in any order; empty: as the above says

  size_t FileRow(size_t row) const {
    if (!list.empty()) return list[row];
    if (interleaved_head_dim == 0) return row;
    const size_t half_dim = interleaved_head_dim / 2;
    const size_t head = row / interleaved_head_dim, within = row % interleaved_head_dim;
    return head * interleaved_head_dim + (within % half_dim) * 2 + within / half_dim;
  }
};

// The bytes of a matrix as a file holds them.
struct WeightSource {
  DType dtype = DType::kF32;
  size_t rows = 0;
  size_t cols = 0;  // a multiple of the dtype's block
  std::span<const std::byte>
      bytes;  // from the first byte of row 0 to the last of the last row; with a list all rows that it names
  size_t row_stride = 0;  // bytes between rows: more than RowBytes(dtype, cols) for a range of columns; 0: rows touch
  RowOrder order;
};

class WeightMatrix {
 public:
  WeightMatrix() = default;

  // Packs with all threads in pieces of at most 4 MiB of the file, or of one panel; `release(bytes)`, unless it is empty, is called behind
  // each for its rows, so that their pages can be given back. as_f32: dequantise to F32 first (--dtype f32). arena: where the packed form goes; null:
  // memory of its own. Error: kOutOfMemory.
  static Result<WeightMatrix> Pack(const WeightSource& source, bool as_f32, ThreadPool& threads,
                                   const std::function<void(std::span<const std::byte>)>& release,
                                   BufferArena* arena = nullptr);
  // Borrows source.bytes, which must outlive the matrix.
  static WeightMatrix Map(const WeightSource& source, bool as_f32);

  DType dtype() const { return dtype_; }
  size_t rows() const { return source_.rows; }
  size_t cols() const { return source_.cols; }
  size_t num_panels() const { return (rows() + kPanelRows - 1) / kPanelRows; }
  size_t panel_bytes() const { return PanelBytes(dtype_, cols()); }
  // Of the packed form, whether or not this matrix has it: what a product reads.
  size_t packed_bytes() const { return num_panels() * panel_bytes(); }
  bool packed() const { return packed_.data() != nullptr; }
  // Bytes this matrix holds in memory of its own.
  size_t resident_bytes() const { return packed_.size() + source_.order.list.size() * sizeof(uint32_t); }
  // True when the kernels want int8 activations; else f32 or BF16 (FormFor).
  bool quantized() const { return InfoOf(dtype_).quantized; }

  // The packed form of panels [first, first + count): in place when packed, else written to `scratch`: count * panel_bytes(), and
  // cols() floats behind them where rows are dequantised (MatMulScratchBytes).
  const std::byte* Panels(size_t first, size_t count, std::span<std::byte> scratch) const;

  // out[0, cols) = row `row` as f32: w = d * q (+ m), each operation rounded once.
  void CopyRow(size_t row, std::span<float> out) const;

  static size_t PanelBytes(DType dtype, size_t cols);

 private:
  WeightSource source_;  // bytes and order empty once packed
  DType dtype_ = DType::kF32;
  AlignedBuffer packed_;
};

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_WEIGHT_MATRIX_H_
