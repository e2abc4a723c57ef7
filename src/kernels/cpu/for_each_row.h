// The loop of every operation that works row by row.
#ifndef TIDEMILL_KERNELS_CPU_FOR_EACH_ROW_H_
#define TIDEMILL_KERNELS_CPU_FOR_EACH_ROW_H_

#include <cstddef>

#include "kernels/execution_context.h"
#include "kernels/row_blocks.h"

namespace tidemill {

// Calls body(row) once for every row of [0, rows), from several threads; a row has `cols` elements. Rows shorter than
// `block_elements` go several to a chunk. Allocates nothing.
template <typename Body>
void ForEachRow(ExecutionContext& ctx, size_t rows, size_t cols, const Body& body,
                size_t block_elements = kRowBlockElements) {
  const auto each = [&body](ExecutionContext&, size_t first, size_t count) {
    for (size_t row = first; row < first + count; ++row) body(row);
  };
  ForRowBlocks(ctx, rows, cols, each, block_elements);
}

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_FOR_EACH_ROW_H_
