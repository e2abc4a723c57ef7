// What this machine can do at most: the limits that a benchmark measures itself against.
#ifndef TIDEMILL_KERNELS_MACHINE_PEAK_H_
#define TIDEMILL_KERNELS_MACHINE_PEAK_H_

#include <cstddef>

#include "base/isa.h"
#include "kernels/execution_context.h"

namespace tidemill {

// Runs `iterations` rounds of the level's f32 multiply-add (or of its integer dot product) on registers, in independent chains;
// returns the number of operations done, a multiplication and an addition counting two. The result depends on every round.
double RunFloatPeak(Isa isa, size_t iterations);
double RunInt8Peak(Isa isa, size_t iterations);

// The sum of `words` 64-bit words from memory, read as four streams at once; at most four vectors at the end are left out.
unsigned long long ReadMemory(Isa isa, const unsigned long long* data, size_t words);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_MACHINE_PEAK_H_
