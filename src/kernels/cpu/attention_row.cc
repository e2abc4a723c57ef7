// Few query rows: every key and value is used once for each of their heads, so both are taken from the cache as they stand. Transposed key tiles
// (kernels/key_tiles.h), all but the last few keys, are multiplied as they come. Keys in rows are transposed in registers and kept in L1.
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

// Heads that share one pass over keys or values: their sums stay in registers.
constexpr size_t kMaxHeads = kLowTiles ? 2 : HWY_MAX_BYTES >= 64 ? 8 : 4;

// Vectors of keys that are transposed, then multiplied together: their chains hide each other's latency. Sums of so many registers.
constexpr size_t kKeyVectors = kLowTiles || HWY_MAX_BYTES < 64 ? 2 : 4;
constexpr size_t kSums = kLowTiles ? 4 : HWY_MAX_BYTES >= 64 ? 24 : 12;

// Columns that are transposed before they are multiplied, so that they stay in L1.
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
template <size_t kMost = kMaxHeads, class F>
HWY_INLINE void ForAllHeads(size_t heads, const F& f) {
  const size_t passes = (heads + kMost - 1) / kMost;
  for (size_t pass = 0, first = 0; pass < passes; ++pass) {
    const size_t count = (heads - first + passes - pass - 1) / (passes - pass);
    ForHeads<kMost>(first, count, f);
    first += count;
  }
}

// What transposed keys are kept as: F16 and BF16 as they are stored, the others as f32; and where a column stands among its four.
template <typename T>
using Kept = std::conditional_t<sizeof(T) == 2, T, float>;
template <typename T>
inline constexpr size_t PlaceOf(size_t column) {
  if constexpr (sizeof(T) != 2) return column;
  for (size_t at = 0; at < 4; ++at) {
    if (kHalves[at / 2][at % 2] == column) return at;
  }
  return 0;
}

// The next kColumnStep columns of a vector of keys.
template <typename T>
HWY_INLINE void KeepColumns(const T* k, size_t dim, Kept<T>* kept) {
  const Lane16 d;
  if constexpr (sizeof(T) == 2) {
    const hn::Repartition<uint16_t, Lane16> d16;
    PackedColumns pairs[kColumnStep<T> / 2];
    LoadColumns(k, dim, pairs);
    for (size_t p = 0; p < kColumnStep<T> / 2; ++p) {
      hn::StoreU(pairs[p], d16, reinterpret_cast<uint16_t*>(kept) + p * hn::Lanes(d16));
    }
  } else {
    ForColumns(k, dim, [&](size_t c, Vec16 keys) { hn::StoreU(keys, d, kept + c * hn::Lanes(d)); });
  }
}

// scores[h * stride + j] += q[head + h] . key j over columns [first, first + count), and times scale behind the last, for kVectors
// vectors of keys. lines: of memory that their first heads ask for beside every four columns.
template <size_t kHeads, size_t kVectors, typename T, class Fetch>
HWY_INLINE void ScoreKept(const AttentionTile& tile, size_t head, const Kept<T>* kept, size_t first, size_t count,
                          Fetch& fetch, size_t lines, float* scores, size_t stride) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  const float* q[kHeads];
  Vec16 acc[kHeads][kVectors];
  for (size_t h = 0; h < kHeads; ++h) {
    q[h] = tile.q[head + h] + first;
    for (size_t v = 0; v < kVectors; ++v)
      acc[h][v] = first == 0 ? hn::Zero(d) : hn::LoadU(d, scores + h * stride + v * lanes);
  }
  for (size_t i = 0; i < count; i += 4) {
    fetch.Keys(lines, 4 * kHeads * kVectors);
    for (size_t c = 0; c < 4; ++c) {
      AddOuterProduct([&](size_t h) HWY_ATTR { return hn::Set(d, q[h][i + c]); },
                      [&](size_t v) HWY_ATTR { return LoadF32(d, kept + (v * kPart + i + PlaceOf<T>(c)) * lanes); },
                      acc);
    }
  }
  const auto scale = hn::Set(d, first + count == tile.shape->head_dim ? tile.shape->scale : 1);
  for (size_t h = 0; h < kHeads; ++h) {
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(hn::Mul(acc[h][v], scale), d, scores + h * stride + v * lanes);
  }
}

template <size_t kVectors, typename T, class Fetch>
HWY_INLINE void ScoreBlock(const AttentionTile& tile, const T* k, Fetch& fetch, float* scores, size_t stride) {
  const size_t lanes = hn::Lanes(Lane16()), dim = tile.shape->head_dim, vector = lanes * dim / kPerStored<T>;
  auto* kept = reinterpret_cast<Kept<T>*>(tile.kt + 16 * dim);
  fetch.BeginKeys(k, kVectors * vector * sizeof(T));
  constexpr size_t kLines = HWY_MAX(hn::MaxLanes(Lane16()) * 4 * kVectors * sizeof(T) / kPerStored<T> / 64, 1);
  for (size_t first = 0; first < dim; first += kPart) {
    const size_t count = HWY_MIN(kPart, dim - first);
    for (size_t v = 0; v < kVectors; ++v) {
      for (size_t i = 0; i < count; i += kColumnStep<T>)
        KeepColumns(k + v * vector + (first + i) / kPerStored<T>, dim, kept + (v * kPart + i) * lanes);
    }
    size_t lines = kLines;
    ForAllHeads<HWY_MIN(8, kSums / kVectors)>(
        tile.vectors, [&](size_t head, auto heads) __attribute__((always_inline)) {
          ScoreKept<decltype(heads)::value, kVectors, T>(tile, head, kept, first, count, fetch, lines,
                                                         scores + head * stride, stride);
          lines = 0;
        });
  }
}

template <typename T, class Fetch>
HWY_INLINE void ScoreRowsOf(const AttentionTile& tile, const T* k, Fetch& fetch, size_t at, size_t rows) {
  const size_t lanes = hn::Lanes(Lane16()), dim = tile.shape->head_dim;
  size_t r = 0;
  for (; r + kKeyVectors * lanes <= rows; r += kKeyVectors * lanes)
    ScoreBlock<kKeyVectors>(tile, k + r * dim / kPerStored<T>, fetch, tile.scores + at + r, kAttentionChunk);
  for (; r + lanes <= rows; r += lanes)
    ScoreBlock<1>(tile, k + r * dim / kPerStored<T>, fetch, tile.scores + at + r, kAttentionChunk);
  if (r == rows) return;
  // The last few, in a block of their own: nothing behind them is read or written.
  T* block = reinterpret_cast<T*>(tile.kt);
  std::memcpy(block, k + r * dim / kPerStored<T>, (rows - r) * dim / kPerStored<T> * sizeof(T));
  float scores[kMaxGroup * 16];
  ScoreBlock<1>(tile, block, fetch, scores, 16);
  for (size_t h = 0; h < tile.vectors; ++h)
    std::memcpy(tile.scores + h * kAttentionChunk + at + r, scores + h * 16, (rows - r) * sizeof(float));
}

// scores[h * stride + j] = scale * q[head + h] . key j, for kVectors vectors of keys across; lines: as above.
template <size_t kHeads, size_t kVectors, typename T, class Fetch>
HWY_INLINE void ScoreTiles(const AttentionTile& tile, size_t head, const T* k, Fetch& fetch, size_t lines,
                           float* scores, size_t stride) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d), dim = tile.shape->head_dim;
  const float* q[kHeads];
  Vec16 acc[kHeads][kVectors];
  for (size_t h = 0; h < kHeads; ++h) {
    q[h] = tile.q[head + h];
    for (size_t v = 0; v < kVectors; ++v) acc[h][v] = hn::Zero(d);
  }
  for (size_t i = 0; i < dim; i += 4) {
    fetch.Keys(lines, 4 * kHeads * kVectors);
    for (size_t c = 0; c < 4; ++c) {
      AddOuterProduct([&](size_t h) HWY_ATTR { return hn::Set(d, q[h][i + c]); },
                      [&](size_t v) HWY_ATTR {
                        const size_t row = v * lanes, column = row / kKeyTileRows * dim + i + c;
                        return LoadF32(d, k + column * kKeyTileRows + row % kKeyTileRows);
                      },
                      acc);
    }
  }
  const auto scale = hn::Set(d, tile.shape->scale);
  for (size_t h = 0; h < kHeads; ++h) {
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(hn::Mul(acc[h][v], scale), d, scores + h * stride + v * lanes);
  }
}

// kTiles tiles.
template <size_t kTiles, typename T, class Fetch>
HWY_INLINE void ScoreTileBlock(const AttentionTile& tile, const T* k, Fetch& fetch, float* scores, size_t stride) {
  constexpr size_t kVectors = kTiles * kKeyTileRows / hn::MaxLanes(Lane16());
  fetch.BeginKeys(k, kTiles * kKeyTileRows * tile.shape->head_dim * sizeof(T));
  size_t lines = kTiles * kKeyTileRows * 4 * sizeof(T) / 64;
  ForAllHeads<HWY_MAX(1, HWY_MIN(8, kSums / kVectors))>(
      tile.vectors, [&](size_t head, auto heads) __attribute__((always_inline)) {
        ScoreTiles<decltype(heads)::value, kVectors>(tile, head, k, fetch, lines, scores + head * stride, stride);
        lines = 0;
      });
}

// Of a tile of which not all rows are wanted.
template <typename T, class Fetch>
HWY_INLINE void ScorePartOfTile(const AttentionTile& tile, const T* k, Fetch& fetch, size_t skip, size_t at,
                                size_t rows) {
  HWY_ALIGN float scores[kMaxGroup * kKeyTileRows];
  ScoreTileBlock<1>(tile, k, fetch, scores, kKeyTileRows);
  for (size_t h = 0; h < tile.vectors; ++h)
    std::memcpy(tile.scores + h * kAttentionChunk + at, scores + h * kKeyTileRows + skip, rows * sizeof(float));
}

template <typename T, class Fetch>
HWY_INLINE void ScoreAcross(const AttentionTile& tile, const T* k, Fetch& fetch, size_t skip, size_t at, size_t rows) {
  const size_t tile_elements = kKeyTileRows * tile.shape->head_dim, end = at + rows;
  if (skip != 0) {
    const size_t count = HWY_MIN(kKeyTileRows - skip, rows);
    ScorePartOfTile(tile, k, fetch, skip, at, count);
    at += count;
    k += tile_elements;
  }
  constexpr size_t kTiles = HWY_MAX(1, kKeyVectors * hn::MaxLanes(Lane16()) / kKeyTileRows);
  const auto blocks = [&](auto count) __attribute__((always_inline)) {
    constexpr size_t kCount = decltype(count)::value;
    for (; at + kCount * kKeyTileRows <= end; at += kCount * kKeyTileRows, k += kCount * tile_elements)
      ScoreTileBlock<kCount>(tile, k, fetch, tile.scores + at, kAttentionChunk);
  };
  // Three chains of two vectors each do not hide their latency: twice as many, where their sums still fit into registers.
  constexpr size_t kMore = 2 * kTiles * kKeyTileRows / hn::MaxLanes(Lane16());  // vectors
  if (tile.vectors * kMore <= kSums) blocks(std::integral_constant<size_t, 2 * kTiles>());
  blocks(std::integral_constant<size_t, kTiles>());
  if constexpr (kTiles > 1) blocks(std::integral_constant<size_t, 1>());
  if (at < end) ScorePartOfTile(tile, k, fetch, 0, at, end - at);
}

// Long rows take several passes, a part of head_dim each: some rows at a time, so that what one pass fetches ahead comes in time.
template <FetchWay way, typename T>
HWY_INLINE void WeighRowsOf(const AttentionTile& tile, const T* v, const std::byte* next, size_t begin, size_t end) {
  const size_t lanes = hn::Lanes(Lane16()), dim = tile.shape->head_dim, row = dim / kPerStored<T>;
  const size_t rows = HWY_MAX(16, kPassBytes / (row * sizeof(T)));
  auto fetch = FetchFor<way, T>(tile, next, end - begin);
  ForAllHeads(
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
          weigh(std::integral_constant<size_t, 1>());
        }
      });
}

template <FetchWay way, typename T>
void ScoreStored(const AttentionTile& tile, const StoredKeys& k, const std::byte* next, size_t at, size_t rows) {
  const T* keys = reinterpret_cast<const T*>(k.at);
  auto fetch = FetchFor<way, T>(tile, next, rows);
  if (!k.across) {
    ScoreRowsOf(tile, keys, fetch, at, rows);
  } else if constexpr (kPerStored<T> == 1) {
    ScoreAcross(tile, keys, fetch, k.skip, at, rows);
  }
}

template <FetchWay way>
void ScoreRows(const AttentionTile& tile, const StoredKeys& k, const std::byte* next, size_t at, size_t rows) {
  switch (tile.shape->kv_dtype) {
    case DType::kF16: return ScoreStored<way, hwy::float16_t>(tile, k, next, at, rows);
    case DType::kBF16: return ScoreStored<way, hwy::bfloat16_t>(tile, k, next, at, rows);
    case DType::kQ8_0: return ScoreStored<way, Q8Block>(tile, k, next, at, rows);
    default: return ScoreStored<way, float>(tile, k, next, at, rows);
  }
}

template <FetchWay way>
void WeighRows(const AttentionTile& tile, const std::byte* v, const std::byte* next, size_t begin, size_t end) {
  switch (tile.shape->kv_dtype) {
    case DType::kF16: return WeighRowsOf<way>(tile, reinterpret_cast<const hwy::float16_t*>(v), next, begin, end);
    case DType::kBF16: return WeighRowsOf<way>(tile, reinterpret_cast<const hwy::bfloat16_t*>(v), next, begin, end);
    case DType::kQ8_0: return WeighRowsOf<way>(tile, reinterpret_cast<const Q8Block*>(v), next, begin, end);
    default: return WeighRowsOf<way>(tile, reinterpret_cast<const float*>(v), next, begin, end);
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
