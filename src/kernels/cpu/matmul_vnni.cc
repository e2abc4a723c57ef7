// Lanes are output rows, so one register holds one strip. A tile is V strips x R rows: V * R integer sums and as many f32
// sums stay in registers (2 x 6: 24 of 32); a weight vector serves R rows, a broadcast of four activations serves V strips.
#include "kernels/cpu/matmul_vnni.h"

#include <immintrin.h>

namespace tidemill::vnni {
namespace {

enum class Type { kQ8_0, kQ4_0, kQ4_1 };

constexpr size_t kQuantBytes(Type type) { return type == Type::kQ8_0 ? 512 : 256; }  // of one block of one strip
constexpr size_t kScaleBytes(Type type) { return type == Type::kQ4_1 ? 64 : 32; }
constexpr int kOffset(Type type) { return type == Type::kQ8_0 ? 128 : type == Type::kQ4_0 ? 8 : 0; }

inline __m512i Broadcast4(const int8_t* q) {
  int word;
  __builtin_memcpy(&word, q, 4);
  return _mm512_set1_epi32(word);
}

template <Type type, size_t V, size_t R>
inline void Tile(const MatMulStrips& args, const unsigned char* strips, size_t row, float* y, size_t outputs) {
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
    scales[v] = quants[v] + blocks * kQuantBytes(type);
  }
  __m512 acc[V][R];
#pragma GCC unroll 8
  for (size_t v = 0; v < V; ++v) {
#pragma GCC unroll 8
    for (size_t r = 0; r < R; ++r) acc[v][r] = _mm512_setzero_ps();
  }
  for (size_t b = 0; b < blocks; ++b) {
    __m512i dot[V][R];
#pragma GCC unroll 8
    for (size_t r = 0; r < R; ++r) {
      const __m512i start = kOffset(type) == 0
                                ? _mm512_setzero_si512()
                                : _mm512_set1_epi32(-kOffset(type) * (half_sums[r][b * 2] + half_sums[r][b * 2 + 1]));
#pragma GCC unroll 8
      for (size_t v = 0; v < V; ++v) dot[v][r] = start;
    }
    if constexpr (type == Type::kQ8_0) {
#pragma GCC unroll 8
      for (size_t g = 0; g < 8; ++g) {
        __m512i w[V];
#pragma GCC unroll 8
        for (size_t v = 0; v < V; ++v) w[v] = _mm512_loadu_si512(quants[v] + b * 512 + g * 64);
#pragma GCC unroll 8
        for (size_t r = 0; r < R; ++r) {
          const __m512i a = Broadcast4(q[r] + b * 32 + g * 4);
#pragma GCC unroll 8
          for (size_t v = 0; v < V; ++v) dot[v][r] = _mm512_dpbusd_epi32(dot[v][r], w[v], a);
        }
      }
    } else {
      const __m512i low_nibbles = _mm512_set1_epi8(15);
#pragma GCC unroll 4
      for (size_t g = 0; g < 4; ++g) {
        __m512i low[V], high[V];
#pragma GCC unroll 8
        for (size_t v = 0; v < V; ++v) {
          const __m512i w = _mm512_loadu_si512(quants[v] + b * 256 + g * 64);
          low[v] = _mm512_and_si512(w, low_nibbles);
          high[v] = _mm512_and_si512(_mm512_srli_epi16(w, 4), low_nibbles);
        }
#pragma GCC unroll 8
        for (size_t r = 0; r < R; ++r) {
          const __m512i a = Broadcast4(q[r] + b * 32 + g * 4);
          const __m512i c = Broadcast4(q[r] + b * 32 + 16 + g * 4);
#pragma GCC unroll 8
          for (size_t v = 0; v < V; ++v) {
            dot[v][r] = _mm512_dpbusd_epi32(dot[v][r], low[v], a);
            dot[v][r] = _mm512_dpbusd_epi32(dot[v][r], high[v], c);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (size_t v = 0; v < V; ++v) {
      const unsigned char* s = scales[v] + b * kScaleBytes(type);
      const __m512 d_w = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(s)));
#pragma GCC unroll 8
      for (size_t r = 0; r < R; ++r) {
        const __m512 scale = _mm512_mul_ps(d_w, _mm512_set1_ps(d[r][b]));
        acc[v][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[v][r]), scale, acc[v][r]);
      }
      if constexpr (type == Type::kQ4_1) {
        const __m512 m_w = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(s + 32)));
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

template <Type type, size_t V>
inline void Rows(const MatMulStrips& args, size_t strip, size_t first_row, size_t rows) {
  const unsigned char* strips = args.strips + strip * args.strip_bytes;
  const size_t outputs = args.outputs - strip * 16;
  float* y = args.y + first_row * args.y_stride + strip * 16;
  switch (rows) {
    case 1: return Tile<type, V, 1>(args, strips, first_row, y, outputs);
    case 2: return Tile<type, V, 2>(args, strips, first_row, y, outputs);
    case 3: return Tile<type, V, 3>(args, strips, first_row, y, outputs);
    case 4: return Tile<type, V, 4>(args, strips, first_row, y, outputs);
    case 5: return Tile<type, V, 5>(args, strips, first_row, y, outputs);
    default: return Tile<type, V, 6>(args, strips, first_row, y, outputs);
  }
}

template <Type type>
inline void MatMul(const MatMulStrips& args) {
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
    for (size_t row = 0; row < args.rows; row += 6) Rows<type, 2>(args, strip, row, args.rows - row);
  }
  for (; strip < args.num_strips; ++strip) {
    for (size_t row = 0; row < args.rows; row += 6) Rows<type, 1>(args, strip, row, args.rows - row);
  }
}

}  // namespace

void MatMulQ8_0(const MatMulStrips& args) { MatMul<Type::kQ8_0>(args); }
void MatMulQ4_0(const MatMulStrips& args) { MatMul<Type::kQ4_0>(args); }
void MatMulQ4_1(const MatMulStrips& args) { MatMul<Type::kQ4_1>(args); }

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
