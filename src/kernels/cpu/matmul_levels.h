// The matrix kernels that Highway compiles for every level.
#ifndef TIDEMILL_KERNELS_CPU_MATMUL_LEVELS_H_
#define TIDEMILL_KERNELS_CPU_MATMUL_LEVELS_H_

#include "base/isa.h"
#include "kernels/cpu/matmul_kernel.h"
#include "kernels/strip_layout.h"
#include "tensor/dtype.h"

namespace tidemill {

// Never null. The quantised ones read MatMulStrips::pairs instead of q; levels with kernels of their own do without them.
MatMulKernel PickFloatMatMul(DType dtype, Isa isa);
MatMulKernel PickInt16MatMul(StripType type, Isa isa);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_MATMUL_LEVELS_H_
