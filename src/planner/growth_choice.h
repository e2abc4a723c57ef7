// How many rows a KV cache grows by: a function of plain numbers. Notation of BMC ("Striking the Right Balance between Compute and Copy",
// section V): N rows in all, T blocks, each r = ceil(N / T) rows larger than the one before.
//
// Attention reads the rows that are there, so unused capacity costs memory and no time in a step. Time alone says r = N; memory limits r.
#ifndef TIDEMILL_PLANNER_GROWTH_CHOICE_H_
#define TIDEMILL_PLANNER_GROWTH_CHOICE_H_

#include <cstddef>
#include <cstdint>

#include "state/kv_growth.h"
#include "tidemill/policies.h"

namespace tidemill {

// The part of a sequence's state memory that its unused capacity may take.
inline constexpr uint64_t kIdlePart = 8;

// The largest r = ceil(N / T), T a power of two, with r row_bytes <= share / kIdlePart; 1 if there is none.
//   positions: N, at least 1        share: bytes of state memory for one sequence, the whole divided by the most sequences
size_t ChooseGrowthIncrement(size_t positions, uint64_t row_bytes, uint64_t share);
// The default of a policy. bmc: as above; the others copy nothing or have a rule of their own: KvGrowth's, at most N.
size_t ChooseIncrement(KvPolicy policy, size_t positions, uint64_t row_bytes, uint64_t share);

// Rows that a cache copies while it grows row by row from none to `positions`. A row is written to fresh memory once for each copy, and
// once when it is made.
double RowsCopied(KvPolicy policy, size_t increment, size_t positions);

// What it costs a cache to grow for draft tokens before its text needs the rows.
struct EarlyGrowth {
  KvGrowth growth;         // as the cache grows
  size_t most = 0;         // rows that it can ever hold
  double row_seconds = 0;  // c: seconds to allocate, fault and copy one row

  // The cache holds `length` rows, has room for `capacity` and grows to hold `rows`:      length <= capacity < rows <= most
  //   c * length * (rows - capacity) / (rows that the growth adds)
  // reserve copies nothing: 0. upfront has all rows already, and paged would leave rows of a block empty for good: infinite.
  double Seconds(size_t length, size_t capacity, size_t rows) const;
};

// The most unused capacity, in rows, at any length up to `positions`.
size_t MaxIdleRows(KvPolicy policy, size_t increment, size_t positions);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_GROWTH_CHOICE_H_
