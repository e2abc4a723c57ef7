// The small steps between operations that touch each element once.
//   FillRows:   y[t, i] = v[i]                    a bias, which a product then accumulates on
//   AddRows:    y[t, i] = y[t, i] + x[t, i]       a residual
//   ScaleRows:  x[t, i] = s * x[t, i]             Gemma's scale of embeddings
//   SoftCap:    x[t, i] = cap * tanh(x[t, i] / cap)      arXiv:2408.00118 section 2; as in attention
//   x, y : [tokens, cols] f32, no overlap      v : [cols] f32      cap > 0, finite
// Bits:  one rounding for AddRows and ScaleRows, the same on every level; SoftCap: one division, tanh as in cpu/vector_math-inl.h, one
//        product. NaN stays NaN.
// Error: SoftCap: |y - exact| <= kSoftCapTolerance * |exact| + cap 2^-148 (x / cap: 1 rounding, which tanh does not enlarge; tanh: 2 ulp;
//        the product: 1). |y| <= cap.
// Threads: splits elements over ctx. Allocates nothing.
#ifndef TIDEMILL_KERNELS_ELEMENTWISE_H_
#define TIDEMILL_KERNELS_ELEMENTWISE_H_

#include <cstddef>
#include <span>

#include "kernels/execution_context.h"
#include "tensor/matrix.h"

namespace tidemill {

void FillRows(ExecutionContext& ctx, std::span<const float> v, Matrix<float> y);
void AddRows(ExecutionContext& ctx, ConstMatrix<float> x, Matrix<float> y);
void ScaleRows(ExecutionContext& ctx, float s, Matrix<float> x);
void SoftCap(ExecutionContext& ctx, float cap, Matrix<float> x);

inline constexpr double kSoftCapTolerance = 6 * 0x1p-24;

namespace reference {
void FillRows(std::span<const float> v, Matrix<float> y);
void AddRows(ConstMatrix<float> x, Matrix<float> y);
void ScaleRows(float s, Matrix<float> x);
void SoftCap(float cap, Matrix<float> x);
}  // namespace reference

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_ELEMENTWISE_H_
