// The matrix kernels that are written once for several levels, with Highway.
#ifndef TIDEMILL_KERNELS_CPU_MATMUL_LEVELS_H_
#define TIDEMILL_KERNELS_CPU_MATMUL_LEVELS_H_

#include "base/isa.h"
#include "kernels/cpu/matmul_kernel.h"
#include "kernels/panel_layout.h"
#include "tensor/dtype.h"

namespace tidemill {

// Never null.
MatMulKernel PickFloatMatMul(DType dtype, Isa isa);
// For the baseline and arm64; reads MatMulPanels::pairs instead of q.
MatMulKernel PickInt16MatMul(PanelType type);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_MATMUL_LEVELS_H_
