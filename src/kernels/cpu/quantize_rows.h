// One row of f32 to int8 blocks, as kernels/activations.h defines it, at every level.
#ifndef TIDEMILL_KERNELS_CPU_QUANTIZE_ROWS_H_
#define TIDEMILL_KERNELS_CPU_QUANTIZE_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "base/isa.h"
#include "kernels/biased_block.h"

namespace tidemill {

// Where a row of `cols` goes.
struct QuantizedRow {
  int8_t* q;            // [cols]
  int16_t* pairs;       // [cols] or null
  float* d;             // [cols / 32]
  float* sum;           // [cols / 32]
  int16_t* half_sums;   // [cols / 16]
  BiasedBlock* biased;  // null, or the first of cols / 32 blocks, kBiasedTileRows apart, which want pairs, too
};

// x: [cols]
using QuantizeRowKernel = void (*)(const float* x, size_t cols, const QuantizedRow& to);

QuantizeRowKernel PickQuantizeRow(Isa isa);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_QUANTIZE_ROWS_H_
