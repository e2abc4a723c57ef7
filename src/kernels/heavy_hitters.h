// Attention that keeps the positions most attended to so far and evicts the others (H2O).                          arXiv:2306.14048
//
//   sums : [kv_heads][positions] f32      how much each position was attended to; kEvicted: it was evicted
//
// Rows ascend. Each, for a KV head and its query heads h:
//   a sparse row at position n keeps, of the positions before n that are not evicted, the last `local` and the k - local others of the greatest
//   sums, ties to the lower position; it evicts the others, and reads those and n: at most k + 1. A dense row reads all up to its own.
//   w[h, j] = softmax over what it reads, by exact scores: s[h, j] of sparse_attention.h, for positions 0, 1, ... of a sparse row's own reads
//   sums[j] += sum_h w[h, j]           h ascending, in f32
//   out of a sparse row: Attention over what it reads as if it stood at positions 0, 1, ...; dense rows' out is not written
//
// Cost: a baseline to compare with: scores twice, and those of a prompt once more than its attention. Allocates nothing.
// Threads: KV heads.
#ifndef TIDEMILL_KERNELS_HEAVY_HITTERS_H_
#define TIDEMILL_KERNELS_HEAVY_HITTERS_H_

#include <cstddef>
#include <span>

#include "kernels/attention.h"
#include "kernels/execution_context.h"
#include "kernels/sparse_attention.h"
#include "tensor/matrix.h"

namespace tidemill {

inline constexpr float kEvicted = -1;  // below every sum

// Rows of one sequence, each behind the one before it.
struct HeavyHitterTask {
  const SparseForm* form = nullptr;  // k and local are read
  std::span<const KvSpan> context;   // up to the last row
  size_t first_position = 0;         // of row 0
  size_t dense_rows = 0;             // the first ones; none once a position was evicted
  ConstMatrix<float> q;
  Matrix<float> out;
  std::span<const std::span<float>> sums;  // [kv_heads], each [first_position + rows]; those of the rows are 0
};

// Precondition: ctx.shared_scratch() has HeavyHitterSharedBytes. No window, no bias.
void AttendHeavyHitters(ExecutionContext& ctx, const AttentionShape& shape, const HeavyHitterTask& task);

// Shared scratch of one KV head; a thread needs SparseScratchBytes.
size_t HeavyHitterSharedBytes(const AttentionShape& shape, size_t positions);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_HEAVY_HITTERS_H_
