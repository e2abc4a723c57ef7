// Strips times rows: which blocks meet which tiles, and how they come from memory. One block: block_avx2-inl.h.
//
// A group of strips goes through the first tile's rows together, block by block, and is fetched into L2 4 KiB ahead (Q8_0: 2 KiB) and on into the
// next group. One row:
//   Zen 3   Q8_0 over four strips side by side, line by line, nothing fetched; others over two, block by block, into L1 1 KiB ahead, since its
//           prefetchers follow the stride of each instruction
//   Zen 4   one strip after another, past L2 4 KiB ahead (Q8_0: not fetched); others that are not named, too
//   Zen 5   two rows as one: one strip after another, past L2 8 KiB ahead
//   Intel   one strip after another, into L2 4 KiB ahead (matmul_vnni.cc says why)
// Past the first tile, weights and their scales, as f32, are unpacked once for 8 tiles; 8-bit ones for 16, without their offset. Q8_0 from biased
// blocks, for 32 tiles: biased_block_avx2-inl.h.
//
// Won, decode: one stream for four, 1.01 to 1.22 times as fast (Zen 4) and 1.10 to 1.32 (Zen 5); a Zen 3's Q8_0 1.09 to 1.19, others 1.02 to 1.10. Blocks
// that are unpacked once, with their scales: prefill 1.00 to 1.10 (Zen 4).
// Lost: other distances, no prefetches, more strips at once, blocks for 16 tiles. All numbers: benchmarks/results/kernel_matmul.md.
#include "kernels/cpu/matmul_avx2.h"

#include <immintrin.h>

#include "base/check.h"
#include "kernels/cpu/biased_block_avx2-inl.h"
#include "kernels/cpu/block_avx2-inl.h"

namespace tidemill::avx2 {
namespace {

constexpr size_t kTileRows = kLowTiles ? 2 : 4;
constexpr size_t kPanelBlocks = 8;  // blocks unpacked at once: 256 columns
// How far ahead a strip is fetched where one comes after another.
constexpr size_t kZen5Ahead = 8192, kStreamAhead = 4096;

// What a panel's sums are made from: q or pairs of QuantizedRows, or its biased blocks, by integer additions or by those of f32.
enum class Sums { kUsual, kBiased, kBiasedFloat };

// Tiles that share unpacked blocks.
template <StripType type, Sums sums>
constexpr size_t kPanelTiles = sums != Sums::kUsual ? 32 : (type == StripType::kQ8_0 ? 16 : 8);

// Of a strip's bytes, each block's.
template <StripType type>
constexpr size_t kBlockBytes = kGroupBytes<type> / kStripLayout<type>.scale_blocks;

// How a first tile takes strips: so many together, each a stream from memory, and how the block about so many bytes ahead is fetched.
template <StripType type>
struct UsualStreams {
  static constexpr size_t kStrips = kGroupStrips, kAhead = type == StripType::kQ8_0 ? 2048 : 4096;
  [[gnu::always_inline]] static void Fetch(const unsigned char* block) {
    FetchLines<kIntoL2, kBlockBytes<type>>(block);
  }
};
template <StripType type>
struct Zen3Streams {
  static constexpr size_t kStrips = 2, kAhead = 1024;
  [[gnu::always_inline]] static void Fetch(const unsigned char* block) {
#pragma GCC unroll 1  // one instruction, which goes from line to line
    for (size_t line = 0; line < kBlockBytes<type>; line += 64) __builtin_prefetch(block + line, 0, kIntoL1);
  }
};

// y of `rows` rows and one strip from acc [rows][16]
[[gnu::noinline]] void Store(const MatMulStrips& args, const float* acc, size_t strip, size_t row, size_t rows) {
  const size_t left = args.outputs - strip * 16;
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (size_t h = 0; h < 2; ++h) {
    const int valid = left < h * 8 ? 0 : left - h * 8 < 8 ? static_cast<int>(left - h * 8) : 8;
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(valid), lanes);
    for (size_t r = 0; r < rows; ++r) {
      float* out = args.y + (row + r) * args.y_stride + strip * 16 + h * 8;
      __m256 value = _mm256_load_ps(acc + r * 16 + h * 8);
      if (args.accumulate) value = _mm256_add_ps(_mm256_maskload_ps(out, mask), value);
      _mm256_maskstore_ps(out, mask, value);
    }
  }
}

// One strip times R rows. kAhead: so many bytes ahead it is brought from memory, as kLocality says; 0: not at all.
template <StripType type, size_t R, size_t kAhead = 0, int kLocality = kPastL2>
void Tile(const MatMulStrips& args, size_t strip, size_t row) {
  const size_t blocks = args.cols / 32;
  const unsigned char* group = args.strips + strip * args.strip_bytes;
  alignas(32) float acc[R * 16] = {};
  TileRows rows = RowsFrom(args, row, 0);
  for (size_t b = 0; b < blocks; group += kGroupBytes<type>) {
    for (size_t i = 0; i < kStripLayout<type>.scale_blocks; ++i, ++b) {
      if constexpr (kAhead != 0) FetchLines<kLocality, kBlockBytes<type>>(group + i * kBlockBytes<type> + kAhead);
      AddBlock<type, false, R>(QuantsOf<type>(group, i), ScalesOf<type>(group, i), rows, acc);
      Advance(rows);
      __asm__("" : : "r"(acc) : "memory");  // these sums stay in memory: registers are for the block's
    }
  }
  Store(args, acc, strip, row, R);
}

// Groups g of a block, and its scales.
template <StripType type, size_t... g>
[[gnu::always_inline]] inline void Unpack(const unsigned char* block, BlockScales scales, unsigned char* to) {
#pragma GCC unroll 2
  for (size_t h = 0; h < 2; ++h) {
    const HalfScales half = HalfScalesOf<type>(scales, h);
    auto* floats = reinterpret_cast<float*>(to + kUnpackedQuants<type>) + h * 8;
    _mm256_store_ps(floats, half.d);
    _mm256_store_ps(floats + 16, half.m);
    if constexpr (type == StripType::kQ6_K) {
      const Factors factors = FactorsOf(scales, h);
      auto* at = reinterpret_cast<__m256i*>(to + kUnpackedFactors + h * 96);
      _mm256_store_si256(at, factors.first);
      _mm256_store_si256(at + 1, factors.second);
      _mm256_store_si256(at + 2, factors.offsets);
    }
  }
  if constexpr (type == StripType::kQ8_0) {
    const __m256i offset = _mm256_set1_epi16(kStripLayout<type>.offset);
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; ++i) {
      const Words words = LoadWords<false>(block, i / 2, i % 2);
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + i * 64), _mm256_sub_epi16(words.even, offset));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + i * 64 + 32), _mm256_sub_epi16(words.odd, offset));
    }
  } else {
#pragma GCC unroll 2
    for (size_t h = 0; h < 64; h += 32) {
      (_mm256_store_si256(reinterpret_cast<__m256i*>(to + g * 64 + h), LoadGroup<type, false, g>(block + h)), ...);
    }
  }
}

// A tile's rows from block b on, as the panel reads them.
template <Sums sums>
[[gnu::always_inline]] inline auto PanelRows(const MatMulStrips& args, size_t row, size_t b) {
  if constexpr (sums != Sums::kUsual) {
    return BiasedRowsFrom<kTileRows>(args, row, b);
  } else {
    return RowsFrom(args, row, b);
  }
}

// One strip times `tiles` tiles of rows, which share unpacked blocks.
template <StripType type, Sums sums>
void Panel(const MatMulStrips& args, size_t strip, size_t row, size_t tiles) {
  const size_t blocks = args.cols / 32;
  constexpr size_t kGroupBlocks = kStripLayout<type>.scale_blocks;
  static_assert(kPanelBlocks % kGroupBlocks == 0);
  const unsigned char* groups = args.strips + strip * args.strip_bytes;
  alignas(32) float acc[kPanelTiles<type, sums>][kTileRows * 16] = {};
  alignas(32) unsigned char unpacked[kPanelBlocks * kUnpackedBytes<type>];
  for (size_t first = 0; first < blocks; first += kPanelBlocks) {
    const size_t count = blocks - first < kPanelBlocks ? blocks - first : kPanelBlocks;
    for (size_t i = 0; i < count; ++i) {
      const unsigned char* group = groups + (first + i) / kGroupBlocks * kGroupBytes<type>;
      const unsigned char* block = QuantsOf<type>(group, i % kGroupBlocks);
      const BlockScales scales = ScalesOf<type>(group, i % kGroupBlocks);
      unsigned char* to = unpacked + i * kUnpackedBytes<type>;
      if constexpr (sums != Sums::kUsual) {
        UnpackBiased(block, scales, to);
      } else {
        Unpack<type, 0, 1, 2, 3, 4, 5, 6, 7>(block, scales, to);
      }
    }
    for (size_t t = 0; t < tiles; ++t) {
      auto rows = PanelRows<sums>(args, row + t * kTileRows, first);
      for (size_t i = 0; i < count; ++i) {
        const unsigned char* block = unpacked + i * kUnpackedBytes<type>;
        if constexpr (sums != Sums::kUsual) {
          AddBiased<sums == Sums::kBiasedFloat>(block, rows, acc[t]);
        } else {
          AddBlock<type, true, kTileRows>(block, {}, rows, acc[t]);
        }
        Advance(rows);
        __asm__("" : : "r"(acc) : "memory");
      }
    }
  }
  Store(args, acc[0], strip, row, tiles * kTileRows);
}

// As many whole tiles as are worth it, from `row` on. Returns the row that comes after them.
template <StripType type, Sums sums>
size_t Panels(const MatMulStrips& args, size_t strip, size_t row) {
  constexpr size_t kMost = kPanelTiles<type, sums>;
  while (row + 2 * kTileRows <= args.rows) {
    const size_t left = (args.rows - row) / kTileRows, tiles = left < kMost ? left : kMost;
    Panel<type, sums>(args, strip, row, tiles);
    row += tiles * kTileRows;
  }
  return row;
}

// A group of strips, coming from memory, times the first R rows, block by block.
template <StripType type, size_t R, class Streams>
void StreamTile(const MatMulStrips& args, size_t strip, size_t strips) {
  const size_t blocks = args.cols / 32, strip_bytes = args.strip_bytes;
  const unsigned char* group = args.strips + strip * strip_bytes;
  alignas(32) float acc[Streams::kStrips][R * 16] = {};
  TileRows rows = RowsFrom(args, 0, 0);
  for (size_t b = 0; b < blocks; group += kGroupBytes<type>) {
    for (size_t i = 0; i < kStripLayout<type>.scale_blocks; ++i, ++b) {
      // The strips' own bytes some blocks ahead, behind their ends those of the next group of strips.
      constexpr size_t kBlocksAhead = Streams::kAhead / kStripLayout<type>.quant_bytes;
      const size_t ahead = kBlocksAhead < blocks ? kBlocksAhead : blocks;
      const unsigned char* next =
          group + (i + ahead) * kBlockBytes<type> + (b + ahead < blocks ? 0 : (Streams::kStrips - 1) * strip_bytes);
      for (size_t s = 0; s < strips; ++s) {
        const unsigned char* of_strip = group + s * strip_bytes;
        Streams::Fetch(next + s * strip_bytes);
        AddBlock<type, false, R>(QuantsOf<type>(of_strip, i), ScalesOf<type>(of_strip, i), rows, acc[s]);
        __asm__("" : : "r"(acc) : "memory");
      }
      Advance(rows);
    }
  }
  for (size_t s = 0; s < strips; ++s) Store(args, acc[s], strip + s, 0, R);
}

// The first rows, at least two and a tile at most.
template <StripType type, size_t R = kTileRows>
void FirstRows(const MatMulStrips& args, size_t strip, size_t strips) {
  if constexpr (R > 2) {
    if (args.rows < R) return FirstRows<type, R - 1>(args, strip, strips);
  }
  StreamTile<type, R, UsualStreams<type>>(args, strip, strips);
}

// The next rows, a tile at most.
template <StripType type, size_t R = kTileRows>
void Rows(const MatMulStrips& args, size_t strip, size_t row) {
  if constexpr (R > 1) {
    if (args.rows - row < R) return Rows<type, R - 1>(args, strip, row);
  }
  Tile<type, R>(args, strip, row);
}

// All strips times R rows, where one strip after another is one stream to the processor.
template <StripType type, size_t R, size_t kAhead, int kLocality = kPastL2>
void OneStream(const MatMulStrips& args) {
  for (size_t strip = 0; strip < args.num_strips; ++strip) Tile<type, R, kAhead, kLocality>(args, strip, 0);
}

// Four strips of Q8_0 times one row.
void FourStrips(const MatMulStrips& args, size_t strip) {
  const unsigned char* blocks[4];
  for (size_t s = 0; s < 4; ++s) blocks[s] = args.strips + (strip + s) * args.strip_bytes;
  alignas(32) float acc[4][16] = {};
  TileRows row = RowsFrom(args, 0, 0);
  for (size_t b = 0; b < args.cols / 32; ++b) {
    AddBlocksSideBySide<0, 1, 2, 3, 4, 5, 6, 7>(blocks, row, acc);
    Advance(row);
    for (size_t s = 0; s < 4; ++s) blocks[s] += kGroupBytes<StripType::kQ8_0>;
    __asm__("" : : "r"(acc) : "memory");
  }
  for (size_t s = 0; s < 4; ++s) Store(args, acc[s], strip + s, 0, 1);
}

// All strips times one row.
template <StripType type>
void OneRowOnZen3(const MatMulStrips& args) {
  size_t strip = 0;
  if constexpr (type == StripType::kQ8_0) {
    for (; strip + 4 <= args.num_strips; strip += 4) FourStrips(args, strip);
    for (; strip < args.num_strips; ++strip) Tile<type, 1>(args, strip, 0);
  } else {
    using Streams = Zen3Streams<type>;
    for (; strip < args.num_strips; strip += Streams::kStrips) {
      const size_t left = args.num_strips - strip;
      StreamTile<type, 1, Streams>(args, strip, left < Streams::kStrips ? left : Streams::kStrips);
    }
  }
}

template <StripType type>
void MatMul(const MatMulStrips& args) {
  if (args.zen5 && args.rows == 1) return OneStream<type, 1, kZen5Ahead>(args);
  if (args.zen5 && args.rows == 2) return OneStream<type, 2, kZen5Ahead>(args);
  if (args.zen3 && args.rows == 1) return OneRowOnZen3<type>(args);
  if (args.intel && args.rows == 1) return OneStream<type, 1, kStreamAhead, kIntoL2>(args);
  constexpr size_t kAhead = type == StripType::kQ8_0 ? 0 : kStreamAhead;
  if (args.rows == 1) return OneStream<type, 1, kAhead>(args);
  for (size_t strip = 0; strip < args.num_strips; strip += kGroupStrips) {
    const size_t strips = args.num_strips - strip < kGroupStrips ? args.num_strips - strip : kGroupStrips;
    FirstRows<type>(args, strip, strips);
    for (size_t s = strip; s < strip + strips; ++s) {
      size_t row = kTileRows;
      if constexpr (type == StripType::kQ8_0) {
        if (args.biased != nullptr) {
          row = args.zen3 ? Panels<type, Sums::kBiased>(args, s, row) : Panels<type, Sums::kBiasedFloat>(args, s, row);
        }
      }
      row = Panels<type, Sums::kUsual>(args, s, row);
      for (; row < args.rows; row += kTileRows) Rows<type>(args, s, row);
    }
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
  StopOnFailedCheck("a strip type with a kernel", __FILE__, __LINE__);
}

}  // namespace tidemill::avx2
