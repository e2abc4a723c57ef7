// K is transposed once per chunk and tile, so that lanes are positions and a score is one chain over head_dim without sums across
// lanes; all query heads of the KV head and all rows of the tile share it. The weighted sum has lanes along head_dim.
#include "kernels/cpu/attention_tile.h"

#include <algorithm>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_tile.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "kernels/cpu/attention_fetch.h"
#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/key_columns-inl.h"
#include "kernels/cpu/outer_product-inl.h"
#include "kernels/cpu/vector_math-inl.h"
#include "kernels/cpu/weigh_block-inl.h"
#include "kernels/key_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

// One element, by the vector routine, so that body and tail agree.
template <typename T>
HWY_INLINE float LoadOne(const T* p) {
  HWY_ALIGN T padded[4] = {};
  hwy::CopyBytes<sizeof(T)>(p, padded);
  return hn::GetLane(LoadF32(hn::CappedTag<float, 4>(), padded));
}

// Column c of a few rows of keys to row c of the transposed ones.
struct StoreColumns {
  float* out;

  HWY_INLINE void operator()(size_t column, Vec16 keys) const { hn::StoreU(keys, Lane16(), out + column * kKeyStride); }
};

// Rows of blocks have no elements but those of whole registers.
template <typename T>
void LoadKeys(const AttentionTile& tile, const T* k, size_t at, size_t rows) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d), dim = tile.shape->head_dim;
  const auto row_of = [&](size_t r) { return k + r * dim / kPerStored<T>; };
  size_t r = 0;
  while (r + lanes <= rows) {
    float* out = tile.kt + at + r;
    size_t i = 0;
    for (; i + kColumnStep<T> <= dim; i += kColumnStep<T>) {
      ForColumns(row_of(r) + i / kPerStored<T>, dim, StoreColumns{out + i * kKeyStride});
    }
    if constexpr (kPerStored<T> == 1) {
      for (; i < dim; ++i) {
        for (size_t j = 0; j < lanes; ++j) out[i * kKeyStride + j] = LoadOne(row_of(r + j) + i);
      }
    }
    r += lanes;
    if (r < rows && r + lanes > rows) r = rows - lanes;  // the last block overlaps the one before
  }
  for (; r < rows; ++r) {
    float* out = tile.kt + at + r;
    size_t i = 0;
    for (; i + lanes <= dim; i += lanes) {
      HWY_ALIGN float lane[16];
      hn::Store(LoadElements(row_of(r), i), d, lane);
      for (size_t c = 0; c < lanes; ++c) out[(i + c) * kKeyStride] = lane[c];
    }
    if constexpr (kPerStored<T> == 1) {
      for (; i < dim; ++i) out[i * kKeyStride] = LoadOne(row_of(r) + i);
    }
  }
}

template <typename T>
void LoadValues(const AttentionTile& tile, const T* v, size_t at, size_t rows) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d), dim = tile.shape->head_dim;
  for (size_t r = 0; r < rows; ++r) {
    const T* row = v + r * dim / kPerStored<T>;
    float* out = tile.v + (at + r) * tile.padded_dim;
    size_t i = 0;
    for (; i + lanes <= dim; i += lanes) hn::Store(LoadElements(row, i), d, out + i);
    if constexpr (kPerStored<T> == 1) {
      for (; i < dim; ++i) out[i] = LoadOne(row + i);
    }
    for (; i < tile.padded_dim; ++i) out[i] = 0;
  }
}

// Keys of tiles; `skip` rows of the first stand in front.
template <typename T>
void LoadTransposedKeys(const AttentionTile& tile, const T* k, size_t skip, size_t at, size_t rows) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d), dim = tile.shape->head_dim;
  for (const size_t end = at + rows; at < end; k += kKeyTileRows * dim, skip = 0) {
    const size_t count = HWY_MIN(kKeyTileRows - skip, end - at);
    float* out = tile.kt + at;
    for (size_t i = 0; i < dim; ++i, out += kKeyStride) {
      const T* keys = k + i * kKeyTileRows;
      if (count == kKeyTileRows) {
        for (size_t j = 0; j < kKeyTileRows; j += lanes) hn::StoreU(LoadF32(d, keys + j), d, out + j);
      } else {
        HWY_ALIGN float all[kKeyTileRows];
        for (size_t j = 0; j < kKeyTileRows; j += lanes) hn::Store(LoadF32(d, keys + j), d, all + j);
        std::memcpy(out, all + skip, count * sizeof(float));
      }
    }
    at += count;
  }
}

template <typename T>
void LoadBoth(const AttentionTile& tile, const StoredKeys& k, const std::byte* v, size_t at, size_t rows) {
  const T* keys = reinterpret_cast<const T*>(k.at);
  if (!k.transposed) {
    LoadKeys(tile, keys, at, rows);
  } else if constexpr (kPerStored<T> == 1) {
    LoadTransposedKeys(tile, keys, k.skip, at, rows);
  }
  LoadValues(tile, reinterpret_cast<const T*>(v), at, rows);
}

void Load(const AttentionTile& tile, const StoredKeys& k, const std::byte* v, size_t at, size_t rows) {
  switch (tile.shape->kv_dtype) {
    case DType::kF16: return LoadBoth<hwy::float16_t>(tile, k, v, at, rows);
    case DType::kBF16: return LoadBoth<hwy::bfloat16_t>(tile, k, v, at, rows);
    case DType::kQ8_0: return LoadBoth<Q8Block>(tile, k, v, at, rows);
    default: return LoadBoth<float>(tile, k, v, at, rows);
  }
}

// Raw scores of kQ query vectors for kRegisters registers of keys.
template <size_t kQ, size_t kRegisters>
HWY_INLINE void ScoreBlock(const AttentionTile& tile, size_t vector, size_t key) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  Vec16 acc[kQ][kRegisters];
  const float* q[kQ];
  for (size_t r = 0; r < kQ; ++r) {
    q[r] = tile.q[vector + r];
    for (size_t c = 0; c < kRegisters; ++c) acc[r][c] = hn::Zero(d);
  }
  const float* kt = tile.kt + key;
  for (size_t i = 0; i < tile.shape->head_dim; ++i, kt += kKeyStride) {
    AddOuterProduct([&](size_t r) HWY_ATTR { return hn::Set(d, q[r][i]); },
                    [&](size_t c) HWY_ATTR { return hn::LoadU(d, kt + c * lanes); }, acc);
  }
  const auto scale = hn::Set(d, tile.shape->scale);
  for (size_t r = 0; r < kQ; ++r) {
    for (size_t c = 0; c < kRegisters; ++c) {
      hn::Store(hn::Mul(acc[r][c], scale), d, tile.scores + (vector + r) * kAttentionChunk + key + c * lanes);
    }
  }
}

void Scores(const AttentionTile& tile) {
  const size_t lanes = hn::Lanes(Lane16());
  static_assert(4 * hn::MaxLanes(Lane16()) <= kScoredTogether);
  constexpr size_t kQ = HWY_MAX_BYTES >= 64 ? 4 : 2;
  // Keys that are not loaded are zeros, or of a tree another path's; nobody sees their scores.
  const size_t begin = tile.scored / (4 * lanes) * (4 * lanes);
  const size_t end = (tile.keys + 4 * lanes - 1) / (4 * lanes) * (4 * lanes);
  size_t vector = 0;
  for (; vector + kQ <= tile.vectors; vector += kQ) {
    for (size_t key = begin; key < end; key += 4 * lanes) ScoreBlock<kQ, 4>(tile, vector, key);
  }
  for (; vector < tile.vectors; ++vector) {
    for (size_t key = begin; key < end; key += 4 * lanes) ScoreBlock<1, 4>(tile, vector, key);
  }
}

void CapAndBias(const AttentionTile& tile, size_t vector, float* scores) {
  const AttentionShape& shape = *tile.shape;
  const Lane16 d;
  if (shape.soft_cap != 0) {
    const auto cap = hn::Set(d, shape.soft_cap);
    for (size_t key = 0; key < kAttentionChunk; key += hn::Lanes(d)) {
      hn::Store(hn::Mul(cap, Tanh(d, hn::Div(hn::Load(d, scores + key), cap))), d, scores + key);
    }
  }
  if (!shape.bias.empty()) {
    const size_t distances = shape.bias.size() / shape.heads;
    const float* bias = shape.bias.data() + tile.head[vector] * distances;
    for (size_t key = 0; key < tile.keys; ++key) {
      const size_t position = tile.chunk_first + key;
      if (position > tile.position[vector]) break;
      scores[key] += bias[std::min(tile.position[vector] - position, distances - 1)];
    }
  }
}

void SoftmaxOf(const AttentionTile& tile, size_t vector) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  float* scores = tile.scores + vector * kAttentionChunk;
  const SeenRanges& seen = tile.seen[vector];
  if (seen.empty()) return;
  CapAndBias(tile, vector, scores);
  // What nobody sees weighs exp(-inf) = 0 and adds nothing.
  const float lowest = -std::numeric_limits<float>::infinity();
  const bool two = seen.first_begin < seen.first_end;
  const size_t begin = (two ? seen.first_begin : seen.begin) / 16 * 16;
  const size_t end = (std::max(seen.first_end, seen.end) + 15) / 16 * 16;
  const auto hide = [scores, lowest](size_t from, size_t to) {
    if (from < to) std::fill(scores + from, scores + to, lowest);
  };
  hide(begin, two ? seen.first_begin : seen.begin);
  if (two) hide(seen.first_end, seen.begin < seen.end ? seen.begin : end);
  if (seen.begin < seen.end) hide(seen.end, end);

  constexpr size_t kParts = 16 / hn::MaxLanes(Lane16());  // registers of 16 keys
  Vec16 part[kParts];
  for (size_t i = 0; i < kParts; ++i) part[i] = hn::Set(d, lowest);
  for (size_t key = begin; key < end; key += 16) {
    for (size_t i = 0; i < kParts; ++i) part[i] = hn::Max(part[i], hn::Load(d, scores + key + i * lanes));
  }
  for (size_t i = 1; i < kParts; ++i) part[0] = hn::Max(part[0], part[i]);
  const auto shift = hn::MaxOfLanes(d, part[0]);
  for (size_t i = 0; i < kParts; ++i) part[i] = hn::Zero(d);
  for (size_t key = begin; key < end; key += 16) {
    for (size_t i = 0; i < kParts; ++i) {
      const auto p = ExpUpTo0(d, hn::Sub(hn::Load(d, scores + key + i * lanes), shift));
      hn::Store(p, d, scores + key + i * lanes);
      part[i] = hn::Add(part[i], p);
    }
  }
  tile.m[vector] = hn::GetLane(shift);
  tile.l[vector] = TreeSum16(part);
}

void Softmax(const AttentionTile& tile) {
  for (size_t vector = 0; vector < tile.vectors; ++vector) SoftmaxOf(tile, vector);
}

template <size_t kQ>
HWY_INLINE void Weigh(const AttentionTile& tile, size_t vector, size_t begin, size_t end) {
  if (begin >= end) return;
  const size_t lanes = hn::Lanes(Lane16()), stride = tile.padded_dim;
  const float* v = tile.v + begin * stride;
  FetchNothing fetch;
  size_t dim = 0;
  for (; dim + 4 * lanes <= stride; dim += 4 * lanes)
    WeighBlock<kQ, 4>(tile, vector, dim, v, stride, begin, end, fetch);
  for (; dim < stride; dim += lanes) WeighBlock<kQ, 1>(tile, vector, dim, v, stride, begin, end, fetch);
}

void WeighSeen(const AttentionTile& tile) {
  constexpr size_t kQ = HWY_MAX_BYTES >= 64 ? 4 : 2;
  const auto one = [&](size_t vector) {
    Weigh<1>(tile, vector, tile.seen[vector].first_begin, tile.seen[vector].first_end);
    Weigh<1>(tile, vector, tile.seen[vector].begin, tile.seen[vector].end);
  };
  size_t vector = 0;
  for (; vector + kQ <= tile.vectors; vector += kQ) {
    // Together over what all of them see, one by one before and after it; keys ascend for each vector.
    size_t begin = 0, end = kAttentionChunk;
    bool plain = true;
    for (size_t r = 0; r < kQ; ++r) {
      const SeenRanges& seen = tile.seen[vector + r];
      plain = plain && seen.first_begin == seen.first_end && seen.begin < seen.end;
      begin = std::max(begin, seen.begin);
      end = std::min(end, seen.end);
    }
    if (!plain || begin >= end) {
      for (size_t r = 0; r < kQ; ++r) one(vector + r);
      continue;
    }
    for (size_t r = 0; r < kQ; ++r) Weigh<1>(tile, vector + r, tile.seen[vector + r].begin, begin);
    Weigh<kQ>(tile, vector, begin, end);
    for (size_t r = 0; r < kQ; ++r) Weigh<1>(tile, vector + r, end, tile.seen[vector + r].end);
  }
  for (; vector < tile.vectors; ++vector) one(vector);
}

void Join(bool first, size_t padded_dim, float m, float l, const float* o, float* M, float* L, float* O) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  if (first) {
    *M = m;
    *L = l;
    std::memcpy(O, o, padded_dim * sizeof(float));
    return;
  }
  const float both = std::max(*M, m);
  const auto a = ExpUpTo0(d, hn::Set(d, *M - both));
  const auto b = ExpUpTo0(d, hn::Set(d, m - both));
  *M = both;
  *L = hn::GetLane(hn::MulAdd(hn::Set(d, *L), a, hn::Mul(hn::Set(d, l), b)));
  for (size_t i = 0; i < padded_dim; i += lanes) {
    hn::Store(hn::MulAdd(hn::Load(d, O + i), a, hn::Mul(hn::Load(d, o + i), b)), d, O + i);
  }
}

void Finish(size_t head_dim, const float* O, float L, float* out) {
  for (size_t i = 0; i < head_dim; ++i) out[i] = O[i] / L;
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

AttentionKernels PickAttention(Isa isa, Tuning tuning) {
  return {.load = TIDEMILL_PICK(isa, Load),
          .score = TIDEMILL_PICK(isa, Scores),
          .weigh = TIDEMILL_PICK(isa, WeighSeen),
          .row = PickAttentionRow(isa, tuning),
          .softmax = TIDEMILL_PICK(isa, Softmax),
          .join = TIDEMILL_PICK(isa, Join),
          .finish = TIDEMILL_PICK(isa, Finish)};
}

}  // namespace tidemill
#endif
