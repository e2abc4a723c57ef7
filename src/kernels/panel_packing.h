// One row of a quantised matrix into its lane of a panel, and back (kernels/weight_matrix.h draws the panels).
#ifndef TIDEMILL_KERNELS_PANEL_PACKING_H_
#define TIDEMILL_KERNELS_PANEL_PACKING_H_

#include <cstddef>
#include <span>

#include "kernels/panel_layout.h"
#include "tensor/dtype.h"

namespace tidemill {

// dtype is quantised.
PanelType PanelTypeOf(DType dtype);

// Bytes of the panel of 16 rows of `cols` elements.
size_t QuantizedPanelBytes(DType dtype, size_t cols);

// row: RowBytes(dtype, cols) bytes as the file has them. Writes every byte of the lane and no other.
void PackPanelRow(DType dtype, const std::byte* row, size_t cols, size_t lane, std::byte* panel);

// out[0, cols) = the lane's weights, with the bits of DequantizeRow.
void ReadPanelRow(DType dtype, const std::byte* panel, size_t lane, std::span<float> out);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_PANEL_PACKING_H_
