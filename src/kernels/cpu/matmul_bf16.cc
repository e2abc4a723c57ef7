// Lanes are output rows, so one register holds a pair of columns of one panel. A tile is V panels x R rows; a weight vector serves R
// rows, a broadcast pair of activations serves V panels.
//
// Won: tiles of 2 x 12, 97 % of the peak from L2 (Zen 4); one row of one panel, not prefetched, with one thread, decode 1.24 times as fast (Zen 4);
// prefetched on an Intel 1.17 to 1.45. Lost: the next tile's rows prefetched, 0.95; past L2 on a Zen 5.
// All numbers: benchmarks/results/kernel_matmul.md.
#include "kernels/cpu/matmul_bf16.h"

#include <immintrin.h>

namespace tidemill::bf16 {
namespace {

constexpr size_t kMaxTile = kLowTiles ? 2 : 12;  // 2 x 12 sums in 32 registers

// Rows [row, row + R) of panels [panel, panel + V). kFetch: lines ahead of their use are fetched.
template <size_t V, size_t R, bool kFetch>
inline void Tile(const MatMulPanels& args, size_t panel, size_t row) {
  const unsigned char* w[V];
  for (size_t v = 0; v < V; ++v) w[v] = args.panels + (panel + v) * args.panel_bytes;
  // Three rows to a pointer, which x86's addresses reach from it: twelve pointers are more than there are registers.
  const size_t stride = args.bfloat16_stride * sizeof(uint16_t);
  const unsigned char* x[(R + 2) / 3];
  for (size_t r = 0; r < R; r += 3)
    x[r / 3] = reinterpret_cast<const unsigned char*>(args.bfloat16) + (row + r) * stride;
  __m512 acc[V][R];
#pragma GCC unroll 16
  for (size_t v = 0; v < V; ++v) {
#pragma GCC unroll 16
    for (size_t r = 0; r < R; ++r) acc[v][r] = _mm512_setzero_ps();
  }
  for (size_t k = 0; k < args.cols; k += 2) {
    if constexpr (kFetch) FetchAhead<V, 4096>(w, args.panel_bytes, k * 32);
    __m512bh pairs[V];
#pragma GCC unroll 16
    for (size_t v = 0; v < V; ++v) pairs[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(w[v] + k * 32));
#pragma GCC unroll 16
    for (size_t r = 0; r < R; ++r) {
      int pair;
      __builtin_memcpy(&pair, x[r / 3] + r % 3 * stride + k * sizeof(uint16_t), 4);
      const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 16
      for (size_t v = 0; v < V; ++v) acc[v][r] = _mm512_dpbf16_ps(acc[v][r], pairs[v], a);
    }
  }
#pragma GCC unroll 16
  for (size_t v = 0; v < V; ++v) {
    const size_t first = (panel + v) * 16;
    const size_t valid = args.outputs - first < 16 ? args.outputs - first : 16;
    const __mmask16 mask = static_cast<__mmask16>((1U << valid) - 1);
#pragma GCC unroll 16
    for (size_t r = 0; r < R; ++r) {
      float* out = args.y + (row + r) * args.y_stride + first;
      __m512 value = acc[v][r];
      if (args.accumulate) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), value);
      _mm512_mask_storeu_ps(out, mask, value);
    }
  }
}

// A tile of `rows` rows, in [1, R].
template <size_t V, size_t R>
inline void TileOfRows(const MatMulPanels& args, size_t panel, size_t row, size_t rows, bool fetch) {
  if constexpr (R > 1) {
    if (rows < R) return TileOfRows<V, R - 1>(args, panel, row, rows, fetch);
  }
  return fetch ? Tile<V, R, true>(args, panel, row) : Tile<V, R, false>(args, panel, row);
}

// All rows of V panels, in tiles as equal as they can be, of at most R. Only the first of several reads them from memory: it finds them in
// the L2 cache, since each tile fetches a share of the V panels behind; but for the first V panels of a call.
template <size_t V, size_t R>
inline void AllRows(const MatMulPanels& args, size_t panel) {
  const size_t tiles = (args.rows + R - 1) / R;
  const unsigned char* next = args.panels + (panel + V) * args.panel_bytes;
  const size_t share = tiles == 1 ? 0 : V * args.panel_bytes / tiles;
  for (size_t tile = 0, row = 0; tile < tiles; ++tile) {
    for (size_t i = 0; i < share; i += 64) __builtin_prefetch(next + tile * share + i, 0, kIntoL2);
    const size_t rows = (args.rows - row) / (tiles - tile);
    TileOfRows<V, R>(args, panel, row, rows, tiles == 1 && (args.intel || args.rows > (args.zen5 ? 2 : 1)));
    row += rows;
  }
}

}  // namespace

void MatMul(const MatMulPanels& args) {
  size_t panel = 0;
  if (args.rows == 1 && args.one_thread && !args.zen5 && !args.intel) {
    for (; panel < args.num_panels; ++panel) Tile<1, 1, false>(args, panel, 0);
  } else if (args.rows <= 2) {  // four panels, so that enough sums are in flight
    for (; panel + 4 <= args.num_panels; panel += 4) AllRows<4, 2>(args, panel);
  }
  for (; panel + 2 <= args.num_panels; panel += 2) AllRows<2, kMaxTile>(args, panel);
  for (; panel < args.num_panels; ++panel) AllRows<1, kMaxTile>(args, panel);
}

void RoundRow(const float* x, size_t cols, uint16_t* out) {
  size_t k = 0;
  for (; k + 16 <= cols; k += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + k),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(x + k))));
  }
  if (k == cols) return;
  const size_t rest = cols - k;
  const __mmask16 read = static_cast<__mmask16>((1U << rest) - 1);
  const __mmask16 written = static_cast<__mmask16>((1U << (rest + rest % 2)) - 1);
  _mm256_mask_storeu_epi16(out + k, written,
                           reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(read, x + k))));
}

namespace {

// In independent chains, since the instruction waits for its own sum: a Zen 5 starts two a cycle, and each takes six. In assembly, so that
// every round counts; variables, since compilers keep an array that assembly writes in memory.
template <bool kOwnFactor>
PeakRun DotPeak(size_t iterations) {
  constexpr size_t kChains = 16;
  const __m512 pairs = _mm512_castsi512_ps(_mm512_set1_epi32(0x3F803F80));  // ones
  __m512 a = pairs, b = pairs, c = pairs, d = pairs, e = pairs, f = pairs, g = pairs, h = pairs;
  __m512 i = pairs, j = pairs, k = pairs, l = pairs, m = pairs, n = pairs, o = pairs, p = pairs;
  const auto dot = [pairs](__m512 & sum) __attribute__((always_inline)) {
    if constexpr (kOwnFactor) {
      __asm__ volatile("vdpbf16ps %0, %1, %0" : "+v"(sum) : "v"(pairs));
    } else {
      __asm__ volatile("vdpbf16ps %1, %1, %0" : "+v"(sum) : "v"(pairs));
    }
  };
  for (size_t round = 0; round < iterations; ++round) {
    dot(a), dot(b), dot(c), dot(d), dot(e), dot(f), dot(g), dot(h);
    dot(i), dot(j), dot(k), dot(l), dot(m), dot(n), dot(o), dot(p);
  }
  const auto count = static_cast<double>(kChains * iterations);
  return {64 * count, count, 0};
}

}  // namespace

PeakRun DotPeak(PeakShape shape, size_t iterations) {
  return shape == PeakShape::kFirst ? DotPeak<false>(iterations) : DotPeak<true>(iterations);
}

}  // namespace tidemill::bf16
