// The gate of a SwiGLU feed-forward layer.
//   y[t, i] = silu(gate[t, i]) * up[t, i],  silu(x) = x / (1 + exp(-x))              arXiv:2002.05202
//   gate, up, y : [tokens, ffn] f32; y may be gate or up itself, no other overlap
// Bits:  exp as in cpu/vector_math-inl.h; one addition, one division, one product.
// Error: |y - reference| <= kSwiGluTolerance * |reference| + 2^-121 |up| + 2^-149      (exp: 2 ulp; it overflows below gate = -88.73, where
//        silu is -88.73 / 2^128 and becomes 0)
// Cost:  SwiGluCost(tokens, ffn).
// Threads: splits elements over ctx. Allocates nothing.
#ifndef TIDEMILL_KERNELS_SWIGLU_H_
#define TIDEMILL_KERNELS_SWIGLU_H_

#include <cstddef>

#include "kernels/cost.h"
#include "kernels/execution_context.h"
#include "tensor/matrix.h"

namespace tidemill {

void SwiGlu(ExecutionContext& ctx, ConstMatrix<float> gate, ConstMatrix<float> up, Matrix<float> y);

inline constexpr double kSwiGluTolerance = 8 * 0x1p-24;

constexpr Cost SwiGluCost(size_t tokens, size_t ffn) {
  const double elements = static_cast<double>(tokens) * static_cast<double>(ffn);
  return {.bytes = 12 * elements, .flops = 24 * elements, .int8_ops = 0};
}

namespace reference {
void SwiGlu(ConstMatrix<float> gate, ConstMatrix<float> up, Matrix<float> y);
}  // namespace reference

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_SWIGLU_H_
