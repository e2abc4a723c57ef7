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
// Bits: d * q and d * (nibble - 8) are one f32 product; d * nibble + m is a product, rounded, then a sum, rounded. The
// scales are exact conversions from half.
void DequantizeRow(DType dtype, std::span<const std::byte> row, std::span<float> out);

}  // namespace tidemill

#endif  // TIDEMILL_TENSOR_DEQUANTIZE_H_
