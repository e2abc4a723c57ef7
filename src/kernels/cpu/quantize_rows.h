// One row of f32 to int8 blocks, as kernels/activations.h defines it, at every level.
#ifndef TIDEMILL_KERNELS_CPU_QUANTIZE_ROWS_H_
#define TIDEMILL_KERNELS_CPU_QUANTIZE_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "base/isa.h"
#include "kernels/biased_block.h"

namespace tidemill {

// x, q: [cols]; pairs: [cols] or null; d, sum: [cols / 32]; half_sums: [cols / 16]; biased: null, or the first of cols / 32 blocks,
// kBiasedTileRows apart, which want pairs, too.
using QuantizeRowKernel = void (*)(const float* x, size_t cols, int8_t* q, int16_t* pairs, float* d, float* sum,
                                   int16_t* half_sums, BiasedBlock* biased);

QuantizeRowKernel PickQuantizeRow(Isa isa);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_QUANTIZE_ROWS_H_
