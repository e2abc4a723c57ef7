// What sparse attention does with registers, at each level. Driven by cpu/sparse_unit.cc.
#ifndef TIDEMILL_KERNELS_CPU_SPARSE_KERNELS_H_
#define TIDEMILL_KERNELS_CPU_SPARSE_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "base/isa.h"
#include "kernels/attention.h"
#include "tensor/dtype.h"

namespace tidemill {

// Chosen components of the keys of some positions side by side. Component c of position i is element index[c] * stride + i.
struct KeyComponents {
  const std::byte* at;
  const std::byte* next;  // what is read afterwards, of the same layout; fetched, never read
  DType dtype;            // no blocks
  const uint32_t* index;  // [r]
  size_t stride;
  size_t r;
  size_t positions;  // a multiple of 16, from columns of 64
};

// The same of 16 rows, which stand anywhere: component i of row l is `step[l] * i` elements from row[l].
struct SixteenRows {
  const std::byte* row[16];
  size_t step[16];
};

// Scratch of Select: maxima, then candidates and their indices.
inline constexpr size_t kMaxMaxima = 2048, kMaxCandidates = 4096;
inline constexpr size_t kSelectInts = kMaxMaxima + 2 * kMaxCandidates;

struct SparseKernels {
  // scores[h * kAttentionChunk + i] = c[h] * (q[h] . key i); q : [heads, r]
  void (*score)(const KeyComponents& keys, size_t heads, const float* q, const float* c, float* scores);
  // out : [r, 16]
  void (*gather)(DType dtype, const SixteenRows& rows, const uint32_t* index, size_t r, float* out);
  // `count`, a multiple of 16: scores = cap * tanh(scores / cap)
  void (*cap)(float cap, size_t count, float* scores);
  // keys[i] = order of sum_h scores[h, i], 0 <= i < kAttentionChunk. Orders compare as the sums do, NaN beyond all others.
  void (*add_scores)(size_t heads, const float* scores, int32_t* keys);
  // keys[i] = order of sum_h p[h, i] * w[h]
  void (*add_weights)(size_t heads, const float* p, const float* w, int32_t* keys);
  // m, l : [chunks, stride], of which `heads` of each count, stride a multiple of 16. m becomes w.
  void (*weights)(size_t chunks, size_t stride, float* m, const float* l);
  // out: first + the indices of the `take` <= n greatest keys, ascending; ties go to the lower index. out may be keys' own memory.
  void (*select)(const int32_t* keys, size_t n, size_t take, uint32_t first, int32_t* scratch, uint32_t* out);
  // sum[i] += element i of a row; dim a multiple of 16
  void (*add_row)(DType dtype, const std::byte* row, size_t dim, double* sum);
  // out[i] = MulAdd(alpha, out[i], (1 - alpha) * mean[i])
  void (*blend)(size_t dim, float alpha, const float* mean, float* out);
};

SparseKernels PickSparse(Isa isa);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_SPARSE_KERNELS_H_
