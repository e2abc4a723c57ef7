// What this machine can do at most: the loops by which a benchmark measures the limits that it holds its figures against.
//
// Each limit has two loops of different shapes. Each finds out where the compiler or the CPU serves the other badly: a sum kept in memory,
// too few chains for an instruction's latency, an access pattern that a prefetcher misses. All of them run on one thread.
#ifndef TIDEMILL_KERNELS_MACHINE_PEAK_H_
#define TIDEMILL_KERNELS_MACHINE_PEAK_H_

#include <cstddef>

namespace tidemill {

enum class Isa;  // base/isa.h, whose inline functions a file that is compiled for one level must not have

enum class PeakShape { kFirst, kSecond };

struct PeakRun {
  double operations = 0;  // a multiplication and an addition count two
  // Of the one kind that the loop consists of: a CPU completes a whole number of them in a cycle, or one in a whole number of cycles.
  // 0 for a loop of several kinds, which share the CPU's ports in whatever ratio.
  double instructions = 0;
  // Depends on every round, so that compilers leave none out; 0 of loops in assembly, which they keep.
  double result = 0;
};

// `iterations` rounds on registers, in independent chains. Float: the level's f32 multiply-adds; the second shape has another
// number of chains, which go through both operands.
PeakRun RunFloatPeak(Isa isa, PeakShape shape, size_t iterations);
// The level's products of bytes, as its matrix kernels multiply them at best: 8-bit dot products with VNNI; with AVX2 8-bit products that
// are summed in 16 bits over a block, as of 4-bit weights; below and on arm64 16-bit products.
PeakRun RunInt8Peak(Isa isa, PeakShape shape, size_t iterations);

// Products of BF16, where the level has them (FormFor).
PeakRun RunBFloat16Peak(Isa isa, PeakShape shape, size_t iterations);

// Additions that wait for each other; returns their number, which is that of the cycles it takes.
double RunClock(size_t iterations);

// The sum of `words` 64-bit words from memory, but for a few. First shape: as two streams side by side, without the last ones. Second: from
// both ends to the middle, without those there.
unsigned long long ReadMemory(Isa isa, PeakShape shape, const unsigned long long* data, size_t words);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_MACHINE_PEAK_H_
