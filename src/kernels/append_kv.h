// Stores rows of keys or values in a cache, rounding f32 to the cache's type.
//   x : [len, kv_heads * head_dim] f32
//   out : row t of head h starts at element h * head_stride + t * head_dim
//   F32, F16, BF16: each element to the nearest, ties to even
//   Q8_0: blocks of 32 elements along head_dim, of which head_dim and head_stride are multiples; a row moves whole
//     a = max_i |x[i]|;  d = f16(a / 127), to the nearest, ties to even
//     q[i] = x[i] / d, rounded to f32, kept within +-127, rounded to the nearest integer, ties to even
//     d = 0 (a up to 127 * 2^-25): all q are 0. An element is infinite or no number, or d overflows (a from 127 * 65520 on): d = NaN,
//     all q are 0, so that the whole block reads as NaN.
// Bits: each operation above rounds once, the same on every level. Threads: splits rows over ctx. Allocates nothing.
// Error: Q8_0: |d * q[i] - x[i]| <= Q8StoreError(a). d is rounded before x is divided by it, so that only the rounding of q is left.
#ifndef TIDEMILL_KERNELS_APPEND_KV_H_
#define TIDEMILL_KERNELS_APPEND_KV_H_

#include <cstddef>

#include "kernels/execution_context.h"
#include "tensor/dtype.h"
#include "tensor/matrix.h"

namespace tidemill {

// dtype: F32, F16, BF16 or Q8_0.
void AppendKv(ExecutionContext& ctx, ConstMatrix<float> x, size_t head_dim, DType dtype, size_t head_stride,
              std::byte* out);

// Half a step of d, which is up to 2^-11 above a / 127, and the rounding of x / d: 127 * 2^-24 steps. A subnormal d is off by up to 2^-25
// and an element by as much for each of its steps.
constexpr double Q8StoreError(double a) {
  return a / 254 * (1 + 0x1p-11 + 0x1p-15) + (a < 127 * 0x1p-14 ? 0x1p-18 : 0);
}

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_APPEND_KV_H_
