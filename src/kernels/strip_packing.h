// One row of a quantised matrix into its lane of a strip, and back (kernels/weight_matrix.h draws the strips).
#ifndef TIDEMILL_KERNELS_STRIP_PACKING_H_
#define TIDEMILL_KERNELS_STRIP_PACKING_H_

#include <cstddef>
#include <span>

#include "kernels/strip_layout.h"
#include "tensor/dtype.h"

namespace tidemill {

// dtype is quantised.
StripType StripTypeOf(DType dtype);

// Bytes of the strip of 16 rows of `cols` elements.
size_t QuantizedStripBytes(DType dtype, size_t cols);

// row: RowBytes(dtype, cols) bytes as the file has them. Writes every byte of the lane and no other.
void PackStripRow(DType dtype, const std::byte* row, size_t cols, size_t lane, std::byte* strip);

// out[0, cols) = the lane's weights, with the bits of DequantizeRow.
void ReadStripRow(DType dtype, const std::byte* strip, size_t lane, std::span<float> out);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_STRIP_PACKING_H_
