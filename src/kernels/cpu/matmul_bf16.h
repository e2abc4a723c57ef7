// BF16 matrix kernels with AVX-512's own BF16 dot products. Only for CPUs of level avx512-bf16.
#ifndef TIDEMILL_KERNELS_CPU_MATMUL_BF16_H_
#define TIDEMILL_KERNELS_CPU_MATMUL_BF16_H_

#include "kernels/cpu/matmul_kernel.h"
#include "kernels/machine_peak.h"

namespace tidemill::bf16 {

// MatMulPanels::bfloat16 times BF16 panels.
void MatMul(const MatMulPanels& args);

// kernels/activations.h: x [cols] to BF16, a zero behind an odd last column.
void RoundRow(const float* x, size_t cols, uint16_t* out);

// BF16 dot products on registers only (kernels/machine_peak.h).
PeakRun DotPeak(PeakShape shape, size_t iterations);

}  // namespace tidemill::bf16

#endif  // TIDEMILL_KERNELS_CPU_MATMUL_BF16_H_
