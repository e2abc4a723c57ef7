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
// Cost:  bytes moved: 4 a filled element, 12 an added one, 8 a scaled or capped one; FillRowsCost and so on.
// Threads: splits elements over ctx. Allocates nothing.
#ifndef TIDEMILL_KERNELS_ELEMENTWISE_H_
#define TIDEMILL_KERNELS_ELEMENTWISE_H_

#include <cstddef>
#include <span>

#include "kernels/cost.h"
#include "kernels/execution_context.h"
#include "tensor/matrix.h"

namespace tidemill {

void FillRows(ExecutionContext& ctx, std::span<const float> v, Matrix<float> y);
void AddRows(ExecutionContext& ctx, ConstMatrix<float> x, Matrix<float> y);
void ScaleRows(ExecutionContext& ctx, float s, Matrix<float> x);
void SoftCap(ExecutionContext& ctx, float cap, Matrix<float> x);

inline constexpr double kSoftCapTolerance = 6 * 0x1p-24;

constexpr Cost FillRowsCost(size_t tokens, size_t cols) {
  return {.bytes = 4 * (static_cast<double>(tokens) + 1) * static_cast<double>(cols), .flops = 0, .int8_ops = 0};
}
constexpr Cost AddRowsCost(size_t tokens, size_t cols) {
  const double elements = static_cast<double>(tokens) * static_cast<double>(cols);
  return {.bytes = 12 * elements, .flops = elements, .int8_ops = 0};
}
constexpr Cost ScaleRowsCost(size_t tokens, size_t cols) {
  const double elements = static_cast<double>(tokens) * static_cast<double>(cols);
  return {.bytes = 8 * elements, .flops = elements, .int8_ops = 0};
}
constexpr Cost SoftCapCost(size_t tokens, size_t cols) {
  const double elements = static_cast<double>(tokens) * static_cast<double>(cols);
  return {.bytes = 8 * elements, .flops = 38 * elements, .int8_ops = 0};
}

namespace reference {
void FillRows(std::span<const float> v, Matrix<float> y);
void AddRows(ConstMatrix<float> x, Matrix<float> y);
void ScaleRows(float s, Matrix<float> x);
void SoftCap(float cap, Matrix<float> x);
}  // namespace reference

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_ELEMENTWISE_H_
