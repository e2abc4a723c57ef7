// Rows of activations in the form that a weight matrix wants: f32 as they are, rounded to BF16, or quantised to int8 in blocks of 32.
//
//   BF16: nearest, ties to even; subnormal numbers count as zeros, of their sign
//
//   int8:
//   amax = max |x|;  d = amax / 127;  q = round_to_nearest_even(x * (127 / amax)), in [-127, 127]
//   127 / amax > kMaxInverse, or amax == 0: q = d = 0
//   sum = d * (q[0] + ... + q[31])     the factor of a block's minimum, rounded once; the integer sum is exact
// Bits: one IEEE operation each, the same on every instruction set. A block with NaN or infinity: q = 0, d and sum NaN; the row's other
// blocks are as they are.
// Cost of int8:  QuantizeCost(rows, cols, isa).
#ifndef TIDEMILL_KERNELS_ACTIVATIONS_H_
#define TIDEMILL_KERNELS_ACTIVATIONS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "kernels/biased_block.h"
#include "kernels/cost.h"
#include "kernels/execution_context.h"
#include "tensor/dtype.h"
#include "tensor/matrix.h"
#include "tidemill/result.h"

namespace tidemill {

inline constexpr size_t kQuantBlock = 32;
// A block whose numbers are all below 127 / kMaxInverse, 4.23e-37, counts as zeros: 127 / amax is infinite or near it.
inline constexpr float kMaxInverse = 3.0e38F;

enum class ActivationForm : uint8_t { kF32, kBFloat16, kInt8 };

// What the kernels of a level multiply weights of this type with.
constexpr ActivationForm FormFor(DType weight, Isa isa) {
  if (InfoOf(weight).quantized) return ActivationForm::kInt8;
  return weight == DType::kBF16 && HasBFloat16Products(isa) ? ActivationForm::kBFloat16 : ActivationForm::kF32;
}

// Whether products of these weights are faster with QuantizedRows::biased: Q8_0 at the levels of the AVX2 kernels, on processors with
// GainsFromBiasedBlocks(). Bits are the same.
bool WantsBiased(DType weight, Isa isa);
// With fewer rows no product reads them.
inline constexpr size_t kMinBiasedRows = 12;

// Borrowed view of quantised rows.
struct QuantizedRows {
  const int8_t* q = nullptr;  // [rows, cols]: k ascending
  // [rows, cols]: the same numbers for kernels with 16-bit products, each 4 as (q0, q2, q1, q3); or null
  const int16_t* pairs = nullptr;
  const float* d = nullptr;            // [rows, cols / 32]
  const float* sum = nullptr;          // [rows, cols / 32]
  const int16_t* half_sums = nullptr;  // [rows, cols / 16] q[0] + ... + q[15] of each half of a block
  // The same numbers for the AVX2 kernel of Q8_0 with many rows, or null: [tiles of 4 rows, cols / 32, 4] (BiasedIndex)
  const BiasedBlock* biased = nullptr;
  size_t biased_row = 0;  // where in the first tile the first row is: 0 to 3
  size_t rows = 0;
  size_t cols = 0;

  QuantizedRows Rows(size_t first, size_t count) const;
};

// Owns room for up to `max_rows` rows of up to `max_cols` columns.
class BFloat16Buffer {
 public:
  static Result<BFloat16Buffer> Create(size_t max_rows, size_t max_cols);
  static size_t RowBytes(size_t max_cols);

  // Rounds x [rows, cols], replacing what was there; a zero follows an odd last column. Only for levels with
  // HasBFloat16Products. Splits rows over the threads. Allocates nothing.
  ConstMatrix<uint16_t> Round(ExecutionContext& ctx, ConstMatrix<float> x);
  // The same in two steps: rows to be written, then some of them at a time, from any number of threads.
  Matrix<uint16_t> Place(size_t rows, size_t cols);
  static void RoundRows(ExecutionContext& ctx, ConstMatrix<float> x, Matrix<uint16_t> out);

 private:
  AlignedBuffer memory_;
};

// Owns room for up to `max_rows` rows of up to `max_cols` columns.
class QuantizedBuffer {
 public:
  // `biased`: with room for QuantizedRows::biased of max_rows, which want a level with `pairs`.
  static Result<QuantizedBuffer> Create(size_t max_rows, size_t max_cols, Isa isa, bool biased = false);
  // Bytes that one row takes of it.
  static size_t RowBytes(size_t max_cols, Isa isa, bool biased = false);

  // Quantises x [rows, cols], cols a multiple of 32, replacing what was there. Splits rows over the threads. Allocates nothing.
  QuantizedRows Quantize(ExecutionContext& ctx, ConstMatrix<float> x);
  // The same in two steps: rows to be written, then some of them at a time, from any number of threads. `biased`: those are to be written,
  // too, if there is room and the rows are kMinBiasedRows or more.
  QuantizedRows Place(size_t rows, size_t cols, bool biased = true);
  void QuantizeRows(ExecutionContext& ctx, ConstMatrix<float> x, size_t first_row);

 private:
  bool with_pairs_ = false, placed_biased_ = false;
  AlignedBuffer q_, pairs_, d_, sum_, half_sums_, biased_;
};

// Without the products of bytes, levels write `pairs`, too, and where they are wanted `biased`. Each element is compared, multiplied,
// rounded and added up.
constexpr Cost QuantizeCost(size_t rows, size_t cols, Isa isa, bool biased = false) {
  const auto elements = static_cast<double>(rows * cols);
  const double bytes = isa < Isa::kAvx512Vnni ? 7 : 5, bytes_of_block = 12 + (biased ? sizeof(BiasedBlock) : 0);
  return {.bytes = elements * (bytes + bytes_of_block / kQuantBlock), .flops = 4 * elements, .int8_ops = 0};
}

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_ACTIVATIONS_H_
