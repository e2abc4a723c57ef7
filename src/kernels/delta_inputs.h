// What the delta rule reads (kernels/delta_rule.h), made from the results of projections and a convolution.
//   L2NormHeads:  x[h] = x[h] * scale / sqrt(sum_j x[h, j]^2 + 1e-6) in place on x : [tokens, heads * head_dim], each head by itself
//   DeltaGates:   beta[t, h] = 1 / (1 + exp(-b[t, h]));   g[t, h] = max(decay[h] * softplus(a[t, h] + dt_bias[h]), kLeastDecay)
//     b, a, beta, g : [tokens, heads] f32; beta may be b and g may be a; decay, dt_bias : [heads], decay < 0
// Bits:  L2NormHeads: s[i % 16] = MulAdd(x[i], x[i], s[i % 16]) in ascending i, added by the fixed tree; x * (scale / sqrt(s + 1e-6)).
//        DeltaGates: the sum; softplus(x) = max(x, 0) + log1p(exp(-|x|)); one product. NaN stays NaN.
// Threads: splits rows over ctx. Allocates nothing.
#ifndef TIDEMILL_KERNELS_DELTA_INPUTS_H_
#define TIDEMILL_KERNELS_DELTA_INPUTS_H_

#include <cstddef>
#include <span>

#include "kernels/execution_context.h"
#include "tensor/matrix.h"

namespace tidemill {

inline constexpr float kLeastDecay = -104;  // exp of less is 0

void L2NormHeads(ExecutionContext& ctx, Matrix<float> x, size_t head_dim, float scale);
void DeltaGates(ExecutionContext& ctx, ConstMatrix<float> b, ConstMatrix<float> a, std::span<const float> decay,
                std::span<const float> dt_bias, Matrix<float> beta, Matrix<float> g);

namespace reference {
void L2NormHeads(Matrix<float> x, size_t head_dim, float scale);
void DeltaGates(ConstMatrix<float> b, ConstMatrix<float> a, std::span<const float> decay,
                std::span<const float> dt_bias, Matrix<float> beta, Matrix<float> g);
}  // namespace reference

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_DELTA_INPUTS_H_
