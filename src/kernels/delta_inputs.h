// What the delta rule reads (kernels/delta_rule.h), made from the results of projections and a convolution.
//   L2NormHeads:  x[h] = x[h] * scale / sqrt(sum_j x[h, j]^2 + 1e-6) in place on x : [tokens, heads * head_dim], each head by itself
//   DeltaGates:   beta[t, h] = 1 / (1 + exp(-b[t, h]));   g[t, h] = max(decay[h] * softplus(a[t, h] + dt_bias[h]), kMinDecay)
//     b, a, beta, g : [tokens, heads] f32; beta may be b and g may be a; decay, dt_bias : [heads], decay < 0
// Bits:  L2NormHeads: s[i % 16] = MulAdd(x[i], x[i], s[i % 16]) in ascending i, added by the fixed tree; x * (scale / sqrt(s + 1e-6)).
//        DeltaGates: beta as Activate(kSigmoid). The sum; softplus(x) = max(x, 0) + log1p(exp(-|x|)), exp and log1p as in
//        cpu/vector_math-inl.h; one product. NaN stays NaN.
// Error: L2NormHeads: |x - reference| <= L2NormHeadsTolerance(head_dim) * |reference| + 2^-149, where the sum of squares does not overflow.
//        DeltaGates: beta as Activate(kSigmoid); |g - reference| <= DecayGateTolerance(a + dt_bias, softplus of it, decay).
// Threads: splits rows over ctx. Allocates nothing.
#ifndef TIDEMILL_KERNELS_DELTA_INPUTS_H_
#define TIDEMILL_KERNELS_DELTA_INPUTS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "kernels/execution_context.h"
#include "tensor/matrix.h"

namespace tidemill {

inline constexpr float kMinDecay = -104;  // exp of less is 0

void L2NormHeads(ExecutionContext& ctx, Matrix<float> x, size_t head_dim, float scale);
void DeltaGates(ExecutionContext& ctx, ConstMatrix<float> b, ConstMatrix<float> a, std::span<const float> decay,
                std::span<const float> dt_bias, Matrix<float> beta, Matrix<float> g);

// The sum, of positive terms: a product, head_dim / 16 + 1 additions, 4 in the tree, 1e-6 and its own rounding; half of it in the root; then the
// root, the quotient, the product and the reference's rounding.
constexpr double L2NormHeadsTolerance(size_t head_dim) { return (static_cast<double>(head_dim) / 32 + 9) * 0x1p-24; }

// The rounding of the sum x, which softplus, whose slope is below 1 and below itself, hands on; then exp and log1p 2.5 u each, the sum, the
// product and the reference 1 u each. An exp or a product below 2^-126: 2^-149.
inline double DecayGateTolerance(double x, double softplus, double decay) {
  constexpr double u = 0x1p-24;
  return (9 * softplus + std::fabs(x) * std::min(1.0, softplus)) * u * std::fabs(decay) +
         (std::fabs(decay) + 1) * 0x1p-149;
}

namespace reference {
void L2NormHeads(Matrix<float> x, size_t head_dim, float scale);
void DeltaGates(ConstMatrix<float> b, ConstMatrix<float> a, std::span<const float> decay,
                std::span<const float> dt_bias, Matrix<float> beta, Matrix<float> g);
}  // namespace reference

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_DELTA_INPUTS_H_
