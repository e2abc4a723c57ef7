// The matrix kernels that Highway compiles for every level; the level's best kernel for a type.
#ifndef TIDEMILL_KERNELS_CPU_MATMUL_LEVELS_H_
#define TIDEMILL_KERNELS_CPU_MATMUL_LEVELS_H_

#include "base/isa.h"
#include "kernels/cpu/matmul_kernel.h"
#include "kernels/strip_layout.h"
#include "tensor/dtype.h"

namespace tidemill {

// Never null. Quantised kernels below avx512-vnni read MatMulStrips::pairs instead of q.
MatMulKernel PickFloatMatMul(DType dtype, Isa isa);
MatMulKernel PickInt16MatMul(StripType type, Isa isa);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_MATMUL_LEVELS_H_
