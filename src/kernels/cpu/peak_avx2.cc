// The most products of bytes that AVX2 makes in a second: a loop on registers (kernels/machine_peak.h).
#include <immintrin.h>

#include "kernels/cpu/matmul_avx2.h"

namespace tidemill::avx2 {
namespace {

// Keeps a sum where it is: compilers reassociate integer additions, and then spill.
[[gnu::always_inline]] inline void Keep(__m256i& sum) { __asm__("" : "+x"(sum)); }

// kChains blocks of eight groups each round; kSideBySide: group by group of all blocks, else block by block.
template <size_t kChains, bool kSideBySide>
PeakRun BlocksPeak(size_t iterations) {
  const __m256i bytes = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
  const auto product = [bytes]() __attribute__((always_inline)) {
    __m256i words;
    __asm__ volatile("vpmaddubsw %1, %1, %0" : "=x"(words) : "x"(bytes));  // else compilers take one for all
    return words;
  };
  __m256i dot[kChains], sum[kChains];
  for (size_t c = 0; c < kChains; ++c) dot[c] = bytes;
  const auto add_group = [&](size_t g, size_t c) __attribute__((always_inline)) {
    sum[c] = g == 0 ? product() : _mm256_add_epi16(sum[c], product());
    Keep(sum[c]);
    if (g < 7) return;
    dot[c] = _mm256_add_epi32(dot[c], _mm256_madd_epi16(sum[c], ones));
    Keep(dot[c]);
  };
  for (size_t i = 0; i < iterations; ++i) {
    if constexpr (kSideBySide) {
#pragma GCC unroll 8
      for (size_t g = 0; g < 8; ++g) {
#pragma GCC unroll 6
        for (size_t c = 0; c < kChains; ++c) add_group(g, c);
      }
    } else {
#pragma GCC unroll 6
      for (size_t c = 0; c < kChains; ++c) {
#pragma GCC unroll 8
        for (size_t g = 0; g < 8; ++g) add_group(g, c);
      }
    }
  }
  for (size_t c = 1; c < kChains; ++c) dot[0] = _mm256_add_epi32(dot[0], dot[c]);
  constexpr double kOperations = 2 * 32 * 8;
  return {kOperations * static_cast<double>(kChains * iterations), 0,
          static_cast<double>(_mm256_cvtsi256_si32(dot[0]))};
}

}  // namespace

PeakRun DotPeak(PeakShape shape, size_t iterations) {
  return shape == PeakShape::kFirst ? BlocksPeak<5, true>(iterations) : BlocksPeak<6, false>(iterations);
}

}  // namespace tidemill::avx2
