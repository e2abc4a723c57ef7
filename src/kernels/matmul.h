// The matrix operation: a group of independent products  y[r, n] = sum_k x[r, k] * w[n, k]  (y = x W^T), run as one.
//
//   x : [rows, cols] activations, as f32 or quantised (kernels/activations.h), whichever the weight wants
//   w : [n, cols] WeightMatrix, packed or mapped          y : [rows, n] f32; no overlap with x or with another task's y
//
// Bits of one output, whatever the kernel, the number of rows, the group or the threads:
//   F32, F16, BF16:  acc = 0;  for k ascending: acc = MulAdd(w[n, k] as f32, x[r, k], acc)
//   BF16 at avx512-bf16: acc = 0;  for pairs (k, k + 1) ascending: acc = MulAdd(w[k + 1], x[k + 1], acc), then the same for k, with
//                    x rounded to BF16; subnormal weights, activations and sums count as zeros
//   quantised:       acc = 0;  for blocks b of 32 ascending:
//                      s = sum of (q_w - offset) * q_x, exact integers    offset: Q4_0 8, Q5_0 16, Q6_K 32, others 0
//                      Q6_K: s = sc0 * s0 + sc1 * s1, those of the two halves of the block; |s| < 2^24
//                      acc = MulAdd(float(s), d_w * d_x, acc)              the product of scales rounded first
//                      Q4_1, Q5_1, Q4_K, Q5_K: acc = MulAdd(m_w, sum_x, acc)           sum_x = d_x * (sum of q_x)
//                    d_w = d, m_w = m;  Q4_K, Q5_K: d_w = d * sc, m_w = -(dmin * m), both exact
//   then y = acc, or y = y + acc when accumulating.
// MulAdd rounds once on every level with FMA and twice on the baseline: two numeric classes; BF16's own products are a third.
//
// Error: |y - exact| <= MatMulTolerance(cols) * sum_k |x| (|w| + 2 |m|), m that of the weight's block where its type has one, since d q
//        and m are added apart and may cancel; besides the rounding of activations to int8 or BF16.
// Cost:  MatMulCost.
// Threads: splits panels of w over ctx. Allocates nothing. Shapes were validated when the layer was bound.
#ifndef TIDEMILL_KERNELS_MATMUL_H_
#define TIDEMILL_KERNELS_MATMUL_H_

#include <cstddef>
#include <span>

#include "kernels/activations.h"
#include "kernels/cost.h"
#include "kernels/execution_context.h"
#include "kernels/weight_matrix.h"
#include "tensor/matrix.h"

namespace tidemill {

struct MatMulTask {
  const WeightMatrix* weight = nullptr;
  // [rows, cols] in the form that FormFor gives for the weight; kernels do not read the other two.
  ConstMatrix<float> x;
  QuantizedRows quantized = {};
  ConstMatrix<uint16_t> bfloat16 = {};
  Matrix<float> y;
  bool accumulate = false;
};

inline constexpr size_t kMaxMatMulTasks = 1024;  // of one call

// All tasks as one loop over ctx, whose scratch holds MatMulScratchBytes of each weight. Allocates nothing.
void MatMul(ExecutionContext& ctx, std::span<const MatMulTask> tasks);

// Scratch a thread needs to run MatMul with this weight.
size_t MatMulScratchBytes(const WeightMatrix& weight);

Cost MatMulCost(const WeightMatrix& weight, size_t rows, Isa isa);

// A chain of `cols` MulAdds, each rounding at most twice: gamma_2n of Higham, "Accuracy and Stability of Numerical Algorithms", 3.1.
constexpr double MatMulTolerance(size_t cols) { return 2.0 * static_cast<double>(cols) * 0x1p-24 * 1.01; }

namespace reference {
// Plain loops over WeightMatrix::CopyRow with f64 sums; quantised weights times the dequantised int8 activations.
void MatMul(std::span<const MatMulTask> tasks);
}  // namespace reference

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_MATMUL_H_
