// Lanes are output rows, so one register holds one panel. A tile is V panels x R rows: V * R integer sums and as many f32
// sums stay in registers (2 x 6: 24 of 32; on an Intel 2 x 7); a weight vector serves R rows, a broadcast of four activations serves V panels.
//
// How weights come: two rows go over four panels at once, more over two, fetched into L2; one row over one panel after another, one stream:
//   Zen 4   past L2 4 KiB ahead where several threads read (Q8_0: not fetched); left to the processor where one does
//   Zen 5   two rows as one does; past L2 8 KiB ahead (Q8_0: not fetched). Its own prefetcher reads one stream at the full rate of memory, but not
//           several, or one that others fetch for, too
//   Intel   into L2 4 KiB ahead. It seems to have few lines on their way to L1 at once, and its own prefetcher stops at a page
//
// Won, decode: one stream for four, 1.01 to 1.21 times as fast (Zen 4), 8 KiB ahead on a Zen 5 1.00 to 1.20, prefetches on an Intel 1.17 to 1.65; its
// taller tiles, unpacked 4 bits and prefetched sums, prefill 1.03 to 1.27. A Zen 4's 24 rows reach 76 % of the byte products' peak; 80 is the most.
// Lost: other distances, into L1, unpacked blocks interleaved in memory, 1 x 8 to 1 x 14 tiles. All numbers: benchmarks/results/kernel_matmul.md.
#include "kernels/cpu/matmul_vnni.h"

#include <immintrin.h>

#include "base/check.h"

namespace tidemill::vnni {
namespace {

// Rows from three on: up to kPairRows rows go over two panels at once, in tiles of at most PairTile; more rows, and the
// last of an odd number of panels, over one panel in tiles of at most kSingleTile. Q6_K has a third number per panel and row.
constexpr size_t kPairRows(PanelType type) { return type == PanelType::kQ6_K ? 4 : ~size_t{0}; }
constexpr size_t PairTile(PanelType type, bool intel) {
  const size_t usual = type == PanelType::kQ6_K ? 4 : 6;
  return kLowTiles ? 2 : intel ? usual + 1 : usual;
}
constexpr size_t kSingleTile(PanelType type) { return !kLowTiles && type == PanelType::kQ6_K ? 8 : 2; }

// Above so many rows two panels at a time are unpacked once, where their type is worth it, and not for each tile: 4 bits on an Intel alone.
constexpr size_t kFewRows = 32;
template <PanelType type>
constexpr bool Expands(bool intel) {
  constexpr size_t kBytes = kPanelLayout<type>.quant_bytes, kFourBits = kExpandedBlock / 2;
  return kBytes != kExpandedBlock && (intel || kBytes > kFourBits);
}
// The least that a tile then has, of equal shares of at most `most`.
constexpr size_t MinRows(size_t most) {
  size_t least = most;
  for (size_t rows = kFewRows + 1; rows <= kFewRows + most * most; ++rows) {
    const size_t share = rows / ((rows + most - 1) / most);
    if (share < least) least = share;
  }
  return least;
}

// So few rows go over one panel after another, which then is one stream to the processor, and so far ahead it is fetched, into L2 on an
// Intel, else past it; 0: not at all.
constexpr size_t StreamRows(bool zen5) { return zen5 ? 2 : 1; }
template <PanelType type>
constexpr size_t StreamAhead(const MatMulPanels& args) {
  if (args.intel) return 4096;
  return type == PanelType::kQ8_0 ? 0 : args.zen5 ? 8192 : args.one_thread ? 0 : 4096;
}

// How many blocks ahead of its reading a panel is fetched where all rows fit in one tile of R rows.
template <PanelType type, size_t R>
constexpr size_t kBlocksAhead = (type == PanelType::kQ8_0 && R == 2 ? 1024 : 4096) / kPanelLayout<type>.quant_bytes;

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

// Group g of a block of one panel: four stored quants of each of 16 rows.
template <PanelType type, size_t g>
[[gnu::always_inline]] inline __m512i LoadGroup(const unsigned char* block) {
  if constexpr (type == PanelType::kQ8_0) {
    return _mm512_loadu_si512(block + g * 64);
  } else {
    __m512i w = _mm512_loadu_si512(block + g % 4 * 64);
    if constexpr (g >= 4) w = _mm512_srli_epi16(w, 4);
    w = _mm512_and_si512(w, _mm512_set1_epi8(15));
    if constexpr (kFiveBits<type>) {  // bit g of the fifth bits to bit 4
      __m512i high = _mm512_loadu_si512(block + 256);
      if constexpr (g < 4) high = _mm512_slli_epi16(high, 4 - g);
      if constexpr (g > 4) high = _mm512_srli_epi16(high, g - 4);
      w = _mm512_or_si512(w, _mm512_and_si512(high, _mm512_set1_epi8(16)));
    }
    if constexpr (type == PanelType::kQ6_K) {  // bits `from` and from + 1 to bits 4 and 5
      constexpr size_t from = 2 * (g % 4);
      __m512i high = _mm512_loadu_si512(block + 256 + g / 4 * 64);
      if constexpr (from < 4) high = _mm512_slli_epi16(high, 4 - from);
      if constexpr (from > 4) high = _mm512_srli_epi16(high, from - 4);
      w = _mm512_or_si512(w, _mm512_and_si512(high, _mm512_set1_epi8(48)));
    }
    return w;
  }
}

// Groups g of a block, a byte for each quant.
template <PanelType type, size_t... g>
[[gnu::always_inline]] inline void Unpack(const unsigned char* block, unsigned char* to) {
  (_mm512_store_si512(to + g * 64, LoadGroup<type, g>(block)), ...);
}

template <PanelType type>
inline void Expand(const unsigned char* panel, size_t blocks, unsigned char* expanded) {
  constexpr PanelLayout kLayout = kPanelLayout<type>;
  for (size_t b = 0; b < blocks; ++b, panel += kLayout.quant_bytes, expanded += kExpandedBlock) {
    if (b % kLayout.scale_blocks == 0) panel += kLayout.scale_bytes;
    Unpack<type, 0, 1, 2, 3, 4, 5, 6, 7>(panel, expanded);
  }
}

// dot[v][r] += group g of the block of panel v at quants[v] + at . group g of block b of row r
template <PanelType type, bool kExpanded, size_t g, size_t V, size_t R>
[[gnu::always_inline]] inline void AddGroup(const unsigned char* const (&quants)[V], size_t at,
                                            const int8_t* const (&q)[R], size_t b, __m512i (&dot)[V][R]) {
  __m512i w[V];
#pragma GCC unroll 16
  for (size_t v = 0; v < V; ++v) {
    if constexpr (kExpanded) {
      w[v] = _mm512_load_si512(quants[v] + at + g * 64);
    } else {
      w[v] = LoadGroup<type, g>(quants[v] + at);
    }
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < R; ++r) {
    const __m512i a = Broadcast4(q[r] + b * 32 + g * 4);
#pragma GCC unroll 16
    for (size_t v = 0; v < V; ++v) dot[v][r] = _mm512_dpbusd_epi32(dot[v][r], w[v], a);
  }
}

// The integer sums of a block begin with -offset * (sum of its activations). They are made for kStartBlocks blocks at a time,
// so that a block's costs one broadcast from memory.
constexpr size_t kStartBlocks = 64;

template <PanelType type>
struct Starts {
  static constexpr size_t kParts = type == PanelType::kQ6_K ? 2 : 1;  // Q6_K sums the halves of a block apart
  alignas(64) int32_t part[kParts][kStartBlocks];
};

// Of the first `blocks` blocks, at most kStartBlocks, of one row.
template <PanelType type>
inline void FillStarts(const int16_t* half_sums, size_t blocks, Starts<type>& starts) {
  constexpr int16_t kMinus = -kPanelLayout<type>.offset;
  for (size_t b = 0; b < blocks; b += 16) {
    const __mmask16 valid = static_cast<__mmask16>(blocks - b < 16 ? (1U << (blocks - b)) - 1 : 0xFFFF);
    const __m512i pairs = _mm512_maskz_loadu_epi32(valid, half_sums + 2 * b);
    const __m512i zero = _mm512_setzero_si512();
    if constexpr (Starts<type>::kParts == 1) {
      _mm512_store_si512(starts.part[0] + b, _mm512_dpwssd_epi32(zero, pairs, _mm512_set1_epi16(kMinus)));
    } else {
      const __m512i first = _mm512_set1_epi32(uint16_t(kMinus)), second = _mm512_set1_epi32(kMinus * 65536);
      _mm512_store_si512(starts.part[0] + b, _mm512_dpwssd_epi32(zero, pairs, first));
      _mm512_store_si512(starts.part[1] + b, _mm512_dpwssd_epi32(zero, pairs, second));
    }
  }
}

template <PanelType type, size_t part, size_t V, size_t R>
[[gnu::always_inline]] inline void Start(const Starts<type> (&starts)[R], size_t b, __m512i (&dot)[V][R]) {
#pragma GCC unroll 16
  for (size_t r = 0; r < R; ++r) {
    __m512i start = _mm512_setzero_si512();
    if constexpr (kPanelLayout<type>.offset != 0) start = _mm512_set1_epi32(starts[r].part[part][b % kStartBlocks]);
#pragma GCC unroll 16
    for (size_t v = 0; v < V; ++v) dot[v][r] = start;
  }
}

// Brings weights from memory into the L2 cache, or past it, while a tile works: the processor's own prefetcher stops at the end of each page
// of 4 KiB and serves several streams badly.
template <PanelType type, size_t V, size_t R>
class Fetcher {
 public:
  // Of tile `tile` of `tiles` over the same V panels.
  Fetcher(const MatMulPanels& args, const unsigned char* panels, size_t blocks, size_t tile, size_t tiles)
      : alone_(tiles == 1),
        one_stream_(V == 1 && R <= StreamRows(args.zen5)),
        into_l2_(args.intel),
        stream_ahead_(StreamAhead<type>(args)),
        blocks_(blocks),
        other_bytes_((V - 1) * args.panel_bytes) {
    const size_t steps = tiles * blocks, all_bytes = V * args.panel_bytes;
    step_ = (all_bytes + steps * 64 - 1) / (steps * 64) * 64;
    next_ = panels + all_bytes + tile * blocks * step_;
    end_ = panels + 2 * all_bytes;
  }

  // Before block b, the i-th of the groups at `groups`, if the processor's own prefetcher does not do better. One tile: each panel's own
  // bytes some blocks ahead, behind its end those of the panel V further on. Several tiles: the next V panels as one stream, spread over
  // all tiles, since only the first of them reads from memory.
  [[gnu::always_inline]] void BeforeBlock(size_t b, size_t i, const unsigned char* const (&groups)[V]) {
    if (!alone_) {
      const unsigned char* const stop = next_ + step_ < end_ ? next_ + step_ : end_;
      for (; next_ < stop; next_ += 64) __builtin_prefetch(next_, 0, kIntoL2);
      return;
    }
    constexpr size_t kShare = kGroupBytes<type> / kPanelLayout<type>.scale_blocks;  // of a panel's bytes, each block's
    if (one_stream_) {
      if (stream_ahead_ != 0) {
        const unsigned char* const ahead = groups[0] + i * kShare + stream_ahead_;
        if (into_l2_) {
          FetchLines<kIntoL2, kShare>(ahead);
        } else {
          FetchLines<kPastL2, kShare>(ahead);
        }
      }
      return;
    }
    constexpr size_t kAhead = kBlocksAhead<type, R>;
    const size_t at = (i + kAhead) * kShare + (b + kAhead < blocks_ ? 0 : other_bytes_);
#pragma GCC unroll 8
    for (size_t v = 0; v < V; ++v) {
      FetchLines<kIntoL2, kShare>(groups[v] + at);
    }
  }

 private:
  bool alone_;
  bool one_stream_, into_l2_;           // few rows go over one panel after another, fetched into L2 or past it
  size_t stream_ahead_;                 // bytes; 0: not fetched
  size_t blocks_, other_bytes_, step_;  // other_bytes_: of the other panels of a tile
  const unsigned char* next_;
  const unsigned char* end_;
};

// Where a tile's sums will be written, so that the lines are there when it is done; for reading, which this level's flags give a write as, too.
template <size_t V, size_t R>
[[gnu::always_inline]] inline void FetchOutputs(const MatMulPanels& args, size_t panel, size_t row) {
#pragma GCC unroll 16
  for (size_t r = 0; r < R; ++r) {
    const float* out = args.y + (row + r) * args.y_stride + panel * 16;
#pragma GCC unroll 16
    for (size_t v = 0; v < V; ++v) __builtin_prefetch(out + v * 16, 0, kIntoL1);
  }
}

// Rows [row, row + R) of panels [panel, panel + V): tile `tile` of `tiles`. kExpanded: their quants are bytes at args.expanded.
template <PanelType type, bool kExpanded, size_t V, size_t R>
inline void Tile(const MatMulPanels& args, size_t panel, size_t row, size_t tile, size_t tiles) {
  constexpr PanelLayout kLayout = kPanelLayout<type>;
  const size_t blocks = args.cols / 32;
  const unsigned char* panels = args.panels + panel * args.panel_bytes;
  const int8_t* q[R];
  const float* d[R];
  const float* sum[R];
  for (size_t r = 0; r < R; ++r) {
    q[r] = args.q + (row + r) * args.cols;
    d[r] = args.d + (row + r) * blocks;
    sum[r] = args.sum + (row + r) * blocks;
  }
  const unsigned char* groups[V];
  const unsigned char* bytes[V];  // of the expanded blocks
  for (size_t v = 0; v < V; ++v) {
    groups[v] = panels + v * args.panel_bytes;
    bytes[v] = kExpanded ? args.expanded + v * blocks * kExpandedBlock : nullptr;
  }
  __m512 acc[V][R];
#pragma GCC unroll 16
  for (size_t v = 0; v < V; ++v) {
#pragma GCC unroll 16
    for (size_t r = 0; r < R; ++r) acc[v][r] = _mm512_setzero_ps();
  }
  if (args.intel && tiles > 1) FetchOutputs<V, R>(args, panel, row);
  Fetcher<type, V, R> fetcher(args, panels, blocks, tile, tiles);
  Starts<type> starts[R];
  // A loop over groups and one over their blocks: with one over all blocks a Zen 5 reads K-quants from memory at half the speed.
  for (size_t b = 0; b < blocks;) {
#pragma GCC unroll 1
    for (size_t i = 0; i < kLayout.scale_blocks; ++i, ++b) {
      if (kLayout.offset != 0 && b % kStartBlocks == 0) {
        for (size_t r = 0; r < R; ++r) {
          FillStarts<type>(args.half_sums + ((row + r) * blocks + b) * 2,
                           blocks - b < kStartBlocks ? blocks - b : kStartBlocks, starts[r]);
        }
      }
      fetcher.BeforeBlock(b, i, groups);
      __m512i dot[V][R];
      __m512 s[V][R];
      const unsigned char* const(&quants)[V] = kExpanded ? bytes : groups;
      const size_t at = kExpanded ? b * kExpandedBlock : kLayout.scale_bytes + i * kLayout.quant_bytes;
      const size_t byte_scales = (kLayout.minimum ? 64 : 32) + i * 32;
      if constexpr (type == PanelType::kQ6_K) {
        Start<type, 0>(starts, b, dot);
        AddGroup<type, kExpanded, 0>(quants, at, q, b, dot);
        AddGroup<type, kExpanded, 1>(quants, at, q, b, dot);
        AddGroup<type, kExpanded, 2>(quants, at, q, b, dot);
        AddGroup<type, kExpanded, 3>(quants, at, q, b, dot);
#pragma GCC unroll 16
        for (size_t v = 0; v < V; ++v) {
          const __m512 sc = LoadSigned(groups[v] + byte_scales);
#pragma GCC unroll 16
          for (size_t r = 0; r < R; ++r) s[v][r] = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[v][r]), sc);
        }
        Start<type, 1>(starts, b, dot);
        AddGroup<type, kExpanded, 4>(quants, at, q, b, dot);
        AddGroup<type, kExpanded, 5>(quants, at, q, b, dot);
        AddGroup<type, kExpanded, 6>(quants, at, q, b, dot);
        AddGroup<type, kExpanded, 7>(quants, at, q, b, dot);
#pragma GCC unroll 16
        for (size_t v = 0; v < V; ++v) {
          const __m512 sc = LoadSigned(groups[v] + byte_scales + 16);
#pragma GCC unroll 16
          for (size_t r = 0; r < R; ++r)
            s[v][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[v][r]), sc, s[v][r]);  // exact
        }
      } else {
        Start<type, 0>(starts, b, dot);
        AddGroup<type, kExpanded, 0>(quants, at, q, b, dot);
        AddGroup<type, kExpanded, 4>(quants, at, q, b, dot);
        AddGroup<type, kExpanded, 1>(quants, at, q, b, dot);
        AddGroup<type, kExpanded, 5>(quants, at, q, b, dot);
        AddGroup<type, kExpanded, 2>(quants, at, q, b, dot);
        AddGroup<type, kExpanded, 6>(quants, at, q, b, dot);
        AddGroup<type, kExpanded, 3>(quants, at, q, b, dot);
        AddGroup<type, kExpanded, 7>(quants, at, q, b, dot);
#pragma GCC unroll 16
        for (size_t v = 0; v < V; ++v) {
#pragma GCC unroll 16
          for (size_t r = 0; r < R; ++r) s[v][r] = _mm512_cvtepi32_ps(dot[v][r]);
        }
      }
#pragma GCC unroll 16
      for (size_t v = 0; v < V; ++v) {
        __m512 d_w = LoadHalves(groups[v]);
        if constexpr (kSixBitScales<type>) d_w = _mm512_mul_ps(d_w, LoadUnsigned(groups[v] + byte_scales));
#pragma GCC unroll 16
        for (size_t r = 0; r < R; ++r) {
          const __m512 scale = _mm512_mul_ps(d_w, _mm512_set1_ps(d[r][b]));
          acc[v][r] = _mm512_fmadd_ps(s[v][r], scale, acc[v][r]);
        }
        if constexpr (kSixBitScales<type>) {  // m_w is minus this
          const __m512 m = _mm512_mul_ps(LoadHalves(groups[v] + 32), LoadUnsigned(groups[v] + byte_scales + 16));
#pragma GCC unroll 16
          for (size_t r = 0; r < R; ++r) acc[v][r] = _mm512_fnmadd_ps(m, _mm512_set1_ps(sum[r][b]), acc[v][r]);
        } else if constexpr (kLayout.minimum) {
          const __m512 m_w = LoadHalves(groups[v] + 32);
#pragma GCC unroll 16
          for (size_t r = 0; r < R; ++r) acc[v][r] = _mm512_fmadd_ps(m_w, _mm512_set1_ps(sum[r][b]), acc[v][r]);
        }
      }
    }
#pragma GCC unroll 16
    for (size_t v = 0; v < V; ++v) groups[v] += kGroupBytes<type>;
  }
  const size_t outputs = args.outputs - panel * 16;
#pragma GCC unroll 16
  for (size_t v = 0; v < V; ++v) {
    const size_t first = v * 16;
    const size_t valid = outputs - first < 16 ? outputs - first : 16;
    const __mmask16 mask = static_cast<__mmask16>((1U << valid) - 1);
#pragma GCC unroll 16
    for (size_t r = 0; r < R; ++r) {
      float* out = args.y + (row + r) * args.y_stride + panel * 16 + first;
      __m512 value = acc[v][r];
      if (args.accumulate) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), value);
      _mm512_mask_storeu_ps(out, mask, value);
    }
  }
}

// A tile of `rows` rows, in [low, R].
template <PanelType type, bool kExpanded, size_t V, size_t low, size_t R>
inline void TileOfRows(const MatMulPanels& args, size_t panel, size_t row, size_t rows, size_t tile, size_t tiles) {
  if constexpr (R > low) {
    if (rows < R) return TileOfRows<type, kExpanded, V, low, R - 1>(args, panel, row, rows, tile, tiles);
  }
  Tile<type, kExpanded, V, R>(args, panel, row, tile, tiles);
}

// All rows, at least `low`, of V panels, in tiles of at most `most`, which R is or more: 8 rows as 4 + 4, since 6 + 2 unpacks weights for two
// rows only.
template <PanelType type, size_t V, size_t low, size_t R, bool kExpanded = false>
inline void AllRows(const MatMulPanels& args, size_t panel, size_t most = R) {
  const size_t tiles = (args.rows + most - 1) / most;
  size_t row = 0;
  for (size_t tile = 0; tile < tiles; ++tile) {
    const size_t rows = (args.rows - row) / (tiles - tile);
    TileOfRows<type, kExpanded, V, low, R>(args, panel, row, rows, tile, tiles);
    row += rows;
  }
}

template <PanelType type>
void MatMul(const MatMulPanels& args) {
  constexpr size_t kMaxPair = PairTile(type, true);
  const size_t pair_tile = PairTile(type, args.intel);
  size_t panel = 0;
  if (args.rows <= StreamRows(args.zen5)) {
    // one panel after another
  } else if (args.rows == 2) {  // four panels, so that enough sums are in flight
    for (; panel + 4 <= args.num_panels; panel += 4) AllRows<type, 4, 2, 2>(args, panel);
  } else if (Expands<type>(args.intel) && args.rows > kFewRows && args.expanded != nullptr) {
    if constexpr (Expands<type>(true)) {
      const size_t blocks = args.cols / 32;
      for (; panel + 2 <= args.num_panels; panel += 2) {
        for (size_t v = 0; v < 2; ++v)
          Expand<type>(args.panels + (panel + v) * args.panel_bytes, blocks,
                       args.expanded + v * blocks * kExpandedBlock);
        AllRows<type, 2, MinRows(PairTile(type, !Expands<type>(false))), kMaxPair, true>(args, panel, pair_tile);
      }
    }
  } else if (args.rows <= kPairRows(type)) {
    constexpr size_t kLow = kLowTiles ? 1 : 3, kMax = kMaxPair < kPairRows(type) ? kMaxPair : kPairRows(type);
    for (; panel + 2 <= args.num_panels; panel += 2)
      AllRows<type, 2, kLow, kMax>(args, panel, pair_tile < kMax ? pair_tile : kMax);
  }
  for (; panel < args.num_panels; ++panel) AllRows<type, 1, 1, kSingleTile(type)>(args, panel);
}

}  // namespace

MatMulKernel PickMatMul(PanelType type) {
  switch (type) {
    case PanelType::kQ8_0: return MatMul<PanelType::kQ8_0>;
    case PanelType::kQ4_0: return MatMul<PanelType::kQ4_0>;
    case PanelType::kQ4_1: return MatMul<PanelType::kQ4_1>;
    case PanelType::kQ5_0: return MatMul<PanelType::kQ5_0>;
    case PanelType::kQ5_1: return MatMul<PanelType::kQ5_1>;
    case PanelType::kQ4_K: return MatMul<PanelType::kQ4_K>;
    case PanelType::kQ5_K: return MatMul<PanelType::kQ5_K>;
    case PanelType::kQ6_K: return MatMul<PanelType::kQ6_K>;
  }
  StopOnFailedCheck("a panel type with a kernel", __FILE__, __LINE__);
}

PeakRun DotPeak(PeakShape shape, size_t iterations) {
  const __m512i bytes = _mm512_set1_epi8(3);
  constexpr double kOperations = 2 * 64;
  if (shape == PeakShape::kSecond) {
    constexpr size_t kChains = 12;
    __m512i sum[kChains];
    for (size_t c = 0; c < kChains; ++c) sum[c] = bytes;
    for (size_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
      for (size_t c = 0; c < kChains; ++c)
        sum[c] = _mm512_dpbusd_epi32(bytes, sum[c], sum[c]);  // the sum is a factor, too
    }
    for (size_t c = 1; c < kChains; ++c) sum[0] = _mm512_add_epi32(sum[0], sum[c]);
    const auto count = static_cast<double>(kChains * iterations);
    return {kOperations * count, count, static_cast<double>(_mm512_cvtsi512_si32(sum[0]))};
  }
  constexpr size_t kChains = 12;  // latency 4, two a cycle; eight reach 0.90 of a Zen 5's rate
  // Variables, not an array: compilers keep an array that assembly writes in memory, which halves the rate.
  __m512i a = bytes, b = bytes, c = bytes, d = bytes, e = bytes, f = bytes, g = bytes, h = bytes;
  __m512i j = bytes, k = bytes, l = bytes, m = bytes;
  const auto dot = [bytes](__m512i & sum) __attribute__((always_inline)) {
    __asm__ volatile("vpdpbusd %1, %1, %0" : "+v"(sum) : "v"(bytes));  // every round counts
  };
  for (size_t i = 0; i < iterations; ++i) {
    dot(a), dot(b), dot(c), dot(d), dot(e), dot(f), dot(g), dot(h), dot(j), dot(k), dot(l), dot(m);
  }
  const auto count = static_cast<double>(kChains * iterations);
  return {kOperations * count, count, 0};
}

}  // namespace tidemill::vnni
