// Panels times rows: which blocks meet which tiles, and how they come from memory. One block: block_avx2-inl.h.
//
// A group of panels goes through the first tile's rows together, block by block, and is fetched into L2 4 KiB ahead (Q8_0: 2 KiB) and on into the
// next group. One row:
//   Zen 3   Q8_0 over four panels side by side, line by line, nothing fetched; others over two, block by block, into L1 1 KiB ahead, since its
//           prefetchers follow the stride of each instruction
//   Zen 4   one panel after another, past L2 4 KiB ahead (Q8_0: not fetched); others that are not named, too
//   Zen 5   two rows as one: one panel after another, past L2 8 KiB ahead
//   Intel   one panel after another, into L2 4 KiB ahead (matmul_vnni.cc says why)
// Past the first tile, weights and their scales, as f32, are unpacked once for 8 tiles; 8-bit ones for 16, without their offset. Q8_0 from biased
// blocks, for 32 tiles: biased_block_avx2-inl.h.
//
// Won, decode: one stream for four, 1.01 to 1.22 times as fast (Zen 4) and 1.10 to 1.32 (Zen 5); a Zen 3's Q8_0 1.09 to 1.19, others 1.02 to 1.10. Blocks
// that are unpacked once, with their scales: prefill 1.00 to 1.10 (Zen 4).
// Lost: other distances, no prefetches, more panels at once, blocks for 16 tiles. All numbers: benchmarks/results/kernel_matmul.md.
#include "kernels/cpu/matmul_avx2.h"

#include <immintrin.h>

#include "base/check.h"
#include "kernels/cpu/biased_block_avx2-inl.h"
#include "kernels/cpu/block_avx2-inl.h"

namespace tidemill::avx2 {
namespace {

constexpr size_t kTileRows = kLowTiles ? 2 : 4;
constexpr size_t kUnpackedBlocks = 8;  // blocks unpacked at once: 256 columns
// How far ahead a panel is fetched where one comes after another.
constexpr size_t kZen5Ahead = 8192, kStreamAhead = 4096;

// What an unpacked block's sums are made from: q or pairs of QuantizedRows, or its biased blocks, by integer additions or by those of f32.
enum class Sums { kUsual, kBiased, kBiasedFloat };

// Tiles that share unpacked blocks.
template <PanelType type, Sums sums>
constexpr size_t kUnpackedTiles = sums != Sums::kUsual ? 32 : (type == PanelType::kQ8_0 ? 16 : 8);

// Of a panel's bytes, each block's.
template <PanelType type>
constexpr size_t kBlockBytes = kGroupBytes<type> / kPanelLayout<type>.scale_blocks;

// How a first tile takes panels: so many together, each a stream from memory, and how the block about so many bytes ahead is fetched.
template <PanelType type>
struct UsualStreams {
  static constexpr size_t kPanels = kGroupPanels, kAhead = type == PanelType::kQ8_0 ? 2048 : 4096;
  [[gnu::always_inline]] static void Fetch(const unsigned char* block) {
    FetchLines<kIntoL2, kBlockBytes<type>>(block);
  }
};
template <PanelType type>
struct Zen3Streams {
  static constexpr size_t kPanels = 2, kAhead = 1024;
  [[gnu::always_inline]] static void Fetch(const unsigned char* block) {
#pragma GCC unroll 1  // one instruction, which goes from line to line
    for (size_t line = 0; line < kBlockBytes<type>; line += 64) __builtin_prefetch(block + line, 0, kIntoL1);
  }
};

// y of `rows` rows and one panel from acc [rows][16]
[[gnu::noinline]] void Store(const MatMulPanels& args, const float* acc, size_t panel, size_t row, size_t rows) {
  const size_t left = args.outputs - panel * 16;
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (size_t h = 0; h < 2; ++h) {
    const int valid = left < h * 8 ? 0 : left - h * 8 < 8 ? static_cast<int>(left - h * 8) : 8;
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(valid), lanes);
    for (size_t r = 0; r < rows; ++r) {
      float* out = args.y + (row + r) * args.y_stride + panel * 16 + h * 8;
      __m256 value = _mm256_load_ps(acc + r * 16 + h * 8);
      if (args.accumulate) value = _mm256_add_ps(_mm256_maskload_ps(out, mask), value);
      _mm256_maskstore_ps(out, mask, value);
    }
  }
}

// One panel times R rows. kAhead: so many bytes ahead it is brought from memory, as kLocality says; 0: not at all.
template <PanelType type, size_t R, size_t kAhead = 0, int kLocality = kPastL2>
void Tile(const MatMulPanels& args, size_t panel, size_t row) {
  const size_t blocks = args.cols / 32;
  const unsigned char* group = args.panels + panel * args.panel_bytes;
  alignas(32) float acc[R * 16] = {};
  TileRows rows = RowsFrom(args, row, 0);
  for (size_t b = 0; b < blocks; group += kGroupBytes<type>) {
    for (size_t i = 0; i < kPanelLayout<type>.scale_blocks; ++i, ++b) {
      if constexpr (kAhead != 0) FetchLines<kLocality, kBlockBytes<type>>(group + i * kBlockBytes<type> + kAhead);
      AddBlock<type, false, R>(QuantsOf<type>(group, i), ScalesOf<type>(group, i), rows, acc);
      Advance(rows);
      __asm__("" : : "r"(acc) : "memory");  // these sums stay in memory: registers are for the block's
    }
  }
  Store(args, acc, panel, row, R);
}

// Groups g of a block, and its scales.
template <PanelType type, size_t... g>
[[gnu::always_inline]] inline void Unpack(const unsigned char* block, BlockScales scales, unsigned char* to) {
#pragma GCC unroll 2
  for (size_t h = 0; h < 2; ++h) {
    const HalfScales half = HalfScalesOf<type>(scales, h);
    auto* floats = reinterpret_cast<float*>(to + kUnpackedQuants<type>) + h * 8;
    _mm256_store_ps(floats, half.d);
    _mm256_store_ps(floats + 16, half.m);
    if constexpr (type == PanelType::kQ6_K) {
      const Factors factors = FactorsOf(scales, h);
      auto* at = reinterpret_cast<__m256i*>(to + kUnpackedFactors + h * 96);
      _mm256_store_si256(at, factors.first);
      _mm256_store_si256(at + 1, factors.second);
      _mm256_store_si256(at + 2, factors.offsets);
    }
  }
  if constexpr (type == PanelType::kQ8_0) {
    const __m256i offset = _mm256_set1_epi16(kPanelLayout<type>.offset);
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

// A tile's rows from block b on, as the unpacked block reads them.
template <Sums sums>
[[gnu::always_inline]] inline auto UnpackedRows(const MatMulPanels& args, size_t row, size_t b) {
  if constexpr (sums != Sums::kUsual) {
    return BiasedRowsFrom<kTileRows>(args, row, b);
  } else {
    return RowsFrom(args, row, b);
  }
}

// One panel times `tiles` tiles of rows, which share unpacked blocks.
template <PanelType type, Sums sums>
void UnpackedBlock(const MatMulPanels& args, size_t panel, size_t row, size_t tiles) {
  const size_t blocks = args.cols / 32;
  constexpr size_t kGroupBlocks = kPanelLayout<type>.scale_blocks;
  static_assert(kUnpackedBlocks % kGroupBlocks == 0);
  const unsigned char* groups = args.panels + panel * args.panel_bytes;
  alignas(32) float acc[kUnpackedTiles<type, sums>][kTileRows * 16] = {};
  alignas(32) unsigned char unpacked[kUnpackedBlocks * kUnpackedBytes<type>];
  for (size_t first = 0; first < blocks; first += kUnpackedBlocks) {
    const size_t count = blocks - first < kUnpackedBlocks ? blocks - first : kUnpackedBlocks;
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
      auto rows = UnpackedRows<sums>(args, row + t * kTileRows, first);
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
  Store(args, acc[0], panel, row, tiles * kTileRows);
}

// As many whole tiles as are worth it, from `row` on. Returns the row that comes after them.
template <PanelType type, Sums sums>
size_t UnpackedBlocks(const MatMulPanels& args, size_t panel, size_t row) {
  constexpr size_t kMax = kUnpackedTiles<type, sums>;
  while (row + 2 * kTileRows <= args.rows) {
    const size_t left = (args.rows - row) / kTileRows, tiles = left < kMax ? left : kMax;
    UnpackedBlock<type, sums>(args, panel, row, tiles);
    row += tiles * kTileRows;
  }
  return row;
}

// A group of panels, coming from memory, times the first R rows, block by block.
template <PanelType type, size_t R, class Streams>
void StreamTile(const MatMulPanels& args, size_t panel, size_t panels) {
  const size_t blocks = args.cols / 32, panel_bytes = args.panel_bytes;
  const unsigned char* group = args.panels + panel * panel_bytes;
  alignas(32) float acc[Streams::kPanels][R * 16] = {};
  TileRows rows = RowsFrom(args, 0, 0);
  for (size_t b = 0; b < blocks; group += kGroupBytes<type>) {
    for (size_t i = 0; i < kPanelLayout<type>.scale_blocks; ++i, ++b) {
      // The panels' own bytes some blocks ahead, behind their ends those of the next group of panels.
      constexpr size_t kBlocksAhead = Streams::kAhead / kPanelLayout<type>.quant_bytes;
      const size_t ahead = kBlocksAhead < blocks ? kBlocksAhead : blocks;
      const unsigned char* next =
          group + (i + ahead) * kBlockBytes<type> + (b + ahead < blocks ? 0 : (Streams::kPanels - 1) * panel_bytes);
      for (size_t s = 0; s < panels; ++s) {
        const unsigned char* of_panel = group + s * panel_bytes;
        Streams::Fetch(next + s * panel_bytes);
        AddBlock<type, false, R>(QuantsOf<type>(of_panel, i), ScalesOf<type>(of_panel, i), rows, acc[s]);
        __asm__("" : : "r"(acc) : "memory");
      }
      Advance(rows);
    }
  }
  for (size_t s = 0; s < panels; ++s) Store(args, acc[s], panel + s, 0, R);
}

// The first rows, at least two and a tile at most.
template <PanelType type, size_t R = kTileRows>
void FirstRows(const MatMulPanels& args, size_t panel, size_t panels) {
  if constexpr (R > 2) {
    if (args.rows < R) return FirstRows<type, R - 1>(args, panel, panels);
  }
  StreamTile<type, R, UsualStreams<type>>(args, panel, panels);
}

// The next rows, a tile at most.
template <PanelType type, size_t R = kTileRows>
void Rows(const MatMulPanels& args, size_t panel, size_t row) {
  if constexpr (R > 1) {
    if (args.rows - row < R) return Rows<type, R - 1>(args, panel, row);
  }
  Tile<type, R>(args, panel, row);
}

// All panels times R rows, where one panel after another is one stream to the processor.
template <PanelType type, size_t R, size_t kAhead, int kLocality = kPastL2>
void OneStream(const MatMulPanels& args) {
  for (size_t panel = 0; panel < args.num_panels; ++panel) Tile<type, R, kAhead, kLocality>(args, panel, 0);
}

// Four panels of Q8_0 times one row.
void FourPanels(const MatMulPanels& args, size_t panel) {
  const unsigned char* blocks[4];
  for (size_t s = 0; s < 4; ++s) blocks[s] = args.panels + (panel + s) * args.panel_bytes;
  alignas(32) float acc[4][16] = {};
  TileRows row = RowsFrom(args, 0, 0);
  for (size_t b = 0; b < args.cols / 32; ++b) {
    AddBlocksSideBySide<0, 1, 2, 3, 4, 5, 6, 7>(blocks, row, acc);
    Advance(row);
    for (size_t s = 0; s < 4; ++s) blocks[s] += kGroupBytes<PanelType::kQ8_0>;
    __asm__("" : : "r"(acc) : "memory");
  }
  for (size_t s = 0; s < 4; ++s) Store(args, acc[s], panel + s, 0, 1);
}

// All panels times one row.
template <PanelType type>
void OneRowOnZen3(const MatMulPanels& args) {
  size_t panel = 0;
  if constexpr (type == PanelType::kQ8_0) {
    for (; panel + 4 <= args.num_panels; panel += 4) FourPanels(args, panel);
    for (; panel < args.num_panels; ++panel) Tile<type, 1>(args, panel, 0);
  } else {
    using Streams = Zen3Streams<type>;
    for (; panel < args.num_panels; panel += Streams::kPanels) {
      const size_t left = args.num_panels - panel;
      StreamTile<type, 1, Streams>(args, panel, left < Streams::kPanels ? left : Streams::kPanels);
    }
  }
}

template <PanelType type>
void MatMul(const MatMulPanels& args) {
  if (args.zen5 && args.rows == 1) return OneStream<type, 1, kZen5Ahead>(args);
  if (args.zen5 && args.rows == 2) return OneStream<type, 2, kZen5Ahead>(args);
  if (args.zen3 && args.rows == 1) return OneRowOnZen3<type>(args);
  if (args.intel && args.rows == 1) return OneStream<type, 1, kStreamAhead, kIntoL2>(args);
  constexpr size_t kAhead = type == PanelType::kQ8_0 ? 0 : kStreamAhead;
  if (args.rows == 1) return OneStream<type, 1, kAhead>(args);
  for (size_t panel = 0; panel < args.num_panels; panel += kGroupPanels) {
    const size_t panels = args.num_panels - panel < kGroupPanels ? args.num_panels - panel : kGroupPanels;
    FirstRows<type>(args, panel, panels);
    for (size_t s = panel; s < panel + panels; ++s) {
      size_t row = kTileRows;
      if constexpr (type == PanelType::kQ8_0) {
        if (args.biased != nullptr) {
          row = args.zen3 ? UnpackedBlocks<type, Sums::kBiased>(args, s, row)
                          : UnpackedBlocks<type, Sums::kBiasedFloat>(args, s, row);
        }
      }
      row = UnpackedBlocks<type, Sums::kUsual>(args, s, row);
      for (; row < args.rows; row += kTileRows) Rows<type>(args, s, row);
    }
  }
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

}  // namespace tidemill::avx2
