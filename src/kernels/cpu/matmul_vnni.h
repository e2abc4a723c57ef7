// Quantised matrix kernels with AVX-512 VNNI byte dot products. Only for CPUs of level avx512-vnni and above.
#ifndef TIDEMILL_KERNELS_CPU_MATMUL_VNNI_H_
#define TIDEMILL_KERNELS_CPU_MATMUL_VNNI_H_

#include "kernels/cpu/matmul_kernel.h"
#include "kernels/strip_layout.h"

namespace tidemill::vnni {

MatMulKernel PickMatMul(StripType type);

// Byte dot products on registers only; returns operations done (kernels/machine_peak.h).
double DotPeak(size_t iterations);

}  // namespace tidemill::vnni

#endif  // TIDEMILL_KERNELS_CPU_MATMUL_VNNI_H_
