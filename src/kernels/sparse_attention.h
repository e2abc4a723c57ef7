// SparQ attention and exact top-k: a query row reads the positions that it is likeliest to attend to.                    arXiv:2312.04985
//
// A KV head, its group of query heads h, the n positions j that the row sees:
//   i1     = the r components i of greatest sum_h |q[h, i]|, h ascending in f32; ties go to the lower i. In ascending order.
//   c[h]   = scale / sqrt(sum_{i in i1} |q[h, i]| / sum_i |q[h, i]|), i ascending in f32; 0 where the first sum is 0
//   a[h,j] = cap(c[h] * sum_{i in i1} q[h, i] * k[j, i])         acc = 0; for i ascending: acc = MulAdd(q[i], k[i], acc)
//   Softmax as attention.h has it, in chunks of kAttentionChunk positions at multiples of it:
//     m = max a;  p[j] = exp(a[j] - m);  l = tree over s[j % 16] += p[j];  chunks join to M and L
//   s[h,j] = p[h,j] * w[h],  w[h] = exp(m - M) / L of the chunk
//   score  = kPaper: sum_h s[h, j], kEval: sum_h a[h, j]; h ascending
//   i2     = the last `local` positions, and of the others the k - local of greatest score; ties go to the lower j
//   alpha  = sum_{j in i2} s[h, j], j ascending
//   y      = Attention over the rows i2 as if they stood at positions 0, 1, ..., k - 1
//   out    = MulAdd(alpha, y, (1 - alpha) * mean)                or y, without `reallocate`
//   mean   = f32(f64 sum of the values of all n positions / n)   in granules (kernels/context_columns.h), the last one as far as the row sees it.
//            Of rows that begin after 0: (sums before the row's end - those before the first granule of which all is seen) + sum of what is in front of
//            that one. Without sums, those before the context count as none.
// n <= k: dense, as it is for a group whose `floor` is not met: the bits of Attention.  kTopk: r = head_dim, so that a is exact.
//
// Bits of a row depend on what Attention's depend on, and on the form. They do not depend on whether keys are read from columns or rows.
// Rows that are not seen may hold any bits, and so may columns past `filled` and components that are not chosen, where columns are read.
// Error: y as Attention's for n = k. i2 is exact for the scores above, which err as attention's do.
// Cost:  SparseCost.    Allocates nothing.
// Threads: (row, KV head, run of chunks) for scores; (row, KV head) for the rest.
#ifndef TIDEMILL_KERNELS_SPARSE_ATTENTION_H_
#define TIDEMILL_KERNELS_SPARSE_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention.h"
#include "kernels/context_columns.h"
#include "kernels/cost.h"
#include "kernels/execution_context.h"
#include "tidemill/policies.h"

namespace tidemill {

enum class SparseKind : uint8_t { kDense, kSparq, kTopk, kH2o, kWindow };
// Whether rows of the kind give up positions for good.
constexpr bool Evicts(SparseKind kind) { return kind == SparseKind::kH2o || kind == SparseKind::kWindow; }
inline constexpr size_t kSparseSinks = 16;  // first positions that kWindow reads

// Whether rows of a layer can be of that kind. A narrow window is dense: it has little to leave out. What a window drops cannot be kept by a kind that
// chooses once.
constexpr bool CanBeSparse(const AttentionShape& shape, SparseKind kind) {
  if (kind == SparseKind::kDense) return false;
  return shape.window == 0 || (!Evicts(kind) && shape.window > AttentionPolicy::kMaxDenseWindow);
}

enum class SparseRule : uint8_t {
  kPaper,  // softmax, then the sum over the group
  kEval,  // logits, summed over the group: what the authors' tables were made with, which then keep k + 1 and local + 1
};

struct SparseForm {
  SparseKind kind = SparseKind::kDense;
  SparseRule rule = SparseRule::kPaper;
  bool reallocate = true;  // of kSparq: the mass of what is not read goes to the mean value
  size_t r = 0;            // components: 1 to head_dim
  size_t k = 0;            // positions, at least 1
  size_t local = 0;        // of them, the last ones: 1 to k
  float floor = 0;         // a group is dense unless alpha is above it for all its heads; 0: never, 1: always
  // Who makes tasks compares positions that are a multiple of it with dense attention; 0: none.
  size_t audit = 0;
  friend bool operator==(const SparseForm&, const SparseForm&) = default;
};

// What a row's attention gave up, against dense attention on the same state.
struct SparseAudit {
  float kept_mass = 0;  // softmax weight of i2 by exact scores, mean over query heads
  float error = 0;      // |out - dense| / |dense|, Euclidean, over all heads
  float agreement = 0;  // share of i2 that the same rule takes by exact scores, mean over KV heads
};

// What became of a row; spans that are empty are not wanted.
struct SparseResult {
  std::span<float> alpha = {};  // [heads]; 1 where n <= k or the floor is 1
  // [kv_heads, k] i2, ascending; the first k seen ones where alpha is 1 by definition, fewer where n < k
  std::span<uint32_t> kept = {};
  std::span<uint8_t> was_dense = {};  // [kv_heads] 1: the floor was not met
  SparseAudit* audit = nullptr;       // costs more than dense attention
};

// One query row.
struct SparseTask {
  const SparseForm* form = nullptr;  // kSparq or kTopk
  std::span<const KvSpan> context;   // as AttentionTask's; keys in rows are quicker than in tiles
  // Of positions before first_position; to a row that begins at p > 0, the block of p - 1 counts, too.
  ContextColumns columns = {};
  size_t first_position = 0;              // of the step's rows
  std::span<const int32_t> parents = {};  // as AttentionTask's, of the step's rows
  size_t row = 0;                         // which of the step's rows: its position follows
  const float* q = nullptr;               // [heads * head_dim]
  float* out = nullptr;                   // the same
  SparseResult result = {};
};

// Precondition: ctx.shared_scratch() has SparseSharedBytes of the longest context. shape.bias is empty.
void SparseAttention(ExecutionContext& ctx, const AttentionShape& shape, std::span<const SparseTask> tasks);

// A row's attention over given positions: the y above.
struct SelectedTask {
  std::span<const KvSpan> context;
  size_t first_position = 0;
  std::span<const int32_t> parents = {};
  size_t row = 0;
  std::span<const uint32_t> positions;  // [kv_heads, count], each ascending, at most the row's own
  size_t count = 0;
  const float* q = nullptr;
  float* out = nullptr;
};
void SelectedAttention(ExecutionContext& ctx, const AttentionShape& shape, std::span<const SelectedTask> tasks);

// Bytes of scratch that a thread needs, and of shared scratch for any one row of `positions`.
size_t SparseScratchBytes(const AttentionShape& shape);
size_t SparseSharedBytes(const AttentionShape& shape, size_t positions);

// Of the n positions that a row sees, how many it attends to: all of no more than k, and with a floor of 1; of kH2o k and its own.
constexpr size_t AttendedPositions(const SparseForm& form, size_t n) {
  if (form.kind == SparseKind::kDense || form.floor >= 1 || n <= form.k) return n;
  return form.k + (form.kind == SparseKind::kH2o ? 1 : 0);
}

// Bytes of keys, values and their sums that one KV head of a row of any kind reads. The row sees n positions, the first `filled` of which stand in
// columns; has_columns false: only their sums do.
struct SparseReads {
  double asked = 0;  // that the kernel asks for
  // That come for them: an element of a key that stands in a row brings its cache line, at most the row.
  double memory = 0;
  double gathered = 0;  // of them, those of keys whose components are taken one by one from rows
};
SparseReads SparseReadsOf(const AttentionShape& shape, const SparseForm& form, size_t n, size_t filled,
                          bool has_columns);
// Of one row: SparseReads::memory, the query and the output.
Cost SparseCost(const AttentionShape& shape, const SparseForm& form, size_t n, size_t filled, bool has_columns);

namespace reference {
// One task after another in double, sums in plain order; selections by f32 scores as above.
void SparseAttention(const AttentionShape& shape, std::span<const SparseTask> tasks);
}  // namespace reference

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_SPARSE_ATTENTION_H_
