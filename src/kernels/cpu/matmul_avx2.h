// Quantised matrix kernels for AVX2 with FMA and F16C. Only for CPUs of level avx2 and above.
#ifndef TIDEMILL_KERNELS_CPU_MATMUL_AVX2_H_
#define TIDEMILL_KERNELS_CPU_MATMUL_AVX2_H_

#include "kernels/cpu/matmul_kernel.h"
#include "kernels/machine_peak.h"
#include "kernels/panel_layout.h"

namespace tidemill::avx2 {

MatMulKernel PickMatMul(PanelType type);

// Products of bytes on registers, summed as those of a block of 4-bit weights are (kernels/machine_peak.h): the fewest instructions that
// any type takes for a product. 8-bit weights, widened to 16 bits, take twice as many.
PeakRun DotPeak(PeakShape shape, size_t iterations);

}  // namespace tidemill::avx2

#endif  // TIDEMILL_KERNELS_CPU_MATMUL_AVX2_H_
