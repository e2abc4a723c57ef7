// The loop of every operation that works element by element.
#ifndef TIDEMILL_KERNELS_CPU_FOR_EACH_SPAN_H_
#define TIDEMILL_KERNELS_CPU_FOR_EACH_SPAN_H_

#include <algorithm>
#include <cstddef>

#include "base/checked_math.h"
#include "kernels/cpu/for_each_row.h"
#include "kernels/execution_context.h"

namespace tidemill {

// Calls body(row, first column, columns) for spans that cover [rows, cols], from several threads. Rows shorter than
// `chunk_elements` (a multiple of 16) go several to a chunk, and a longer one, such as a row of logits, goes in several chunks.
// Allocates nothing.
template <typename Body>
void ForEachSpan(ExecutionContext& ctx, size_t rows, size_t cols, size_t chunk_elements, const Body& body) {
  if (rows == 0 || cols == 0) return;
  const size_t pieces = DivideRoundUp(cols, chunk_elements);
  if (pieces == 1) {
    ForEachRow(
        ctx, rows, cols, [&](size_t row) { body(row, size_t{0}, cols); }, chunk_elements);
    return;
  }
  ctx.ParallelFor(rows * pieces, [&](size_t chunk, size_t) {
    const size_t first = chunk % pieces * chunk_elements;
    body(chunk / pieces, first, std::min(chunk_elements, cols - first));
  });
}

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_FOR_EACH_SPAN_H_
