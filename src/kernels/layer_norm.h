// Layer normalisation of each row.
//   y[t, i] = (x[t, i] - m) / sqrt(v + eps) * w[i] + b[i],  m = mean_j x[t, j],  v = mean_j (x[t, j] - m)^2      arXiv:1607.06450
//   x, y : [tokens, hidden] f32; y may be x itself, no other overlap      w, b : [hidden] f32      eps > 0
// Bits:  s[i % 16] += x[i] in ascending i, added by the fixed tree, m = s / hidden; then, in a second pass, d = x[i] - m,
//        q[i % 16] = MulAdd(d, d, q[i % 16]), added by the fixed tree; r = 1 / sqrt(q / hidden + eps); y = MulAdd(d * r, w, b).
// Error: |y - exact| <= LayerNormTolerance(...), below.
// Threads: splits rows over ctx. Allocates nothing. Shapes were validated when the layer was bound.
#ifndef TIDEMILL_KERNELS_LAYER_NORM_H_
#define TIDEMILL_KERNELS_LAYER_NORM_H_

#include <cmath>
#include <cstddef>
#include <span>

#include "kernels/execution_context.h"
#include "tensor/matrix.h"

namespace tidemill {

void LayerNorm(ExecutionContext& ctx, ConstMatrix<float> x, std::span<const float> w, std::span<const float> b,
               float eps, Matrix<float> y);

// Of one element: its exact deviation in units of the root, z = (x - m) / sqrt(v + eps); `offset` = mean |x| / sqrt(v + eps), how far
// the row lies from 0 in that unit; w; the exact y. With k = (hidden / 16 + 16) 2^-24:
//   the mean: hidden / 16 additions, 4 in the tree, 1 division, of k mean |x|; every deviation has that error, which adds its square to v;
//   the root: half of hidden / 16 + 10 roundings; with what follows hidden / 32 + 10, of |z|; the last addition: 1, of |y|.
inline double LayerNormTolerance(size_t hidden, double z, double offset, double w, double y) {
  const double k = (static_cast<double>(hidden) / 16 + 16) * 0x1p-24;
  return k * (std::fabs(w) * (std::fabs(z) + offset + k * offset * offset * std::fabs(z)) + std::fabs(y));
}

namespace reference {
void LayerNorm(ConstMatrix<float> x, std::span<const float> w, std::span<const float> b, float eps, Matrix<float> y);
}  // namespace reference

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_LAYER_NORM_H_
