// How many rows a key/value cache grows by, as a function of plain numbers. Notation as in BMC ("Striking the Right Balance between
// Compute and Copy", section V): N rows in all, T blocks, r = ceil(N / T) rows more in each.
//
// A back end that attends over all rows of its buffer reads r / 2 spare rows in a step on average, N steps long; a copying policy copies
// r (1 + 2 + ... + T - 1) rows:
//   cost(T) = N^2 s / (2 T) + N T c / 2 + ...        s: seconds to attend one padded row in one step; c: to allocate, fault and copy one
//   T* = sqrt(N s / c)                               the paper's sqrt(C' N), with s and c measured instead of C'
// With k drafted tokens in a step of which m are accepted, there are N / m steps, each with k query rows:
//   T* = sqrt(N (k / m) s_k / c)                     s_k: seconds per query row
//
// Our kernels read the rows that are there and no others. Then time says r = N, and memory is what is left to weigh.
#ifndef TIDEMILL_PLANNER_GROWTH_CHOICE_H_
#define TIDEMILL_PLANNER_GROWTH_CHOICE_H_

#include <cstddef>
#include <cstdint>

#include "state/kv_growth.h"
#include "tidemill/plan.h"
#include "tidemill/policies.h"

namespace tidemill {

struct PaddedCosts {
  double attend_seconds = 0;  // s: all layers and sequences, for one query row
  double grow_seconds = 0;    // c: of all layers and sequences
  double drafted = 1;         // k; 1: no drafts
  double accepted = 1;        // m: tokens that a step adds, at least 1
  double sharing = 1;         // G: query heads of a KV head
  double shrinking = 1;       // Q: bytes of an f16 element / bytes of a stored one
};

// T* is rounded to the power of two that is nearest by ratio, which is the cheaper one of its neighbours, and kept in [1, N].
// positions: N, at least 1. What costs nothing decides: c = 0 has T = N, s = 0 has T = 1.
PaddedGrowth ChoosePaddedPeriod(size_t positions, const PaddedCosts& costs);

// Of a sequence's share of the state memory, what its spare rows may take.
inline constexpr uint64_t kIdlePart = 8;

// The largest r = ceil(N / T), T a power of two, with r row_bytes <= share / kIdlePart; 1 where there is none. share: the state memory
// divided by the sequences that may be there together.
size_t ChooseExactPeriod(size_t positions, uint64_t row_bytes, uint64_t share);
// The period that a policy has where nobody gives one: that of bmc; the others copy nothing, or grow by a rule of their own.
size_t ChoosePeriod(KvPolicy policy, size_t positions, uint64_t row_bytes, uint64_t share);

// Rows that a cache copies while it grows from none to `positions`, one by one. Every row is written freshly once for each copy and
// once besides.
double RowsCopied(KvPolicy policy, size_t period, size_t positions);

// What it costs a cache to grow for guesses, before its own rows must have it.
struct EarlyGrowth {
  KvGrowth growth;         // as the cache grows
  size_t most = 0;         // rows that it can ever hold
  double row_seconds = 0;  // c

  // Of one that holds `length` rows, has room for `capacity` and grows to hold `rows`: c for each row that is copied, spread evenly over
  // the rows that it gets, times those of them that it grows for. Nothing where nothing is copied; infinite where all rows are
  // allocated at once (upfront), and where the rows left in a block would stay empty for good (paged).      length <= capacity < rows <= most
  double Seconds(size_t length, size_t capacity, size_t rows) const;
};

// The most rows that are allocated and hold nothing, at any length up to `positions`.
size_t MostIdleRows(KvPolicy policy, size_t period, size_t positions);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_GROWTH_CHOICE_H_
