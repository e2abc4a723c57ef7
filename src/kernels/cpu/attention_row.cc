// Few query rows: every key and value is used once for each of their heads, so both are taken from the cache as they stand. Transposed key tiles
// (kernels/key_tiles.h), all but the last few keys, are multiplied as they come. Keys in rows are transposed in registers, made f32 and kept in L1.
// Lanes are positions: a score is one chain over head_dim, and several chains hide each other's latency. The weighted sum has lanes along head_dim.
//
// Won: key tiles, decode at depth 8000 up to 1.23 times as fast (SmolLM2, Zen 4). One prefetched stream 4 and 8 KiB ahead; past L2 on a Zen 5, 1.02 to
// 1.32; two halves side by side on a Zen 3, decode 1.22 at depth 8000, and on an Intel, 1.02 to 1.31.
// Lost: other distances, into L1, several rows side by side on a Zen 3; a test for the kind of prefetch beside each line (Zen 5).
// All numbers: benchmarks/results/kernel_attention.md.
#include <cstring>
#include <type_traits>

#include "kernels/cpu/attention_fetch.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/low_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_row.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/key_columns-inl.h"
#include "kernels/cpu/outer_product-inl.h"
#include "kernels/cpu/vector_math-inl.h"
#include "kernels/cpu/weigh_block-inl.h"
#include "kernels/key_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

// The baseline's speed is nobody's, and sanitizers take minutes to compile more: few shapes there.
constexpr bool kFewShapes = kLowTiles || HWY_TARGET == HWY_SSE4;

// Heads that share one pass over keys or values: their sums stay in registers.
constexpr size_t kMaxHeads = kFewShapes ? 2 : HWY_MAX_BYTES >= 64 ? 8 : 4;

// Vectors of keys that are multiplied together: their chains hide each other's latency. Sums of so many registers.
constexpr size_t kKeyVectors = kFewShapes || HWY_MAX_BYTES < 64 ? 2 : 4;
constexpr size_t kSums = kFewShapes ? 8 : HWY_MAX_BYTES >= 64 ? 24 : 12;
constexpr size_t kTileVectors = kKeyTileRows / hn::MaxLanes(Lane16());  // of a tile of keys
// Tiles of keys that are multiplied together.
constexpr size_t kTiles = HWY_MAX(1, kKeyVectors / kTileVectors);

// Columns that are made f32 before they are multiplied, so that they stay in L1.
constexpr size_t kPart = 64;
static_assert(kKeyVectors * kPart * 16 <= kKeptFloats);

// The rows of a block are read side by side, which no hardware prefetcher follows. A block of keys, one for each lane, that is longer than the
// first distance is fetched a block ahead: all its rows are begun at once.
using IntoL2 = FetchBehind<kIntoL2, HWY_MAX_BYTES >= 64 ? 4096 : 8192, HWY_MAX_BYTES >= 64 ? 8192 : 16384>;
using PastL2 = FetchBehind<kPastL2, 4096, 12288>;
template <FetchWay way>
using Fetcher = std::conditional_t<way == FetchWay::kNext, FetchNext,
                                   std::conditional_t<way == FetchWay::kBehindPastL2, PastL2, IntoL2>>;

// For `rows` rows of T.
template <FetchWay way, typename T>
HWY_INLINE Fetcher<way> FetchFor(const AttentionTile& tile, const std::byte* next, size_t rows) {
  const size_t elements = rows * tile.shape->head_dim;
  return {next, elements / kPerStored<T> * sizeof(T), tile.vectors * elements / hn::Lanes(Lane16())};
}

// Bytes of values that are weighed in one pass over a part of their columns.
constexpr size_t kPassBytes = 8192;

// Calls f(first, count as a constant) for heads [0, heads) in passes as equal as they can be, of at most kMaxHeads.
template <size_t kCount = kMaxHeads, class F>
HWY_INLINE void ForHeads(size_t first, size_t count, const F& f) {
  if constexpr (kCount > 1) {
    if (count < kCount) return ForHeads<kCount - 1>(first, count, f);
  }
  f(first, std::integral_constant<size_t, kCount>());
}
template <size_t kMax = kMaxHeads, class F>
HWY_INLINE void ForAllHeads(size_t heads, const F& f) {
  const size_t passes = (heads + kMax - 1) / kMax;
  for (size_t pass = 0, first = 0; pass < passes; ++pass) {
    const size_t count = (heads - first + passes - pass - 1) / (passes - pass);
    ForHeads<kMax>(first, count, f);
    first += count;
  }
}

// Some columns of transposed key tiles: element (column first + i, row r) is at k[r / 16 * stride + i * 16 + r % 16].
template <typename T>
struct KeyColumns {
  const T* k;
  size_t stride;
  size_t first, count;
};

// scores[h * stride + j] = or, from the second columns on, += q[head + h] . key j over some columns, and times scale behind the last, for kVectors
// vectors of keys. lines: of memory that their first heads ask for beside every four columns.
template <size_t kHeads, size_t kVectors, typename T, class Fetch>
HWY_INLINE void ScoreColumns(const AttentionTile& tile, size_t head, const KeyColumns<T>& keys, Fetch& fetch,
                             size_t lines, float* scores, size_t stride) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  const float* q[kHeads];
  Vec16 acc[kHeads][kVectors];
  for (size_t h = 0; h < kHeads; ++h) {
    q[h] = tile.q[head + h] + keys.first;
    for (size_t v = 0; v < kVectors; ++v)
      acc[h][v] = keys.first == 0 ? hn::Zero(d) : hn::LoadU(d, scores + h * stride + v * lanes);
  }
  for (size_t i = 0; i < keys.count; i += 4) {
    fetch.Keys(lines, 4 * kHeads * kVectors);
    for (size_t c = 0; c < 4; ++c) {
      AddOuterProduct([&](size_t h) HWY_ATTR { return hn::Set(d, q[h][i + c]); },
                      [&](size_t v) HWY_ATTR {
                        const size_t row = v * lanes;
                        return LoadF32(
                            d, keys.k + row / kKeyTileRows * keys.stride + (i + c) * kKeyTileRows + row % kKeyTileRows);
                      },
                      acc);
    }
  }
  const auto scale = hn::Set(d, keys.first + keys.count == tile.shape->head_dim ? tile.shape->scale : 1);
  for (size_t h = 0; h < kHeads; ++h) {
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(hn::Mul(acc[h][v], scale), d, scores + h * stride + v * lanes);
  }
}

template <size_t kVectors, typename T, class Fetch>
HWY_INLINE void ScoreBlock(const AttentionTile& tile, const KeyColumns<T>& keys, Fetch& fetch, size_t lines,
                           float* scores, size_t stride) {
  ForAllHeads<HWY_MAX(1, HWY_MIN(kVectors == 1 || kFewShapes ? 4 : 8, kSums / kVectors))>(
      tile.vectors, [&](size_t head, auto heads) __attribute__((always_inline)) {
        ScoreColumns<decltype(heads)::value, kVectors>(tile, head, keys, fetch, lines, scores + head * stride, stride);
        lines = 0;
      });
}

// One body for tiles of F32 and for whatever is made f32 first; ahead: what is fetched meanwhile.
template <size_t kVectors>
HWY_NOINLINE void ScoreF32Block(const AttentionTile& tile, const KeyColumns<float>& keys, const uint8_t* ahead,
                                size_t lines, float* scores, size_t stride) {
  IntoL2 fetch(ahead);
  ScoreBlock<kVectors>(tile, keys, fetch, lines, scores, stride);
}

// So many rows as kVectors vectors have lanes, transposed part by part.
template <size_t kVectors, typename T>
HWY_INLINE void ScoreRowBlock(const AttentionTile& tile, const T* k, float* scores, size_t stride) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d), dim = tile.shape->head_dim, vector = lanes * dim / kPerStored<T>;
  float* kept = tile.kt + 16 * dim;
  constexpr size_t kLines = HWY_MAX(hn::MaxLanes(Lane16()) * 4 * kVectors * sizeof(T) / kPerStored<T> / 64, 1);
  const uint8_t* ahead = IntoL2::Ahead(k, kVectors * vector * sizeof(T));
  for (size_t first = 0; first < dim; first += kPart) {
    const size_t count = HWY_MIN(kPart, dim - first);
    for (size_t v = 0; v < kVectors; ++v) {
      float* to = kept + v * lanes / kKeyTileRows * kPart * kKeyTileRows + v * lanes % kKeyTileRows;
      for (size_t i = 0; i < count; i += kColumnStep<T>) {
        ForColumns(k + v * vector + (first + i) / kPerStored<T>, dim,
                   [&](size_t c, Vec16 column) HWY_ATTR { hn::StoreU(column, d, to + (i + c) * kKeyTileRows); });
      }
    }
    ScoreF32Block<kVectors>(tile, {kept, kPart * kKeyTileRows, first, count}, ahead, kLines, scores, stride);
    ahead += count / 4 * kLines * 64;
  }
}

template <typename T>
HWY_NOINLINE void ScoreRowsOf(const AttentionTile& tile, const T* k, size_t at, size_t rows) {
  const size_t lanes = hn::Lanes(Lane16()), dim = tile.shape->head_dim;
  size_t r = 0;
  for (; r + kKeyVectors * lanes <= rows; r += kKeyVectors * lanes)
    ScoreRowBlock<kKeyVectors>(tile, k + r * dim / kPerStored<T>, tile.scores + at + r, kAttentionChunk);
  while (r < rows) {
    const T* block = k + r * dim / kPerStored<T>;
    const size_t count = HWY_MIN(lanes, rows - r);
    if (count < lanes) {  // the last few, in a block of their own: nothing behind them is read
      T* copy = reinterpret_cast<T*>(tile.kt);
      std::memcpy(copy, block, count * dim / kPerStored<T> * sizeof(T));
      block = copy;
    }
    HWY_ALIGN float scores[kMaxGroup * 16];
    ScoreRowBlock<1>(tile, block, scores, 16);
    for (size_t h = 0; h < tile.vectors; ++h)
      std::memcpy(tile.scores + h * kAttentionChunk + at + r, scores + h * 16, count * sizeof(float));
    r += count;
  }
}

// Rows [skip, skip + rows) of a tile, by way of f32.
template <typename T>
HWY_NOINLINE void ScorePartOfTile(const AttentionTile& tile, const T* k, size_t skip, size_t at, size_t rows) {
  const Lane16 d;
  const size_t dim = tile.shape->head_dim;
  float* kept = tile.kt + 16 * dim;
  HWY_ALIGN float scores[kMaxGroup * kKeyTileRows];
  for (size_t first = 0; first < dim; first += kPart) {
    const size_t count = HWY_MIN(kPart, dim - first);
    for (size_t i = 0; i < count * kKeyTileRows; i += hn::Lanes(d))
      hn::StoreU(LoadF32(d, k + first * kKeyTileRows + i), d, kept + i);
    ScoreF32Block<kTileVectors>(tile, {kept, 0, first, count}, nullptr, 0, scores, kKeyTileRows);
  }
  for (size_t h = 0; h < tile.vectors; ++h)
    std::memcpy(tile.scores + h * kAttentionChunk + at, scores + h * kKeyTileRows + skip, rows * sizeof(float));
}

template <size_t kCount, typename T, class Fetch>
HWY_INLINE void ScoreTileBlock(const AttentionTile& tile, const T* k, Fetch& fetch, float* scores) {
  const size_t dim = tile.shape->head_dim, bytes = kCount * kKeyTileRows * dim * sizeof(T);
  constexpr size_t kLines = kCount * kKeyTileRows * 4 * sizeof(T) / 64;
  const KeyColumns<T> keys{k, kKeyTileRows * dim, 0, dim};
  if constexpr (std::is_same_v<T, float>) {
    ScoreF32Block<kCount * kTileVectors>(tile, keys, Fetch::Ahead(k, bytes), kLines, scores, kAttentionChunk);
  } else {
    fetch.BeginKeys(k, bytes);
    ScoreBlock<kCount * kTileVectors>(tile, keys, fetch, kLines, scores, kAttentionChunk);
  }
}

template <typename T, class Fetch>
HWY_INLINE void ScoreTransposed(const AttentionTile& tile, const T* k, Fetch& fetch, size_t skip, size_t at,
                                size_t rows) {
  const size_t tile_elements = kKeyTileRows * tile.shape->head_dim, end = at + rows;
  if (skip != 0) {
    const size_t count = HWY_MIN(kKeyTileRows - skip, rows);
    ScorePartOfTile(tile, k, skip, at, count);
    at += count;
    k += tile_elements;
  }
  const auto blocks = [&](auto count) __attribute__((always_inline)) {
    constexpr size_t kCount = decltype(count)::value;
    for (; at + kCount * kKeyTileRows <= end; at += kCount * kKeyTileRows, k += kCount * tile_elements)
      ScoreTileBlock<kCount>(tile, k, fetch, tile.scores + at);
  };
  // Three chains of two vectors each do not hide their latency: twice as many, where their sums still fit into registers.
  constexpr size_t kMore = 2 * kTiles * kTileVectors;  // vectors
  if constexpr (kMore <= kSums) {
    if (tile.vectors * kMore <= kSums) blocks(std::integral_constant<size_t, 2 * kTiles>());
  }
  blocks(std::integral_constant<size_t, kTiles>());
  for (; at < end; at += kKeyTileRows, k += tile_elements)
    ScorePartOfTile(tile, k, 0, at, HWY_MIN(kKeyTileRows, end - at));
}

// Elements [dim, head_dim) of the heads [head, head + heads), fewer than a block of registers holds: one register at a time.
template <typename T>
HWY_NOINLINE void WeighRest(const AttentionTile& tile, size_t head, size_t heads, size_t dim, const T* v, size_t begin,
                            size_t end) {
  FetchNothing fetch;
  const size_t head_dim = tile.shape->head_dim, last = head + heads;
  for (; dim < head_dim; dim += hn::Lanes(Lane16())) {
    size_t h = head;
    if constexpr (!kFewShapes) {
      for (; h + 4 <= last; h += 4) WeighBlock<4, 1>(tile, h, dim, v, head_dim, begin, end, fetch);
    }
    for (; h + 2 <= last; h += 2) WeighBlock<2, 1>(tile, h, dim, v, head_dim, begin, end, fetch);
    if (h < last) WeighBlock<1, 1>(tile, h, dim, v, head_dim, begin, end, fetch);
  }
}

// Long rows take several passes, a part of head_dim each: some rows at a time, so that what one pass fetches ahead comes in time.
template <FetchWay way, typename T>
HWY_NOINLINE void WeighRowsOf(const AttentionTile& tile, const T* v, const std::byte* next, size_t begin, size_t end) {
  // F16 is what caches have unless asked otherwise, and elements of Q8_0 are dear to unpack: of them as many heads as registers allow.
  constexpr bool kMany = std::is_same_v<T, hwy::float16_t> || std::is_same_v<T, Q8Block>;
  constexpr size_t kMax = kMany ? kMaxHeads : HWY_MIN(kMaxHeads, 4);
  const size_t lanes = hn::Lanes(Lane16()), dim = tile.shape->head_dim, row = dim / kPerStored<T>;
  const size_t rows = HWY_MAX(16, kPassBytes / (row * sizeof(T)));
  auto fetch = FetchFor<way, T>(tile, next, end - begin);
  ForAllHeads<kMax>(
      tile.vectors, [&](size_t head, auto heads) __attribute__((always_inline)) {
        constexpr size_t kHeads = decltype(heads)::value;
        constexpr size_t kRegisters = kHeads * 4 <= kSums ? 4 : kHeads == 4 ? 3 : 2;  // 3: below AVX-512
        for (size_t first = begin; first < end; first += rows) {
          const size_t last = HWY_MIN(end, first + rows);
          const T* values = v + (first - begin) * row;
          size_t i = 0;
          const auto weigh = [&](auto registers) __attribute__((always_inline)) {
            constexpr size_t kCount = decltype(registers)::value;
            for (; i + kCount * lanes <= dim; i += kCount * lanes)
              WeighBlock<kHeads, kCount>(tile, head, i, values, dim, first, last, fetch);
          };
          weigh(std::integral_constant<size_t, kRegisters>());
          if constexpr (kRegisters == 3) weigh(std::integral_constant<size_t, 2>());
          if (i < dim) WeighRest(tile, head, kHeads, i, values, first, last);
        }
      });
}

template <FetchWay way, typename T>
void ScoreStored(const AttentionTile& tile, const StoredKeys& k, const std::byte* next, size_t at, size_t rows) {
  const T* keys = reinterpret_cast<const T*>(k.at);
  if (!k.transposed) {
    ScoreRowsOf(tile, keys, at, rows);
  } else if constexpr (kPerStored<T> == 1) {
    auto fetch = FetchFor<way, T>(tile, next, rows);
    ScoreTransposed(tile, keys, fetch, k.skip, at, rows);
  }
}

// F16, which caches have unless asked otherwise, in its own way; others as usual.
template <FetchWay way>
void ScoreRows(const AttentionTile& tile, const StoredKeys& k, const std::byte* next, size_t at, size_t rows) {
  constexpr FetchWay kUsual = FetchWay::kBehind;
  switch (tile.shape->kv_dtype) {
    case DType::kF16: return ScoreStored<way, hwy::float16_t>(tile, k, next, at, rows);
    case DType::kBF16: return ScoreStored<kUsual, hwy::bfloat16_t>(tile, k, next, at, rows);
    case DType::kQ8_0: return ScoreStored<kUsual, Q8Block>(tile, k, next, at, rows);
    default: return ScoreStored<kUsual, float>(tile, k, next, at, rows);
  }
}

template <FetchWay way>
void WeighRows(const AttentionTile& tile, const std::byte* v, const std::byte* next, size_t begin, size_t end) {
  constexpr FetchWay kUsual = FetchWay::kBehind;
  switch (tile.shape->kv_dtype) {
    case DType::kF16: return WeighRowsOf<way>(tile, reinterpret_cast<const hwy::float16_t*>(v), next, begin, end);
    case DType::kBF16: return WeighRowsOf<kUsual>(tile, reinterpret_cast<const hwy::bfloat16_t*>(v), next, begin, end);
    case DType::kQ8_0: return WeighRowsOf<kUsual>(tile, reinterpret_cast<const Q8Block*>(v), next, begin, end);
    default: return WeighRowsOf<kUsual>(tile, reinterpret_cast<const float*>(v), next, begin, end);
  }
}

// One query row in its own way, several as usual. One of a tile of several, for keys that the others do not see, is one.
template <FetchWay alone>
void ScoreOneOrMore(const AttentionTile& tile, const StoredKeys& k, const std::byte* next, size_t at, size_t rows) {
  return tile.is_one_row() ? ScoreRows<alone>(tile, k, next, at, rows)
                           : ScoreRows<FetchWay::kBehind>(tile, k, next, at, rows);
}
template <FetchWay alone>
void WeighOneOrMore(const AttentionTile& tile, const std::byte* v, const std::byte* next, size_t begin, size_t end) {
  return tile.is_one_row() ? WeighRows<alone>(tile, v, next, begin, end)
                           : WeighRows<FetchWay::kBehind>(tile, v, next, begin, end);
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

AttentionRowKernels PickAttentionRow(Isa isa, [[maybe_unused]] Tuning tuning) {
#if HWY_ARCH_X86
  if constexpr (!kLowTiles) {  // a sanitizer would take minutes to compile them
    if (tuning == Tuning::kZen5 && isa >= Isa::kAvx512)
      return {&N_AVX3::ScoreRows<FetchWay::kBehindPastL2>, &N_AVX3::WeighRows<FetchWay::kBehindPastL2>};
    if (tuning == Tuning::kIntel && isa >= Isa::kAvx512)
      return {&N_AVX3::ScoreRows<FetchWay::kNext>, &N_AVX3::WeighRows<FetchWay::kNext>};
    if (tuning == Tuning::kZen3 && isa == Isa::kAvx2)
      return {&N_AVX2::ScoreOneOrMore<FetchWay::kNext>, &N_AVX2::WeighOneOrMore<FetchWay::kNext>};
  }
#endif
  return {TIDEMILL_PICK(isa, ScoreRows<FetchWay::kBehind>), TIDEMILL_PICK(isa, WeighRows<FetchWay::kBehind>)};
}

}  // namespace tidemill
#endif
