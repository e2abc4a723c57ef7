// How far ahead of its rows a key/value cache allocates: the policies of BMC ("Striking the Right Balance between
// Compute and Copy", section V) and two more. N: the rows that a sequence will have in all, as far as that is known.
//
//   iterative   the step's rows and no more: a new block and a copy of everything at each step; the paper's r = 1
//   upfront     all N rows at once; r = N
//   bmc         the next multiple of r = `period` rows: N / r blocks, each copied into the next
//   geometric   the next power of two: every row is copied at most twice on average, whatever N is
//   reserve     addresses for all N rows at once and pages for `period` rows ahead: nothing is ever copied
//   paged       blocks of `period` rows that stay where they are, a span of the context each; to be measured beside the others
//
// All of them give the same bits: what is allocated and not yet written is never read. Layers with a window do not follow them: such a
// layer is bounded by its window (state/kv_layer.h).
#ifndef TIDEMILL_STATE_KV_GROWTH_H_
#define TIDEMILL_STATE_KV_GROWTH_H_

#include <cstddef>
#include <cstdint>

#include "tidemill/policies.h"

namespace tidemill {

struct KvGrowth {
  KvPolicy policy = KvPolicy::kBmc;
  size_t period = 256;  // r; of bmc, reserve and paged. At least 1
  size_t expected = 0;  // N; 0: the whole context

  // Rows of a block that begins at position `first`, is to hold `rows` now and can ever hold `most`: in [rows, most]. A sequence that
  // is longer than expected may be as long as its context, and `upfront` goes on by periods. Precondition: rows <= most.
  size_t Capacity(size_t first, size_t rows, size_t most) const;
  friend bool operator==(const KvGrowth&, const KvGrowth&) = default;
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_KV_GROWTH_H_
