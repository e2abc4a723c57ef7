// A causal convolution of each channel by itself over a row and those before it, then silu.
//   y[t, c] = silu(sum_{i < width} w[i, c] * x_{t - width + 1 + i}[c])
//   inputs : [rows * width] pointers to [channels] f32 each: for row t its predecessors, oldest first, and its own input last; null: there is
//   none, since the sequence begins later, and it counts as zeros.      w : [width, channels]      y : [rows, channels], no overlap
// Bits:  acc = 0; for i ascending, null ones skipped: acc = MulAdd(w[i, c], x[c], acc); then silu as in kernels/activation.h. The same on
//        every level with fused multiply-add.
// Error: |y - exact| <= ShortConvolutionTolerance(width, sum_i |w x|).
// Cost:  ShortConvolutionCost(rows, width, channels).
// Threads: splits rows and channels over ctx. Allocates nothing.
#ifndef TIDEMILL_KERNELS_SHORT_CONVOLUTION_H_
#define TIDEMILL_KERNELS_SHORT_CONVOLUTION_H_

#include <cstddef>
#include <span>

#include "kernels/cost.h"
#include "kernels/execution_context.h"
#include "tensor/matrix.h"

namespace tidemill {

void ShortConvolution(ExecutionContext& ctx, std::span<const float* const> inputs, ConstMatrix<float> w,
                      Matrix<float> y);

// Each product and each of `width` sums rounds by u = 2^-24 of the terms so far at most, and silu's slope is 1.1 at most; silu itself takes 8 u of
// |y|, which is at most that sum, and 2^-121 (kernels/activation.h). What is left is for the second order, and for products below 2^-126.
constexpr double ShortConvolutionTolerance(size_t width, double sum) {
  return (1.1 * (static_cast<double>(width) + 1) + 8.5) * 0x1p-24 * sum + 0x1p-120;
}

// Each input once, though `width` rows read it; a silu as in kernels/activation.h, without the gate's product.
constexpr Cost ShortConvolutionCost(size_t rows, size_t width, size_t channels) {
  const double elements = static_cast<double>(rows) * static_cast<double>(channels);
  const double taps = static_cast<double>(width);
  return {.bytes = 8 * elements + 4 * taps * static_cast<double>(channels),
          .flops = (2 * taps + 20) * elements,
          .int8_ops = 0};
}

namespace reference {
void ShortConvolution(std::span<const float* const> inputs, ConstMatrix<float> w, Matrix<float> y);
}  // namespace reference

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_SHORT_CONVOLUTION_H_
