// Quantised matrix kernels with AVX-512 VNNI byte dot products. Only for CPUs of level avx512-vnni and above.
#ifndef TIDEMILL_KERNELS_CPU_MATMUL_VNNI_H_
#define TIDEMILL_KERNELS_CPU_MATMUL_VNNI_H_

#include "kernels/cpu/matmul_kernel.h"
#include "kernels/machine_peak.h"
#include "kernels/panel_layout.h"

namespace tidemill::vnni {

MatMulKernel PickMatMul(PanelType type);

PeakRun DotPeak(PeakShape shape, size_t iterations);  // byte dot products on registers (kernels/machine_peak.h)

}  // namespace tidemill::vnni

#endif  // TIDEMILL_KERNELS_CPU_MATMUL_VNNI_H_
