// Lanes are output rows, so one register holds one strip. A tile is V strips x R rows: V * R integer sums and as many f32
// sums stay in registers (2 x 6: 24 of 32); a weight vector serves R rows, a broadcast of four activations serves V strips.
#include "kernels/cpu/matmul_vnni.h"

#include <immintrin.h>

namespace tidemill::vnni {
namespace {

constexpr bool kFiveBits(StripType type) {
  return type == StripType::kQ5_0 || type == StripType::kQ5_1 || type == StripType::kQ5_K;
}
constexpr bool kSixBitScales(StripType type) { return type == StripType::kQ4_K || type == StripType::kQ5_K; }

// Rows of a tile of two strips. Q6_K has a third number per strip and row: 2 x 4 of three are as many registers as 2 x 6 of two.
constexpr size_t kTileRows(StripType type) { return kLowTiles ? 2 : type == StripType::kQ6_K ? 4 : 6; }

inline __m512i Broadcast4(const int8_t* q) {
  int word;
  __builtin_memcpy(&word, q, 4);
  return _mm512_set1_epi32(word);
}

inline __m512 LoadHalves(const unsigned char* at) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
inline __m512 LoadUnsigned(const unsigned char* at) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))));
}
inline __m512 LoadSigned(const unsigned char* at) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))));
}

// Group g of a block of one strip: four stored quants of each of 16 rows.
template <StripType type, size_t g>
[[gnu::always_inline]] inline __m512i LoadGroup(const unsigned char* block) {
  if constexpr (type == StripType::kQ8_0) {
    return _mm512_loadu_si512(block + g * 64);
  } else {
    __m512i w = _mm512_loadu_si512(block + g % 4 * 64);
    if constexpr (g >= 4) w = _mm512_srli_epi16(w, 4);
    w = _mm512_and_si512(w, _mm512_set1_epi8(15));
    if constexpr (kFiveBits(type)) {  // bit g of the fifth bits to bit 4
      __m512i high = _mm512_loadu_si512(block + 256);
      if constexpr (g < 4) high = _mm512_slli_epi16(high, 4 - g);
      if constexpr (g > 4) high = _mm512_srli_epi16(high, g - 4);
      w = _mm512_or_si512(w, _mm512_and_si512(high, _mm512_set1_epi8(16)));
    }
    if constexpr (type == StripType::kQ6_K) {  // bits `from` and from + 1 to bits 4 and 5
      constexpr size_t from = 2 * (g % 4);
      __m512i high = _mm512_loadu_si512(block + 256 + g / 4 * 64);
      if constexpr (from < 4) high = _mm512_slli_epi16(high, 4 - from);
      if constexpr (from > 4) high = _mm512_srli_epi16(high, from - 4);
      w = _mm512_or_si512(w, _mm512_and_si512(high, _mm512_set1_epi8(48)));
    }
    return w;
  }
}

// dot[v][r] += group g of a block of strip v . group g of the same columns of row r
template <StripType type, size_t g, size_t V, size_t R>
[[gnu::always_inline]] inline void AddGroup(const unsigned char* const (&quants)[V], const int8_t* const (&q)[R],
                                            size_t b, __m512i (&dot)[V][R]) {
  __m512i w[V];
#pragma GCC unroll 8
  for (size_t v = 0; v < V; ++v) w[v] = LoadGroup<type, g>(quants[v] + b * kStripLayout<type>.quant_bytes);
#pragma GCC unroll 8
  for (size_t r = 0; r < R; ++r) {
    const __m512i a = Broadcast4(q[r] + b * 32 + g * 4);
#pragma GCC unroll 8
    for (size_t v = 0; v < V; ++v) dot[v][r] = _mm512_dpbusd_epi32(dot[v][r], w[v], a);
  }
}

// dot[v][r] = -offset * (the halves' sums of row r's block): [first, last) of its two.
template <StripType type, size_t V, size_t R>
[[gnu::always_inline]] inline void Start(const int16_t* const (&half_sums)[R], size_t first, size_t last,
                                         __m512i (&dot)[V][R]) {
  constexpr int kOffset = kStripLayout<type>.offset;
#pragma GCC unroll 8
  for (size_t r = 0; r < R; ++r) {
    __m512i start = _mm512_setzero_si512();
    if constexpr (kOffset != 0) {
      int sum = 0;
#pragma GCC unroll 2
      for (size_t i = first; i < last; ++i) sum += half_sums[r][i];
      start = _mm512_set1_epi32(-kOffset * sum);
    }
#pragma GCC unroll 8
    for (size_t v = 0; v < V; ++v) dot[v][r] = start;
  }
}

template <StripType type, size_t V, size_t R>
inline void Tile(const MatMulStrips& args, const unsigned char* strips, size_t row, float* y, size_t outputs) {
  constexpr StripLayout kLayout = kStripLayout<type>;
  const size_t blocks = args.cols / 32;
  const int8_t* q[R];
  const float* d[R];
  const float* sum[R];
  const int16_t* half_sums[R];
  for (size_t r = 0; r < R; ++r) {
    q[r] = args.q + (row + r) * args.cols;
    d[r] = args.d + (row + r) * blocks;
    sum[r] = args.sum + (row + r) * blocks;
    half_sums[r] = args.half_sums + (row + r) * blocks * 2;
  }
  const unsigned char* quants[V];
  const unsigned char* scales[V];
  for (size_t v = 0; v < V; ++v) {
    quants[v] = strips + v * args.strip_bytes;
    scales[v] = quants[v] + blocks * kLayout.quant_bytes;
  }
  __m512 acc[V][R];
#pragma GCC unroll 8
  for (size_t v = 0; v < V; ++v) {
#pragma GCC unroll 8
    for (size_t r = 0; r < R; ++r) acc[v][r] = _mm512_setzero_ps();
  }
  for (size_t b = 0; b < blocks; ++b) {
    __m512i dot[V][R];
    __m512 s[V][R];
    const size_t group = b / kLayout.scale_blocks * kLayout.scale_bytes;  // of scales
    const size_t byte_scales = group + (kLayout.minimum ? 64 : 32) + b % kLayout.scale_blocks * 32;
    if constexpr (type == StripType::kQ6_K) {
      Start<type>(half_sums, b * 2, b * 2 + 1, dot);
      AddGroup<type, 0>(quants, q, b, dot);
      AddGroup<type, 1>(quants, q, b, dot);
      AddGroup<type, 2>(quants, q, b, dot);
      AddGroup<type, 3>(quants, q, b, dot);
#pragma GCC unroll 8
      for (size_t v = 0; v < V; ++v) {
        const __m512 sc = LoadSigned(scales[v] + byte_scales);
#pragma GCC unroll 8
        for (size_t r = 0; r < R; ++r) s[v][r] = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[v][r]), sc);
      }
      Start<type>(half_sums, b * 2 + 1, b * 2 + 2, dot);
      AddGroup<type, 4>(quants, q, b, dot);
      AddGroup<type, 5>(quants, q, b, dot);
      AddGroup<type, 6>(quants, q, b, dot);
      AddGroup<type, 7>(quants, q, b, dot);
#pragma GCC unroll 8
      for (size_t v = 0; v < V; ++v) {
        const __m512 sc = LoadSigned(scales[v] + byte_scales + 16);
#pragma GCC unroll 8
        for (size_t r = 0; r < R; ++r) s[v][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[v][r]), sc, s[v][r]);  // exact
      }
    } else {
      Start<type>(half_sums, b * 2, b * 2 + 2, dot);
      AddGroup<type, 0>(quants, q, b, dot);
      AddGroup<type, 4>(quants, q, b, dot);
      AddGroup<type, 1>(quants, q, b, dot);
      AddGroup<type, 5>(quants, q, b, dot);
      AddGroup<type, 2>(quants, q, b, dot);
      AddGroup<type, 6>(quants, q, b, dot);
      AddGroup<type, 3>(quants, q, b, dot);
      AddGroup<type, 7>(quants, q, b, dot);
#pragma GCC unroll 8
      for (size_t v = 0; v < V; ++v) {
#pragma GCC unroll 8
        for (size_t r = 0; r < R; ++r) s[v][r] = _mm512_cvtepi32_ps(dot[v][r]);
      }
    }
#pragma GCC unroll 8
    for (size_t v = 0; v < V; ++v) {
      __m512 d_w = LoadHalves(scales[v] + group);
      if constexpr (kSixBitScales(type)) d_w = _mm512_mul_ps(d_w, LoadUnsigned(scales[v] + byte_scales));
#pragma GCC unroll 8
      for (size_t r = 0; r < R; ++r) {
        const __m512 scale = _mm512_mul_ps(d_w, _mm512_set1_ps(d[r][b]));
        acc[v][r] = _mm512_fmadd_ps(s[v][r], scale, acc[v][r]);
      }
      if constexpr (kSixBitScales(type)) {  // m_w is minus this
        const __m512 m = _mm512_mul_ps(LoadHalves(scales[v] + group + 32), LoadUnsigned(scales[v] + byte_scales + 16));
#pragma GCC unroll 8
        for (size_t r = 0; r < R; ++r) acc[v][r] = _mm512_fnmadd_ps(m, _mm512_set1_ps(sum[r][b]), acc[v][r]);
      } else if constexpr (kLayout.minimum) {
        const __m512 m_w = LoadHalves(scales[v] + group + 32);
#pragma GCC unroll 8
        for (size_t r = 0; r < R; ++r) acc[v][r] = _mm512_fmadd_ps(m_w, _mm512_set1_ps(sum[r][b]), acc[v][r]);
      }
    }
  }
#pragma GCC unroll 8
  for (size_t v = 0; v < V; ++v) {
    const size_t first = v * 16;
    const size_t valid = outputs - first < 16 ? outputs - first : 16;
    const __mmask16 mask = static_cast<__mmask16>((1U << valid) - 1);
#pragma GCC unroll 8
    for (size_t r = 0; r < R; ++r) {
      float* out = y + r * args.y_stride + first;
      __m512 value = acc[v][r];
      if (args.accumulate) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), value);
      _mm512_mask_storeu_ps(out, mask, value);
    }
  }
}

// The next rows, R at most.
template <StripType type, size_t V, size_t R = kTileRows(type)>
inline void Rows(const MatMulStrips& args, size_t strip, size_t first_row, size_t rows) {
  if constexpr (R > 1) {
    if (rows < R) return Rows<type, V, R - 1>(args, strip, first_row, rows);
  }
  Tile<type, V, R>(args, args.strips + strip * args.strip_bytes, first_row,
                   args.y + first_row * args.y_stride + strip * 16, args.outputs - strip * 16);
}

template <StripType type>
void MatMul(const MatMulStrips& args) {
  size_t strip = 0;
  if (args.rows <= 2) {  // one or two rows: more strips at once, so that enough sums are in flight
    for (; strip + 4 <= args.num_strips; strip += 4) {
      const unsigned char* strips = args.strips + strip * args.strip_bytes;
      if (args.rows == 1) {
        Tile<type, 4, 1>(args, strips, 0, args.y + strip * 16, args.outputs - strip * 16);
      } else {
        Tile<type, 4, 2>(args, strips, 0, args.y + strip * 16, args.outputs - strip * 16);
      }
    }
  }
  for (; strip + 2 <= args.num_strips; strip += 2) {
    for (size_t row = 0; row < args.rows; row += kTileRows(type)) Rows<type, 2>(args, strip, row, args.rows - row);
  }
  for (; strip < args.num_strips; ++strip) {
    for (size_t row = 0; row < args.rows; row += kTileRows(type)) Rows<type, 1>(args, strip, row, args.rows - row);
  }
}

}  // namespace

MatMulKernel PickMatMul(StripType type) {
  switch (type) {
    case StripType::kQ8_0: return MatMul<StripType::kQ8_0>;
    case StripType::kQ4_0: return MatMul<StripType::kQ4_0>;
    case StripType::kQ4_1: return MatMul<StripType::kQ4_1>;
    case StripType::kQ5_0: return MatMul<StripType::kQ5_0>;
    case StripType::kQ5_1: return MatMul<StripType::kQ5_1>;
    case StripType::kQ4_K: return MatMul<StripType::kQ4_K>;
    case StripType::kQ5_K: return MatMul<StripType::kQ5_K>;
    case StripType::kQ6_K: return MatMul<StripType::kQ6_K>;
  }
  return nullptr;
}

double DotPeak(size_t iterations) {
  constexpr size_t kChains = 12;
  const __m512i bytes = _mm512_set1_epi8(3);
  __m512i acc[kChains];
  for (size_t c = 0; c < kChains; ++c) acc[c] = _mm512_set1_epi32(static_cast<int>(c));
  for (size_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (size_t c = 0; c < kChains; ++c) {
      acc[c] = _mm512_dpbusd_epi32(acc[c], bytes, bytes);
      __asm__ volatile("" : "+v"(acc[c]));  // every round counts
    }
  }
  return 2.0 * 64.0 * static_cast<double>(kChains * iterations);
}

}  // namespace tidemill::vnni
