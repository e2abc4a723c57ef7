// Several operations over the same rows as one loop: a block of rows goes through all of them while it is in the cache, and threads
// wait for each other once.
#ifndef TIDEMILL_KERNELS_ROW_BLOCKS_H_
#define TIDEMILL_KERNELS_ROW_BLOCKS_H_

#include <algorithm>
#include <cstddef>

#include "base/checked_math.h"
#include "kernels/execution_context.h"

namespace tidemill {

// Elements of a block: a few microseconds of cheap work.
inline constexpr size_t kRowBlockElements = 16384;

// Rows of a block.
constexpr size_t BlockRows(size_t cols, size_t block_elements = kRowBlockElements) {
  return std::max<size_t>(1, block_elements / std::max<size_t>(1, cols));
}

// The work of one such loop: the elements of a row that go through norms, rotations, activations or quantisation.
struct RowWork {
  size_t cols = 0;  // of ForRowBlocks
  size_t elements = 0;
};

// Calls body(alone, first, count) for blocks of rows that make up [0, rows), from several threads; operations on the block's rows take
// `alone`. `cols`: elements of a row. Allocates nothing. Of abandoned work blocks are left out (ExecutionContext::ParallelFor).
template <typename Body>
void ForRowBlocks(ExecutionContext& ctx, size_t rows, size_t cols, const Body& body,
                  size_t block_elements = kRowBlockElements) {
  const size_t block = BlockRows(cols, block_elements);
  ctx.ParallelFor(DivideRoundUp(rows, block), [&](size_t chunk, size_t) {
    const size_t first = chunk * block;
    body(ctx.alone(), first, std::min(block, rows - first));
  });
}

// The same over the rows of several ranges: body(alone, range, first, count) for blocks of rows that make up [0, rows_of(range)).
template <typename RowsOf, typename Body>
void ForRangeBlocks(ExecutionContext& ctx, size_t ranges, const RowsOf& rows_of, size_t cols, const Body& body) {
  const size_t block = BlockRows(cols);
  size_t blocks = 0;
  for (size_t i = 0; i < ranges; ++i) blocks += DivideRoundUp<size_t>(rows_of(i), block);
  ctx.ParallelFor(blocks, [&](size_t chunk, size_t) {
    size_t range = 0;
    for (size_t of_range; chunk >= (of_range = DivideRoundUp<size_t>(rows_of(range), block)); ++range)
      chunk -= of_range;
    const size_t first = chunk * block;
    body(ctx.alone(), range, first, std::min(block, rows_of(range) - first));
  });
}

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_ROW_BLOCKS_H_
