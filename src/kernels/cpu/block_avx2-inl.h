// One block of a panel times the rows of a tile, for every panel type: included by matmul_avx2.cc alone.
//
// A register is half a panel: eight output rows of four columns each. A tile is one panel x 4 rows of activations: eight integer
// sums in registers, the f32 sums in the first-level cache. How a block's exact integer sum is made:
//   8 bits   bytes widen to 16 bits by a mask and a shift; pairwise 16-bit products are summed in 32 bits
//   4 bits   products of bytes are summed in 16 bits over the whole block (at most 8 * 15 * 127 * 2 = 30,480), then folded
//   5 bits   folded twice a block: 4 * 31 * 127 * 2 = 31,496
//   6 bits   folded every two groups, 2 * 63 * 127 * 2 = 32,004, by a product with the half's scale
//
// 8 bits: 256 products are 16 products and 15 additions of words, of which a Zen 4 does 3.3 a cycle: at most 51 to 53 % of the peak; 43 to 46 are reached.
// Lost: S. Winograd's pairs 0.99 to 1.03, products of bytes by |w|, halves of 4 bits, V. Strassen's seven products.
// All numbers: benchmarks/results/kernel_matmul.md.
#ifndef TIDEMILL_KERNELS_CPU_BLOCK_AVX2_INL_H_
#define TIDEMILL_KERNELS_CPU_BLOCK_AVX2_INL_H_

#include <immintrin.h>

#include "kernels/cpu/matmul_kernel.h"
#include "kernels/panel_layout.h"

namespace tidemill::avx2 {
namespace {

// Keeps a sum where it is: compilers reassociate integer additions across a block, and then spill (half the speed).
[[gnu::always_inline]] inline void Keep(__m256i& sum) { __asm__("" : "+x"(sum)); }

// Has the compiler take the pointers for others, and so not keep what they pointed at in registers that it lacks.
template <typename T, size_t R>
[[gnu::always_inline]] inline void Opaque(T* (&pointers)[R]) {
#pragma GCC unroll 4
  for (size_t r = 0; r < R; ++r) __asm__("" : "+r"(pointers[r]));
}

[[gnu::always_inline]] inline __m256i Load(const unsigned char* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}
template <typename T>
[[gnu::always_inline]] inline __m256i Broadcast4(const T* at) {
  int word;
  __builtin_memcpy(&word, at, 4);
  return _mm256_set1_epi32(word);
}
[[gnu::always_inline]] inline __m256 LoadHalves(const unsigned char* at) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
[[gnu::always_inline]] inline __m256 LoadUnsigned(const unsigned char* at) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
}

// The rows of a tile from the block that is being multiplied on.
struct TileRows {
  const int8_t* q;
  const int16_t* pairs;
  const float* d;
  const float* sum;
  const int16_t* half_sums;
  size_t cols, blocks;  // from row to row
};

// Group g of a block of one half of a panel: four stored quants of each of 8 rows. `unpacked`: a byte each.
template <PanelType type, bool unpacked, size_t g>
[[gnu::always_inline]] inline __m256i LoadGroup(const unsigned char* block) {
  if constexpr (unpacked) {
    return Load(block + g * 64);
  } else {
    __m256i w = Load(block + g % 4 * 64);
    if constexpr (g >= 4) w = _mm256_srli_epi16(w, 4);
    w = _mm256_and_si256(w, _mm256_set1_epi8(15));
    if constexpr (kFiveBits<type>) {  // bit g of the fifth bits to bit 4
      __m256i high = Load(block + 256);
      if constexpr (g < 4) high = _mm256_slli_epi16(high, 4 - g);
      if constexpr (g > 4) high = _mm256_srli_epi16(high, g - 4);
      w = _mm256_or_si256(w, _mm256_and_si256(high, _mm256_set1_epi8(16)));
    }
    if constexpr (type == PanelType::kQ6_K) {  // bits `from` and from + 1 to bits 4 and 5
      constexpr size_t from = 2 * (g % 4);
      __m256i high = Load(block + 256 + g / 4 * 64);
      if constexpr (from < 4) high = _mm256_slli_epi16(high, 4 - from);
      if constexpr (from > 4) high = _mm256_srli_epi16(high, from - 4);
      w = _mm256_or_si256(w, _mm256_and_si256(high, _mm256_set1_epi8(48)));
    }
    return w;
  }
}

// Q8_0: the even and the odd stored quants of a group, 16 bits each: a mask and a shift. `unpacked`: without their offset.
struct Words {
  __m256i even, odd;
};
template <bool unpacked>
[[gnu::always_inline]] inline Words LoadWords(const unsigned char* block, size_t group, size_t half) {
  if constexpr (unpacked) {
    const unsigned char* at = block + group * 128 + half * 64;
    return {Load(at), Load(at + 32)};
  } else {
    const __m256i w = Load(block + group * 64 + half * 32);
    return {_mm256_and_si256(w, _mm256_set1_epi16(255)), _mm256_srli_epi16(w, 8)};
  }
}

// Q8_0: dot[h][r] = (first group of unpacked ones) or += group g of half h
template <bool unpacked, size_t g, size_t R>
[[gnu::always_inline]] inline void AddWords(const unsigned char* block, const int16_t* const (&pairs)[R],
                                            __m256i (&dot)[2][R]) {
  __m256i even[2], odd[2];
#pragma GCC unroll 2
  for (size_t h = 0; h < 2; ++h) {
    const Words words = LoadWords<unpacked>(block, g, h);
    even[h] = words.even;
    odd[h] = words.odd;
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < R; ++r) {
    const __m256i a = Broadcast4(pairs[r] + g * 4), c = Broadcast4(pairs[r] + g * 4 + 2);
#pragma GCC unroll 2
    for (size_t h = 0; h < 2; ++h) {
      const __m256i product = _mm256_madd_epi16(even[h], a);
      dot[h][r] = unpacked && g == 0 ? product : _mm256_add_epi32(dot[h][r], product);
      Keep(dot[h][r]);
      dot[h][r] = _mm256_add_epi32(dot[h][r], _mm256_madd_epi16(odd[h], c));
      Keep(dot[h][r]);
    }
  }
}

// 4 and 5 bits: sum[h][r] = or += group g of half h, in 16 bits.
template <PanelType type, bool unpacked, size_t g, bool first, size_t R>
[[gnu::always_inline]] inline void AddBytes(const unsigned char* block, const int8_t* const (&q)[R],
                                            __m256i (&sum)[2][R]) {
  const __m256i w[2] = {LoadGroup<type, unpacked, g>(block), LoadGroup<type, unpacked, g>(block + 32)};
#pragma GCC unroll 4
  for (size_t r = 0; r < R; ++r) {
    const __m256i a = Broadcast4(q[r] + g * 4);
#pragma GCC unroll 2
    for (size_t h = 0; h < 2; ++h) {
      const __m256i product = _mm256_maddubs_epi16(w[h], a);
      sum[h][r] = first ? product : _mm256_add_epi16(sum[h][r], product);
      Keep(sum[h][r]);
    }
  }
}

// dot[h][r] = or += the two 16-bit sums of each lane.
template <bool first, size_t R>
[[gnu::always_inline]] inline void Fold(const __m256i (&sum)[2][R], __m256i (&dot)[2][R]) {
#pragma GCC unroll 4
  for (size_t r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (size_t h = 0; h < 2; ++h) {
      const __m256i s = _mm256_madd_epi16(sum[h][r], _mm256_set1_epi16(1));
      dot[h][r] = first ? s : _mm256_add_epi32(dot[h][r], s);
      Keep(dot[h][r]);
    }
  }
}

// 6 bits: dot[r] += factor * (groups g and h of one half): two products are as much as 16 bits hold.
template <PanelType type, bool unpacked, size_t g, size_t h, size_t R>
[[gnu::always_inline]] inline void AddFolded(const unsigned char* block, const int8_t* const (&q)[R], __m256i factor,
                                             __m256i (&dot)[R]) {
  const __m256i w0 = LoadGroup<type, unpacked, g>(block), w1 = LoadGroup<type, unpacked, h>(block);
#pragma GCC unroll 4
  for (size_t r = 0; r < R; ++r) {
    const __m256i sum = _mm256_add_epi16(_mm256_maddubs_epi16(w0, Broadcast4(q[r] + g * 4)),
                                         _mm256_maddubs_epi16(w1, Broadcast4(q[r] + h * 4)));
    dot[r] = _mm256_add_epi32(dot[r], _mm256_madd_epi16(sum, factor));
    Keep(dot[r]);
  }
}

// factor * the sum of row r's block, in every lane
template <int factor>
[[gnu::always_inline]] inline __m256i Start(const TileRows& rows, size_t r) {
  return _mm256_madd_epi16(Broadcast4(rows.half_sums + r * rows.blocks * 2), _mm256_set1_epi16(factor));
}

// Where a block's scales stand.
struct BlockScales {
  const unsigned char* halves;  // f16 d[16], then m[16]
  const unsigned char* bytes;   // u8 or i8 sc[16], then m[16] or the second half's sc[16]
};
// Of block i of a group.
template <PanelType type>
[[gnu::always_inline]] inline BlockScales ScalesOf(const unsigned char* group, size_t i) {
  return {group, group + (kPanelLayout<type>.minimum ? 64 : 32) + i * 32};
}
template <PanelType type>
[[gnu::always_inline]] inline const unsigned char* QuantsOf(const unsigned char* group, size_t i) {
  return group + kPanelLayout<type>.scale_bytes + i * kPanelLayout<type>.quant_bytes;
}

// What a half's f32 sums are made with: d_w and m_w (or minus m_w) of its 8 rows.
struct HalfScales {
  __m256 d, m;
};
template <PanelType type>
[[gnu::always_inline]] inline HalfScales HalfScalesOf(BlockScales scales, size_t h) {
  HalfScales half{LoadHalves(scales.halves + h * 16), _mm256_setzero_ps()};
  if constexpr (kPanelLayout<type>.minimum) half.m = LoadHalves(scales.halves + 32 + h * 16);
  if constexpr (kSixBitScales<type>) {
    half.d = _mm256_mul_ps(half.d, LoadUnsigned(scales.bytes + h * 8));
    half.m = _mm256_mul_ps(half.m, LoadUnsigned(scales.bytes + 16 + h * 8));
  }
  return half;
}

// Q6_K: the scales of a half's 8 rows, 16 bits each, as products of pairs want them: of the first 16 columns, of the last, and of both
// with the offset.
struct Factors {
  __m256i first, second, offsets;
};
[[gnu::always_inline]] inline Factors FactorsOf(BlockScales scales, size_t h) {
  const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales.bytes + h * 8));
  const __m128i second = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales.bytes + 16 + h * 8));
  return {_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(first, first)),
          _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(second, second)),
          _mm256_mullo_epi16(_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(first, second)),
                             _mm256_set1_epi16(-kPanelLayout<PanelType::kQ6_K>.offset))};
}

// A block that is unpacked: a byte for each quant, two of Q8_0; then f32 d[16] and m[16]; then, of Q6_K, the factors of both halves.
template <PanelType type>
constexpr size_t kUnpackedQuants = type == PanelType::kQ8_0 ? 1024 : 512;
constexpr size_t kUnpackedFactors = kUnpackedQuants<PanelType::kQ6_K> + 128;
template <PanelType type>
constexpr size_t kUnpackedBytes = kUnpackedQuants<type> + 128 + (type == PanelType::kQ6_K ? 192 : 0);

[[gnu::always_inline]] inline Factors LoadFactors(const unsigned char* at) {
  return {Load(at), Load(at + 32), Load(at + 64)};
}

// dot[h][r] = the exact integer s of one block (kernels/matmul.h)
template <PanelType type, bool unpacked, size_t R>
[[gnu::always_inline]] inline void Dot(const unsigned char* block, BlockScales scales, TileRows rows,
                                       __m256i (&dot)[2][R]) {
  constexpr int kOffset = kPanelLayout<type>.offset;
  const int8_t* q[R];
#pragma GCC unroll 4
  for (size_t r = 0; r < R; ++r) q[r] = rows.q + r * rows.cols;
  if constexpr (type == PanelType::kQ8_0) {
    const int16_t* pairs[R];
#pragma GCC unroll 4
    for (size_t r = 0; r < R; ++r) {
      pairs[r] = rows.pairs + r * rows.cols;
      if constexpr (!unpacked) {
        dot[0][r] = dot[1][r] = Start<-kOffset>(rows, r);
        Keep(dot[0][r]);
        Keep(dot[1][r]);
      }
    }
    AddWords<unpacked, 0>(block, pairs, dot);
    AddWords<unpacked, 1>(block, pairs, dot);
    AddWords<unpacked, 2>(block, pairs, dot);
    AddWords<unpacked, 3>(block, pairs, dot);
    AddWords<unpacked, 4>(block, pairs, dot);
    AddWords<unpacked, 5>(block, pairs, dot);
    AddWords<unpacked, 6>(block, pairs, dot);
    AddWords<unpacked, 7>(block, pairs, dot);
  } else if constexpr (type == PanelType::kQ6_K) {
#pragma GCC unroll 2
    for (size_t h = 0; h < 2; ++h) {
      const Factors factors = unpacked ? LoadFactors(block + kUnpackedFactors + h * 96) : FactorsOf(scales, h);
#pragma GCC unroll 4
      for (size_t r = 0; r < R; ++r) {
        dot[h][r] = _mm256_madd_epi16(Broadcast4(rows.half_sums + r * rows.blocks * 2), factors.offsets);
        Keep(dot[h][r]);
      }
      Opaque(q);  // else both halves share broadcasts, 32 of them, and they spill
      AddFolded<type, unpacked, 0, 1>(block + h * 32, q, factors.first, dot[h]);
      AddFolded<type, unpacked, 2, 3>(block + h * 32, q, factors.first, dot[h]);
      AddFolded<type, unpacked, 4, 5>(block + h * 32, q, factors.second, dot[h]);
      AddFolded<type, unpacked, 6, 7>(block + h * 32, q, factors.second, dot[h]);
    }
  } else if constexpr (kFiveBits<type>) {
    __m256i sum[2][R];
    AddBytes<type, unpacked, 0, true>(block, q, sum);
    AddBytes<type, unpacked, 4, false>(block, q, sum);
    AddBytes<type, unpacked, 1, false>(block, q, sum);
    AddBytes<type, unpacked, 5, false>(block, q, sum);
    Fold<true>(sum, dot);
    AddBytes<type, unpacked, 2, true>(block, q, sum);
    AddBytes<type, unpacked, 6, false>(block, q, sum);
    AddBytes<type, unpacked, 3, false>(block, q, sum);
    AddBytes<type, unpacked, 7, false>(block, q, sum);
    Fold<false>(sum, dot);
  } else {
    __m256i sum[2][R];
    AddBytes<type, unpacked, 0, true>(block, q, sum);
    AddBytes<type, unpacked, 4, false>(block, q, sum);
    AddBytes<type, unpacked, 1, false>(block, q, sum);
    AddBytes<type, unpacked, 5, false>(block, q, sum);
    AddBytes<type, unpacked, 2, false>(block, q, sum);
    AddBytes<type, unpacked, 6, false>(block, q, sum);
    AddBytes<type, unpacked, 3, false>(block, q, sum);
    AddBytes<type, unpacked, 7, false>(block, q, sum);
    Fold<true>(sum, dot);
  }
  if constexpr (type == PanelType::kQ4_0 || type == PanelType::kQ5_0) {
    __asm__("" : "+r"(rows.half_sums), "+x"(dot[0][0]));  // not earlier: it would take registers of the sums
#pragma GCC unroll 4
    for (size_t r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (size_t h = 0; h < 2; ++h) dot[h][r] = _mm256_add_epi32(dot[h][r], Start<-kOffset>(rows, r));
    }
  }
}

// acc [R][16] f32 += the exact sums of one block, times its scales
template <PanelType type, bool unpacked, size_t R>
[[gnu::always_inline]] inline void AddScaled(const __m256i (&dot)[2][R], const unsigned char* block, BlockScales scales,
                                             const TileRows& rows, float* acc) {
  HalfScales half[2];
#pragma GCC unroll 2
  for (size_t h = 0; h < 2; ++h) {
    const auto* floats = reinterpret_cast<const float*>(block + kUnpackedQuants<type>) + h * 8;
    half[h] =
        unpacked ? HalfScales{_mm256_load_ps(floats), _mm256_load_ps(floats + 16)} : HalfScalesOf<type>(scales, h);
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < R; ++r) {
    const __m256 d = _mm256_broadcast_ss(rows.d + r * rows.blocks);
#pragma GCC unroll 2
    for (size_t h = 0; h < 2; ++h) {
      float* at = acc + r * 16 + h * 8;
      __m256 value = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[h][r]), _mm256_mul_ps(half[h].d, d), _mm256_load_ps(at));
      if constexpr (kSixBitScales<type>) {
        value = _mm256_fnmadd_ps(half[h].m, _mm256_broadcast_ss(rows.sum + r * rows.blocks), value);
      } else if constexpr (kPanelLayout<type>.minimum) {
        value = _mm256_fmadd_ps(half[h].m, _mm256_broadcast_ss(rows.sum + r * rows.blocks), value);
      }
      _mm256_store_ps(at, value);
    }
  }
}

// acc [R][16] f32 += one block of a panel times R rows
template <PanelType type, bool unpacked, size_t R>
[[gnu::always_inline]] inline void AddBlock(const unsigned char* block, BlockScales scales, const TileRows& rows,
                                            float* acc) {
  __m256i dot[2][R];
  Dot<type, unpacked>(block, scales, rows, dot);
  AddScaled<type, unpacked>(dot, block, scales, rows, acc);
}

template <size_t g>
[[gnu::always_inline]] inline void AddWordsOfFour(const unsigned char* const (&blocks)[4],
                                                  const int16_t* const (&pairs)[1], __m256i (&dot)[4][2][1]) {
#pragma GCC unroll 4
  for (size_t s = 0; s < 4; ++s) AddWords<false, g>(QuantsOf<PanelType::kQ8_0>(blocks[s], 0), pairs, dot[s]);
}
// acc[s] [16] f32 += one block, with its scales, of each of four panels of Q8_0 times one row, line by line: group g of all four before g + 1 of any.
template <size_t... g>
[[gnu::always_inline]] inline void AddBlocksSideBySide(const unsigned char* const (&blocks)[4], const TileRows& row,
                                                       float (&acc)[4][16]) {
  constexpr PanelType type = PanelType::kQ8_0;
  const int16_t* pairs[1] = {row.pairs};
  __m256i dot[4][2][1];
#pragma GCC unroll 4
  for (size_t s = 0; s < 4; ++s) {
    dot[s][0][0] = dot[s][1][0] = Start<-kPanelLayout<type>.offset>(row, 0);
    Keep(dot[s][0][0]);
    Keep(dot[s][1][0]);
  }
  (AddWordsOfFour<g>(blocks, pairs, dot), ...);
#pragma GCC unroll 4
  for (size_t s = 0; s < 4; ++s)
    AddScaled<type, false>(dot[s], QuantsOf<type>(blocks[s], 0), ScalesOf<type>(blocks[s], 0), row, acc[s]);
}

inline TileRows RowsFrom(const MatMulPanels& args, size_t row, size_t b) {
  const size_t blocks = args.cols / 32;
  const size_t at = row * blocks + b;
  return {.q = args.q + at * 32,
          .pairs = args.pairs + at * 32,
          .d = args.d + at,
          .sum = args.sum + at,
          .half_sums = args.half_sums + at * 2,
          .cols = args.cols,
          .blocks = blocks};
}
[[gnu::always_inline]] inline void Advance(TileRows& rows) {
  rows.q += 32;
  rows.pairs += 32;
  rows.d += 1;
  rows.sum += 1;
  rows.half_sums += 2;
}

}  // namespace
}  // namespace tidemill::avx2

#endif  // TIDEMILL_KERNELS_CPU_BLOCK_AVX2_INL_H_
