// Quantised matrix kernels for AVX2 with FMA and F16C. Only for CPUs of level avx2 and above.
#ifndef TIDEMILL_KERNELS_CPU_MATMUL_AVX2_H_
#define TIDEMILL_KERNELS_CPU_MATMUL_AVX2_H_

#include "kernels/cpu/matmul_kernel.h"
#include "kernels/strip_layout.h"

namespace tidemill::avx2 {

MatMulKernel PickMatMul(StripType type);

}  // namespace tidemill::avx2

#endif  // TIDEMILL_KERNELS_CPU_MATMUL_AVX2_H_
