// The loop of every operation that works row by row.
#ifndef TIDEMILL_KERNELS_CPU_FOR_EACH_ROW_H_
#define TIDEMILL_KERNELS_CPU_FOR_EACH_ROW_H_

#include <algorithm>
#include <cstddef>

#include "base/checked_math.h"
#include "kernels/execution_context.h"

namespace tidemill {

// Elements of a chunk: a few microseconds of cheap work. Rows shorter than that go several to a chunk.
inline constexpr size_t kRowChunkElements = 16384;

// Calls body(row) once for every row of [0, rows), from several threads; a row has `cols` elements. Allocates nothing.
template <typename Body>
void ForEachRow(ExecutionContext& ctx, size_t rows, size_t cols, const Body& body,
                size_t chunk_elements = kRowChunkElements) {
  const size_t chunk_rows = std::max<size_t>(1, chunk_elements / std::max<size_t>(1, cols));
  ctx.threads().ParallelFor(DivideRoundUp(rows, chunk_rows), [&](size_t chunk, size_t) {
    const size_t end = std::min(rows, (chunk + 1) * chunk_rows);
    for (size_t row = chunk * chunk_rows; row < end; ++row) body(row);
  });
}

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_FOR_EACH_ROW_H_
