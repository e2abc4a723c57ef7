// Keys by component, beside their rows, and sums of values: what sparse attention reads of a whole context.
//
//   columns : [kv_heads, head_dim, kColumnRows] of the rows' type          component i of the keys of kColumnRows positions side by side
//   sums    : [kColumnRows / kSumRows, kv_heads, head_dim] f64             entry s: of all values at positions before first + (s + 1) * kSumRows
//
// Both are functions of the rows. A granule of kSumRows rows, at a multiple of kSumRows, is summed alone, rows ascending from 0.0, and its sum is added
// to that of the granules before it. So every history of a context gives the same bits.
#ifndef TIDEMILL_KERNELS_CONTEXT_COLUMNS_H_
#define TIDEMILL_KERNELS_CONTEXT_COLUMNS_H_

#include <cstddef>
#include <span>

namespace tidemill {

inline constexpr size_t kColumnRows = 256;
inline constexpr size_t kSumRows = 64;
static_assert(kColumnRows % kSumRows == 0);

// Of positions [n * kColumnRows, (n + 1) * kColumnRows).
struct ColumnBlock {
  const std::byte* columns = nullptr;  // null: keys stand in rows only
  const double* sums = nullptr;
};

// Of positions [0, filled), of which those before the first block are no longer kept.
struct ContextColumns {
  std::span<const ColumnBlock> blocks;  // of positions from first * kColumnRows on; all of them with columns, or none
  size_t first = 0;                     // number of the first block
  size_t filled = 0;                    // a multiple of kSumRows; 0: there are none
};

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CONTEXT_COLUMNS_H_
