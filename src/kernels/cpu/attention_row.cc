// Few query rows: every key and value is used once for each of their heads, so both are taken from the cache as they stand. Keys are
// transposed in registers, 16 bytes of a row at a time, and multiplied at once: lanes are positions, a score is one chain over head_dim
// without sums across lanes. The weighted sum has lanes along head_dim.
//
// Q8_0 has half the bytes of F16 and one multiplication more for each element, by the scale. One row of 9 heads on 3 of 64, CPU time of F16
// over that of Q8_0, medians of 20 pairs (12 of AVX2) on a busy Zen 4, gcc 12:
//   AVX-512  from memory behind 2048 positions 163 / 128 us = 1.27 [1.19, 1.40], behind 8192 665 / 510 us = 1.30 [1.13, 1.44]
//            in cache 0.97 [0.91, 1.00] and 0.95 [0.88, 1.00]
//   AVX2     from memory 1.06 [0.97, 1.10] and 1.06 [0.96, 1.13]; in cache 1.00 [0.94, 1.03] and 1.06 [0.98, 1.21]
//
// Of the time of one row in cache half were the scores, a quarter the weighted sum, a ninth the softmax (Zen 4, gcc 12, one thread, as all
// below). What holds scores back is latency: transposing 8 columns one step ahead of their use takes 1.03 to 1.12 times less for the
// whole (F16, 9 heads on 3 of 64). Lost: two blocks of keys at once, in turn or with each element of q broadcast once for both, with and
// without the step ahead (0.75 to 0.97); lines fetched into L1, too, 768 or 2048 bytes ahead (1.00).
//
// Long rows: 4 heads on 1 of 256 behind 8192 positions 924 -> 552 us, since keys are fetched a whole block ahead, and values are
// weighed 16 rows at a time instead of 128 (12 heads on 2 of 128: 1.00; values fetched 4 KiB ahead instead of 8: 0.87 and 0.78).
#include <cstring>
#include <type_traits>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/low_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_row.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/key_columns-inl.h"
#include "kernels/cpu/vector_math-inl.h"
#include "kernels/cpu/weigh_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

// Heads that share one pass over keys or values: their sums stay in registers.
constexpr size_t kMaxHeads = kLowTiles ? 2 : HWY_MAX_BYTES >= 64 ? 8 : 4;

// The rows of a block are read side by side, which no hardware prefetcher follows. Behind 8192 positions, from memory
// (medians of three, busy Zen 4): 663 us into L1, 598 into L2, 684 without the values; 2 KiB ahead 830, 8 KiB 600; values fetched while
// keys are multiplied 573 beside 562. Where a block of keys, one for each lane, is longer than this, it is fetched a block
// ahead: all its rows are begun at once.
constexpr size_t kPrefetchBytes = 4096;

// Calls f(first, count as a constant) for heads [0, heads) in passes as equal as they can be, of at most kMaxHeads.
template <size_t kCount = kMaxHeads, class F>
HWY_INLINE void ForHeads(size_t first, size_t count, const F& f) {
  if constexpr (kCount > 1) {
    if (count < kCount) return ForHeads<kCount - 1>(first, count, f);
  }
  f(first, std::integral_constant<size_t, kCount>());
}
template <class F>
HWY_INLINE void ForAllHeads(size_t heads, const F& f) {
  const size_t passes = (heads + kMaxHeads - 1) / kMaxHeads;
  for (size_t pass = 0, first = 0; pass < passes; ++pass) {
    const size_t count = (heads - first + passes - pass - 1) / (passes - pass);
    ForHeads(first, count, f);
    first += count;
  }
}

// sums[h] += q[h][first + column] * keys
template <size_t kHeads>
struct AddProducts {
  const float* const (&q)[kHeads];
  Vec16 (&sums)[kHeads];
  size_t first;

  HWY_INLINE void operator()(size_t column, Vec16 keys) const {
    for (size_t h = 0; h < kHeads; ++h) sums[h] = hn::MulAdd(hn::Set(Lane16(), q[h][first + column]), keys, sums[h]);
  }
};

// The lines that stand `distance` bytes behind the share of step i in a block of keys.
template <typename T>
HWY_INLINE void FetchAhead(const T* k, size_t distance, size_t i) {
  const size_t column_bytes = hn::Lanes(Lane16()) * sizeof(T);
  const auto* ahead = reinterpret_cast<const uint8_t*>(k) + distance + i * column_bytes / kPerStored<T>;
  for (size_t line = 0; line < kColumnStep<T> * column_bytes / kPerStored<T>; line += 64) {
    __builtin_prefetch(ahead + line, 0, 2);
  }
}

// scores[h * stride + j] = scale * (q[head + h] . key j) for the next `lanes` keys.
template <size_t kHeads, typename T>
HWY_INLINE void ScoreBlock(const AttentionTile& tile, size_t head, const T* k, float* scores, size_t stride) {
  const Lane16 d;
  const size_t dim = tile.shape->head_dim;
  const size_t distance = HWY_MAX(kPrefetchBytes, hn::Lanes(d) * dim / kPerStored<T> * sizeof(T));
  const float* q[kHeads];
  Vec16 acc[kHeads];
  for (size_t h = 0; h < kHeads; ++h) {
    q[h] = tile.q[head + h];
    acc[h] = hn::Zero(d);
  }
  if constexpr (sizeof(T) == 2) {
    // Columns are transposed one step before they are used: else the sums wait for them.
    PackedColumns columns[4];
    LoadColumns(k, dim, columns);
    size_t i = 0;
    for (; i + kColumnStep<T> < dim; i += kColumnStep<T>) {
      FetchAhead(k, distance, i);
      PackedColumns next[4];
      LoadColumns(k + i + kColumnStep<T>, dim, next);
      UseColumns<T>(columns, AddProducts<kHeads>{q, acc, i});
      for (size_t c = 0; c < 4; ++c) columns[c] = next[c];
    }
    FetchAhead(k, distance, i);
    UseColumns<T>(columns, AddProducts<kHeads>{q, acc, i});
  } else {
    for (size_t i = 0; i < dim; i += kColumnStep<T>) {
      FetchAhead(k, distance, i);
      ForColumns(k + i / kPerStored<T>, dim, AddProducts<kHeads>{q, acc, i});
    }
  }
  const auto scale = hn::Set(d, tile.shape->scale);
  for (size_t h = 0; h < kHeads; ++h) hn::StoreU(hn::Mul(acc[h], scale), d, scores + h * stride);
}

template <typename T>
HWY_INLINE void ScoreRowsOf(const AttentionTile& tile, const T* k, size_t at, size_t rows) {
  const size_t lanes = hn::Lanes(Lane16()), dim = tile.shape->head_dim;
  size_t r = 0;
  for (; r + lanes <= rows; r += lanes) {
    ForAllHeads(tile.vectors, [&](size_t head, auto heads) {
      ScoreBlock<decltype(heads)::value>(tile, head, k + r * dim / kPerStored<T>,
                                         tile.scores + head * kAttentionChunk + at + r, kAttentionChunk);
    });
  }
  if (r == rows) return;
  // The last few, in a block of their own: nothing behind them is read or written.
  T* block = reinterpret_cast<T*>(tile.kt);
  std::memcpy(block, k + r * dim / kPerStored<T>, (rows - r) * dim / kPerStored<T> * sizeof(T));
  ForAllHeads(tile.vectors, [&](size_t head, auto heads) {
    constexpr size_t kHeads = decltype(heads)::value;
    float scores[kHeads * 16];
    ScoreBlock<kHeads>(tile, head, block, scores, 16);
    for (size_t h = 0; h < kHeads; ++h) {
      std::memcpy(tile.scores + (head + h) * kAttentionChunk + at + r, scores + h * 16, (rows - r) * sizeof(float));
    }
  });
}

// Long rows take several passes, a part of head_dim each: some rows at a time, so that what one pass fetches ahead comes in time.
template <typename T>
HWY_INLINE void WeighRowsOf(const AttentionTile& tile, const T* v, size_t begin, size_t end) {
  const size_t lanes = hn::Lanes(Lane16()), dim = tile.shape->head_dim, row = dim / kPerStored<T>;
  const size_t rows = HWY_MAX(16, 2 * kPrefetchBytes / (row * sizeof(T)));
  ForAllHeads(tile.vectors, [&](size_t head, auto heads) {
    constexpr size_t kHeads = decltype(heads)::value;
    constexpr size_t kRegisters = kHeads * 4 <= (HWY_MAX_BYTES >= 64 ? 24 : 12) ? 4 : 2;
    for (size_t first = begin; first < end; first += rows) {
      const size_t last = HWY_MIN(end, first + rows);
      const T* values = v + (first - begin) * row;
      size_t i = 0;
      for (; i + kRegisters * lanes <= dim; i += kRegisters * lanes)
        WeighBlock<kHeads, kRegisters, 2 * kPrefetchBytes>(tile, head, i, values, dim, first, last);
      for (; i < dim; i += lanes) WeighBlock<kHeads, 1, 2 * kPrefetchBytes>(tile, head, i, values, dim, first, last);
    }
  });
}

void ScoreRows(const AttentionTile& tile, const std::byte* k, size_t at, size_t rows) {
  switch (tile.shape->kv_dtype) {
    case DType::kF16: return ScoreRowsOf(tile, reinterpret_cast<const hwy::float16_t*>(k), at, rows);
    case DType::kBF16: return ScoreRowsOf(tile, reinterpret_cast<const hwy::bfloat16_t*>(k), at, rows);
    case DType::kQ8_0: return ScoreRowsOf(tile, reinterpret_cast<const Q8Block*>(k), at, rows);
    default: return ScoreRowsOf(tile, reinterpret_cast<const float*>(k), at, rows);
  }
}

void WeighRows(const AttentionTile& tile, const std::byte* v, size_t begin, size_t end) {
  switch (tile.shape->kv_dtype) {
    case DType::kF16: return WeighRowsOf(tile, reinterpret_cast<const hwy::float16_t*>(v), begin, end);
    case DType::kBF16: return WeighRowsOf(tile, reinterpret_cast<const hwy::bfloat16_t*>(v), begin, end);
    case DType::kQ8_0: return WeighRowsOf(tile, reinterpret_cast<const Q8Block*>(v), begin, end);
    default: return WeighRowsOf(tile, reinterpret_cast<const float*>(v), begin, end);
  }
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

AttentionRowKernels PickAttentionRow(Isa isa) { return {TIDEMILL_PICK(isa, ScoreRows), TIDEMILL_PICK(isa, WeighRows)}; }

}  // namespace tidemill
#endif
