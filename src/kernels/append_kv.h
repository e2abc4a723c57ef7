// Stores rows of keys or values in a cache, rounding f32 to the cache's type (nearest, ties to even).
//   x : [len, kv_heads * head_dim] f32
//   out : row t of head h starts at (h * head_stride + t * head_dim) elements
// Bits: one rounding per element, the same on every level. Threads: splits rows over ctx. Allocates nothing.
#ifndef TIDEMILL_KERNELS_APPEND_KV_H_
#define TIDEMILL_KERNELS_APPEND_KV_H_

#include <cstddef>

#include "kernels/execution_context.h"
#include "tensor/dtype.h"
#include "tensor/matrix.h"

namespace tidemill {

// dtype: F32, F16 or BF16.
void AppendKv(ExecutionContext& ctx, ConstMatrix<float> x, size_t head_dim, DType dtype, size_t head_stride,
              std::byte* out);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_APPEND_KV_H_
