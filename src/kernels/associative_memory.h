// The associative memory of a layer: read in front of it by all rows of a segment, written behind it by the last rows.
//                                                          ARMT: arXiv:2407.04841; DPFP: arXiv:2102.11174; the clip and e: the authors' code
//   c = [relu(x) ; relu(-x)];   phi(x)[j 2n + i] = c[i] c[(i - j - 1) mod 2n], j < nu                 x : [n], phi : [features], features = 2 nu n
//   Read    y = x + (f A) / (f.z + e)                        f = phi(W_q x); by row                A : [features, hidden], z : [features], e = 1e-5
//   Write   of a segment's rows i, all on the old A and z, k_i = phi(W_k y_i), v_i = W_v y_i, beta_i = sigmoid(b_i):
//     D_i = k_i.z + e;   u_i = beta_i (v_i - (k_i A) / D_i);   gamma_i = clip(1 - D_i / (k_i.k_i + e), 0, 1), or 1 without `correction`
//     A' = A + sum_i k_i^T u_i;   z' = z + sum_i gamma_i k_i
//     Of the first segment, which has no A and z:  u_i = beta_i v_i, gamma_i = 1
//
// Bits:  f.z, k.z, k.k: s[p % 16] = MulAdd(f[p], z[p], s[p % 16]), p ascending, added by the fixed tree.
//        f A, k A: acc = 0; for p ascending: acc = MulAdd(f[p], A[p], acc).     y = x + acc / (f.z + e);  u = beta * (v - acc / D)
//        A': acc = A[p], or 0; for i ascending: acc = MulAdd(k_i[p], u_i, acc).   z': the same of gamma_i * k_i[p], added
//        beta as Activate(kSigmoid). A row's bits depend on itself, A and z alone.
//        With A and z of BF16 they are widened where they are read, and A' and z' rounded to nearest even where they are written, once a segment.
// Error: with A and z of F32:
//        Read    |y - exact| <= MemoryReadTolerance(features) * sum_p |f[p] A[p]| / (f.z + e) + 2^-23 |y|
//        Write   |A' - exact| <= MemoryWriteTolerance(features, rows) * (|A| + sum_i |k_i| beta_i (|v_i| + sum_p |k_i[p] A[p]| / D_i)), and of z' the
//                same of |z| + sum_i |k_i|
// Cost:  MemoryReadCost, MemoryWriteCost.   Allocates nothing.
// Threads: Read: (blocks of rows, blocks of columns); Write: blocks of columns of each task.
#ifndef TIDEMILL_KERNELS_ASSOCIATIVE_MEMORY_H_
#define TIDEMILL_KERNELS_ASSOCIATIVE_MEMORY_H_

#include <cstddef>
#include <span>

#include "kernels/cost.h"
#include "kernels/execution_context.h"
#include "tensor/dtype.h"
#include "tensor/matrix.h"

namespace tidemill {

inline constexpr float kMemoryEpsilon = 1e-5F;
inline constexpr size_t kMaxMemoryRows = 65536;  // of one task of a write
inline constexpr size_t kMaxMemoryKeyDim = 512;

struct MemoryShape {
  size_t hidden = 1;
  size_t key_dim = 1;  // d_mem: of W_q x and W_k y, at most kMaxMemoryKeyDim
  size_t nu = 3;       // 1 to 2 * key_dim
  bool correction = true;
  DType dtype = DType::kF32;  // of A and z: F32 or BF16

  size_t features() const { return 2 * nu * key_dim; }
  // A, then z.
  size_t elements() const { return features() * (hidden + 1); }
  size_t bytes() const { return elements() * InfoOf(dtype).block_bytes; }
  friend bool operator==(const MemoryShape&, const MemoryShape&) = default;
};

// out: [x.rows, 2 nu x.cols], apart from x.
void DpfpFeatures(ExecutionContext& ctx, ConstMatrix<float> x, size_t nu, Matrix<float> out);

struct MemoryReadTask {
  const std::byte* memory = nullptr;  // MemoryShape::bytes(): A, then z
  ConstMatrix<float> f;               // [rows, features]
  Matrix<float> x;                    // [rows, hidden]: read and written
};
void MemoryRead(ExecutionContext& ctx, const MemoryShape& shape, std::span<const MemoryReadTask> tasks);

struct MemoryWriteTask {
  const std::byte* memory = nullptr;  // the old one; null: of the first segment
  std::byte* out = nullptr;           // the new one; may be `memory`
  ConstMatrix<float> k;               // [rows, features]
  ConstMatrix<float> b;               // [rows, 1]
  Matrix<float> v;                    // [rows, hidden]: becomes u
};
// Precondition: a task has at most kMaxMemoryRows rows. Tasks that have more in all are several loops.
void MemoryWrite(ExecutionContext& ctx, const MemoryShape& shape, std::span<const MemoryWriteTask> tasks);

// Whether all of it is finite.
bool IsFinite(const MemoryShape& shape, const std::byte* memory);

// A and z are read once, x read and written, f read.
Cost MemoryReadCost(const MemoryShape& shape, size_t rows);
// A and z are read and written once; k, v and b read.
Cost MemoryWriteCost(const MemoryShape& shape, size_t rows);

// The sum of `features` products; the divisor's, of positive terms by sixteens, its tree and e; the quotient, and the reference's rounding.
constexpr double MemoryReadTolerance(size_t features) {
  return (17.0 / 16 * static_cast<double>(features) + 16) * 0x1p-24;
}
// The same for u and gamma, sigmoid's 4 roundings, and the sum over rows.
constexpr double MemoryWriteTolerance(size_t features, size_t rows) {
  return (18.0 / 16 * static_cast<double>(features) + static_cast<double>(rows) + 32) * 0x1p-24;
}

namespace reference {
// In double, plain order. `memory` and `out`: [elements()].
void DpfpFeatures(ConstMatrix<float> x, size_t nu, Matrix<float> out);
void MemoryRead(const MemoryShape& shape, const double* memory, ConstMatrix<float> f, Matrix<float> x);
void MemoryWrite(const MemoryShape& shape, const double* memory, ConstMatrix<float> k, ConstMatrix<float> b,
                 ConstMatrix<float> v, double* out);  // memory null: the first segment
}  // namespace reference

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_ASSOCIATIVE_MEMORY_H_
