// Root-mean-square normalisation of each row, or of each head within it (Qwen3's and Gemma 3's q_norm and k_norm).
//   RmsNorm:       y[t, i] = w[i] * x[t, i] / sqrt(mean_j x[t, j]^2 + eps)      arXiv:1910.07467 eq. 4; eps inside the root as in LLaMA
//     x, y : [tokens, hidden] f32; y may be x itself, no other overlap      w : [hidden] f32      eps > 0
//   RmsNormHeads:  the same in place on x : [tokens, heads * head_dim], each head a row of its own      w : [head_dim], one for all heads
// Bits:  s[i % 16] = MulAdd(x[i], x[i], s[i % 16]) in ascending i, added by the fixed tree; r = 1 / sqrt(s / hidden + eps);
//        y = (x * r) * w. A head's bits are those of RmsNorm on a row of head_dim.
// Error: |y - reference| <= RmsNormTolerance(hidden) * |reference|; of a head, RmsNormTolerance(head_dim).
// Cost:  RmsNormCost(tokens, hidden); of heads, RmsNormCost(tokens * heads, head_dim).
// Threads: splits rows over ctx. Allocates nothing. Shapes were validated when the layer was bound.
#ifndef TIDEMILL_KERNELS_RMS_NORM_H_
#define TIDEMILL_KERNELS_RMS_NORM_H_

#include <cstddef>
#include <span>

#include "kernels/cost.h"
#include "kernels/execution_context.h"
#include "tensor/matrix.h"

namespace tidemill {

void RmsNorm(ExecutionContext& ctx, ConstMatrix<float> x, std::span<const float> w, float eps, Matrix<float> y);
void RmsNormHeads(ExecutionContext& ctx, Matrix<float> x, size_t head_dim, std::span<const float> w, float eps);

constexpr Cost RmsNormCost(size_t tokens, size_t hidden) {
  const double elements = static_cast<double>(tokens) * static_cast<double>(hidden);
  return {.bytes = 8 * elements + 4 * static_cast<double>(hidden), .flops = 4 * elements, .int8_ops = 0};
}

// The sum: hidden / 16 additions and 4 in the tree, each of two roundings at most; its half in the root; four more operations.
constexpr double RmsNormTolerance(size_t hidden) { return (static_cast<double>(hidden) / 16 + 16) * 0x1p-24; }

namespace reference {
void RmsNorm(ConstMatrix<float> x, std::span<const float> w, float eps, Matrix<float> y);
void RmsNormHeads(Matrix<float> x, size_t head_dim, std::span<const float> w, float eps);
}  // namespace reference

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_RMS_NORM_H_
