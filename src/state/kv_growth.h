// How far ahead of its rows a KV cache allocates: the policies of BMC ("Striking the Right Balance between Compute and Copy",
// section V) and two more. N: the expected rows of a sequence. r: the growth increment.
//
//   iterative   the step's rows: a new block and a copy of everything at each step; the paper's r = 1
//   upfront     all N rows at once; r = N
//   bmc         the next multiple of r rows: N / r blocks, each copied into the next
//   geometric   the next power of two: every row is copied at most twice on average
//   reserve     addresses for all N rows at once and pages for r rows ahead: nothing is ever copied
//   paged       blocks of r rows that never move, a span of the context each
//
// All give the same bits: unused capacity is never read. A layer with a window is bounded by its window instead (state/kv_layer.h).
#ifndef TIDEMILL_STATE_KV_GROWTH_H_
#define TIDEMILL_STATE_KV_GROWTH_H_

#include <cstddef>
#include <cstdint>

#include "tidemill/policies.h"

namespace tidemill {

struct KvGrowth {
  KvPolicy policy = KvPolicy::kBmc;
  size_t increment = 256;  // r; of bmc, reserve and paged. At least 1
  size_t expected = 0;     // N; 0: the whole context

  // Rows of a block that begins at position `first`, holds `rows` now and `most` at the end: in [rows, most]. Past the expected length
  // `upfront` grows by the increment. Precondition: rows <= most.
  size_t Capacity(size_t first, size_t rows, size_t most) const;
  friend bool operator==(const KvGrowth&, const KvGrowth&) = default;
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_KV_GROWTH_H_
