// The plain reference for reading weights of any type as f32. Kernels are compared with it; loaders use it for small
// tensors.
#ifndef TIDEMILL_TENSOR_DEQUANTIZE_H_
#define TIDEMILL_TENSOR_DEQUANTIZE_H_

#include <cstddef>
#include <span>

#include "tensor/dtype.h"

namespace tidemill {

// out[i] = element i of one row, as dtype.h gives the blocks.
//   row : RowBytes(dtype, out.size()) bytes as the file holds them, no alignment needed
//   out : [cols] f32; cols a multiple of the type's block_elements
// Bits: each product and each sum of dtype.h's formula is one f32 operation, rounded, in the order of its parentheses. All
// products are exact (of a half 11 significant bits, of a scale at most 7, of the quants beside it 5, where -128 and -32 are powers of
// two: 23 of 24), so that only sums round. The scales are exact conversions from half.
void DequantizeRow(DType dtype, std::span<const std::byte> row, std::span<float> out);

}  // namespace tidemill

#endif  // TIDEMILL_TENSOR_DEQUANTIZE_H_
