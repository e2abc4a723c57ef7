// One block of a Q8_0 panel times the rows of a tile, from biased blocks. Products are summed by f32 additions or, the same bits, by those of
// integers: included by matmul_avx2.cc alone.
//
// The bits of an integer from 0 to 2^24, read as an f32, are a subnormal number or one of the smallest exponent. Both stand 2^-149 apart,
// so the f32 addition of two of them is the exact addition of the integers while the sum is below 2^24. So that no term is negative, words
// stay as they are stored, w + 128, and activations are a + 128 (kernels/biased_block.h):
//   S = sum of (w + 128) (a + 128) <= 32 * 255^2 = 2,080,800
//   t = the bits of S + the row's `rest`, as f32 1.5 * 2^23 + S - 128 * (sum of a): within [2^23, 2^24), where integers are one step apart
//   s = t - (1.5 * 2^23 + 128 * (sum of (w + 128))): both below 2^24, exact; what follows is as in kernels/matmul.h
// For f32 additions threads have to keep subnormal numbers, as those of a step do (base/float_environment.h).
//
// Won: 512 rows 1.15 and 1.16 times as fast as words on a Zen 4, whose f32 additions have ports of their own, 50 % of the peak; a prefill of 128 1.19 on a
// Zen 3, by integer additions from the same blocks. Two products of a row come before their additions, hence the assembly: 64 instead of 76 cycles.
// Lost: an Emerald Rapids (1.06), S. Winograd's pairs, operands from memory, 16 tiles. All numbers: benchmarks/results/kernel_matmul.md.
#ifndef TIDEMILL_KERNELS_CPU_BIASED_BLOCK_AVX2_INL_H_
#define TIDEMILL_KERNELS_CPU_BIASED_BLOCK_AVX2_INL_H_

#include <immintrin.h>

#include "kernels/biased_block.h"
#include "kernels/cpu/block_avx2-inl.h"
#include "kernels/cpu/matmul_kernel.h"

namespace tidemill::avx2 {
namespace {

// R rows from the block that is being multiplied on. They may begin anywhere in a tile.
template <size_t R>
struct BiasedRows {
  const unsigned char* at;    // a tile's block, in which the first row is
  const unsigned char* next;  // the block of the tile that the next rows end in
  size_t from[R];             // bytes to each row
};

template <size_t R>
inline BiasedRows<R> BiasedRowsFrom(const MatMulPanels& args, size_t row, size_t b) {
  const size_t blocks = args.cols / 32;
  const size_t first = args.biased_row + row;
  const auto* tile = args.biased + (first / kBiasedTileRows * blocks + b) * kBiasedTileRows;
  BiasedRows<R> rows;
  rows.at = reinterpret_cast<const unsigned char*>(tile);
  for (size_t r = 0; r < R; ++r) rows.from[r] = BiasedIndex(first % kBiasedTileRows + r, blocks) * sizeof(BiasedBlock);
  const size_t next = (first + 2 * R - 1) / kBiasedTileRows - first / kBiasedTileRows;
  rows.next = rows.at + next * blocks * kBiasedTileRows * sizeof(BiasedBlock);
  return rows;
}
template <size_t R>
[[gnu::always_inline]] inline void Advance(BiasedRows<R>& rows) {
  rows.at += kBiasedTileRows * sizeof(BiasedBlock);
  rows.next += kBiasedTileRows * sizeof(BiasedBlock);
}

// A block's words as they are stored, w + 128; then f32 d_w[16] and 1.5 * 2^23 + 128 * sum (w + 128) [16], exact below 2^24.
[[gnu::always_inline]] inline void UnpackBiased(const unsigned char* block, BlockScales scales, unsigned char* to) {
  constexpr PanelType type = PanelType::kQ8_0;
  auto* floats = reinterpret_cast<float*>(to + kUnpackedQuants<type>);
#pragma GCC unroll 2
  for (size_t h = 0; h < 2; ++h) {
    __m256i sum = _mm256_setzero_si256();  // 16 * 255 at most
#pragma GCC unroll 8
    for (size_t g = 0; g < 8; ++g) {
      const Words words = LoadWords<false>(block, g, h);
      auto* at = reinterpret_cast<__m256i*>(to + g * 128 + h * 64);
      _mm256_store_si256(at, words.even);
      _mm256_store_si256(at + 1, words.odd);
      sum = _mm256_add_epi16(sum, _mm256_add_epi16(words.even, words.odd));
    }
    const __m256i sums = _mm256_madd_epi16(sum, _mm256_set1_epi16(kBias));
    const __m256i rest = _mm256_add_epi32(sums, _mm256_set1_epi32(kBiasedRest));
    _mm256_store_ps(floats + h * 8, HalfScalesOf<type>(scales, h).d);
    _mm256_store_ps(floats + 16 + h * 8, _mm256_castsi256_ps(rest));
  }
}

// sum[h] = (first) or += products of a column pair of one row, 4 bytes at a, with both halves' words.
template <bool first, bool float_sums>
[[gnu::always_inline]] inline void AddPair(const unsigned char* a, __m256i w0, __m256i w1, __m256& sum0, __m256& sum1) {
  struct [[gnu::may_alias]] Pair {
    int32_t both;
  };
  const auto& pair = *reinterpret_cast<const Pair*>(a);
  __m256i x, y;
  if constexpr (first) {
    __asm__(
        "vpbroadcastd %[pair], %[x]\n\t"
        "vpmaddwd %[w0], %[x], %[sum0]\n\t"
        "vpmaddwd %[w1], %[x], %[sum1]"
        : [sum0] "=&x"(sum0), [sum1] "=&x"(sum1), [x] "=&x"(x)
        : [w0] "x"(w0), [w1] "x"(w1), [pair] "m"(pair));
  } else if constexpr (!float_sums) {
    __asm__(
        "vpbroadcastd %[pair], %[x]\n\t"
        "vpmaddwd %[w0], %[x], %[y]\n\t"
        "vpmaddwd %[w1], %[x], %[x]\n\t"
        "vpaddd %[y], %[sum0], %[sum0]\n\t"
        "vpaddd %[x], %[sum1], %[sum1]"
        : [sum0] "+x"(sum0), [sum1] "+x"(sum1), [x] "=&x"(x), [y] "=&x"(y)
        : [w0] "x"(w0), [w1] "x"(w1), [pair] "m"(pair));
  } else {
    __asm__(
        "vpbroadcastd %[pair], %[x]\n\t"
        "vpmaddwd %[w0], %[x], %[y]\n\t"
        "vpmaddwd %[w1], %[x], %[x]\n\t"
        "vaddps %[y], %[sum0], %[sum0]\n\t"
        "vaddps %[x], %[sum1], %[sum1]"
        : [sum0] "+x"(sum0), [sum1] "+x"(sum1), [x] "=&x"(x), [y] "=&x"(y)
        : [w0] "x"(w0), [w1] "x"(w1), [pair] "m"(pair));
  }
}

// acc [R][16] f32 += one unpacked block of a panel times R rows
template <bool float_sums, size_t R>
[[gnu::always_inline]] inline void AddBiased(const unsigned char* block, const BiasedRows<R>& rows, float* acc) {
  constexpr PanelType type = PanelType::kQ8_0;
  __m256 sum[2][R];
#pragma GCC unroll 16
  for (size_t j = 0; j < 16; ++j) {
    const unsigned char* at = block + j / 2 * 128 + j % 2 * 32;
    const __m256i w0 = Load(at), w1 = Load(at + 64);
#pragma GCC unroll 4
    for (size_t r = 0; r < R; ++r) {
      if (j == 0) {
        AddPair<true, float_sums>(rows.at + rows.from[r], w0, w1, sum[0][r], sum[1][r]);
      } else {
        AddPair<false, float_sums>(rows.at + rows.from[r] + j * 4, w0, w1, sum[0][r], sum[1][r]);
      }
    }
  }
#pragma GCC unroll 5
  for (size_t line = 0; line < kBiasedTileRows * sizeof(BiasedBlock); line += 64)
    __builtin_prefetch(rows.next + line, 0, kIntoL1);
  const auto* floats = reinterpret_cast<const float*>(block + kUnpackedQuants<type>);
  __m256 d_w[2], rest[2];
#pragma GCC unroll 2
  for (size_t h = 0; h < 2; ++h) {
    d_w[h] = _mm256_load_ps(floats + h * 8);
    rest[h] = _mm256_load_ps(floats + 16 + h * 8);
    __asm__("" : "+x"(d_w[h]), "+x"(rest[h]));
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < R; ++r) {
    const unsigned char* end = rows.at + rows.from[r] + offsetof(BiasedBlock, d);
    const __m256 d = _mm256_broadcast_ss(reinterpret_cast<const float*>(end));
    const __m256i row_rest = Broadcast4(end + 4);
#pragma GCC unroll 2
    for (size_t h = 0; h < 2; ++h) {
      float* to = acc + r * 16 + h * 8;
      const __m256 t = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(sum[h][r]), row_rest));
      const __m256 s = _mm256_sub_ps(t, rest[h]);
      _mm256_store_ps(to, _mm256_fmadd_ps(s, _mm256_mul_ps(d_w[h], d), _mm256_load_ps(to)));
    }
  }
}

}  // namespace
}  // namespace tidemill::avx2

#endif  // TIDEMILL_KERNELS_CPU_BIASED_BLOCK_AVX2_INL_H_
