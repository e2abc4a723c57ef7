// Scores have positions as lanes: columns of keys are multiplied as they come, rows are gathered 16 at a time first. Selection counts how many keys
// reach a threshold, whose bits are found one after another.
//
// Columns of the next block are fetched into L2. Into L1 lost: one head of 128, r 16, 16384 positions took 1.14 times as long (Zen 4, busy machine).
#include "kernels/cpu/sparse_kernels.h"

#include <cstring>
#include <type_traits>

#include "kernels/cpu/fetch.h"
#include "kernels/cpu/low_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sparse_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/outer_product-inl.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

constexpr bool kFewShapes = kLowTiles || HWY_TARGET == HWY_SSE4;
constexpr size_t kMaxHeadsAtOnce = kFewShapes ? 2 : 4;
constexpr size_t kLanes = hn::MaxLanes(Lane16());

// Vectors of positions beside so many heads, whose sums stay in registers.
template <size_t kHeads>
constexpr size_t VectorsBeside() {
  constexpr size_t kSums = kFewShapes ? 4 : HWY_MAX_BYTES >= 64 ? 16 : 12;
  size_t vectors = 16 / kLanes;
  while (2 * vectors * kHeads <= kSums && 2 * vectors * kLanes <= 64) vectors *= 2;
  return vectors;
}

template <size_t kHeads, size_t kVectors, bool kFetch, typename T>
HWY_INLINE void ScoreVectors(const KeyComponents& keys, size_t first, const float* q, const float* c, float* scores) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  const T* at = reinterpret_cast<const T*>(keys.at) + first;
  const T* next = reinterpret_cast<const T*>(keys.next) + first;
  Vec16 acc[kHeads][kVectors];
  for (size_t h = 0; h < kHeads; ++h) {
    for (size_t v = 0; v < kVectors; ++v) acc[h][v] = hn::Zero(d);
  }
  for (size_t i = 0; i < keys.r; ++i) {
    const size_t from = keys.index[i] * keys.stride;
    if constexpr (kFetch)
      FetchLines<kIntoL2, kVectors * kLanes * sizeof(T)>(reinterpret_cast<const unsigned char*>(next + from));
    AddOuterProduct([&](size_t h) HWY_ATTR { return hn::Set(d, q[h * keys.r + i]); },
                    [&](size_t v) HWY_ATTR { return LoadF32(d, at + from + v * lanes); }, acc);
  }
  for (size_t h = 0; h < kHeads; ++h) {
    const auto scale = hn::Set(d, c[h]);
    for (size_t v = 0; v < kVectors; ++v)
      hn::StoreU(hn::Mul(acc[h][v], scale), d, scores + h * kAttentionChunk + first + v * lanes);
  }
}

template <size_t kHeads, size_t kVectors, bool kFetch, typename T>
HWY_NOINLINE void ScoreSomeHeads(const KeyComponents& keys, const float* q, const float* c, float* scores) {
  for (size_t first = 0; first < keys.positions; first += kVectors * kLanes)
    ScoreVectors<kHeads, kVectors, kFetch, T>(keys, first, q, c, scores);
}

// As many heads as are left, at most kHeads.
template <size_t kHeads, bool kColumns, bool kFetch, typename T>
HWY_INLINE size_t ScoreUpTo(const KeyComponents& keys, size_t heads, const float* q, const float* c, float* scores) {
  if constexpr (kHeads > 1) {
    if (heads < kHeads) return ScoreUpTo<kHeads - 1, kColumns, kFetch, T>(keys, heads, q, c, scores);
  }
  ScoreSomeHeads<kHeads, kColumns ? VectorsBeside<kHeads>() : 16 / kLanes, kFetch, T>(keys, q, c, scores);
  return kHeads;
}

template <bool kColumns, typename T>
HWY_INLINE void ScoreAllHeads(const KeyComponents& keys, size_t heads, const float* q, const float* c, float* scores) {
  size_t head = ScoreUpTo<kMaxHeadsAtOnce, kColumns, kColumns, T>(keys, heads, q, c, scores);
  while (head < heads) {
    head += ScoreUpTo<kMaxHeadsAtOnce, kColumns, false, T>(keys, heads - head, q + head * keys.r, c + head,
                                                           scores + head * kAttentionChunk);
  }
}

void Score(const KeyComponents& keys, size_t heads, const float* q, const float* c, float* scores) {
  if (keys.dtype == DType::kF16) return ScoreAllHeads<true, hwy::float16_t>(keys, heads, q, c, scores);
  if (keys.dtype == DType::kBF16) return ScoreAllHeads<true, hwy::bfloat16_t>(keys, heads, q, c, scores);
  if (keys.positions % 64 == 0) return ScoreAllHeads<true, float>(keys, heads, q, c, scores);
  ScoreAllHeads<false, float>(keys, heads, q, c, scores);
}

template <typename T>
HWY_INLINE void GatherElements(const SixteenRows& rows, const uint32_t* index, size_t r, float* out) {
  const Lane16 d;
  for (size_t i = 0; i < r; ++i, out += 16) {
    T one[16];
    for (size_t l = 0; l < 16; ++l) std::memcpy(one + l, rows.row[l] + rows.step[l] * index[i] * sizeof(T), sizeof(T));
    for (size_t l = 0; l < 16; l += kLanes) hn::Store(LoadF32(d, one + l), d, out + l);
  }
}

HWY_INLINE void GatherOfBlocks(const SixteenRows& rows, const uint32_t* index, size_t r, float* out) {
  const Lane16 d;
  for (size_t i = 0; i < r; ++i, out += 16) {
    uint16_t scales[16];
    int8_t quants[16];
    for (size_t l = 0; l < 16; ++l) {
      const std::byte* block = rows.row[l] + index[i] / Q8Block::kElements * sizeof(Q8Block);
      std::memcpy(scales + l, block, 2);
      std::memcpy(quants + l, block + 2 + index[i] % Q8Block::kElements, 1);
    }
    for (size_t l = 0; l < 16; l += kLanes) {
      const auto q = hn::ConvertTo(
          d, hn::PromoteTo(hn::RebindToSigned<Lane16>(), hn::LoadU(hn::Rebind<int8_t, Lane16>(), quants + l)));
      const auto scale = Widen(d, hwy::float16_t(), hn::LoadU(hn::Rebind<uint16_t, Lane16>(), scales + l));
      hn::Store(hn::Mul(scale, q), d, out + l);
    }
  }
}

void Gather(DType dtype, const SixteenRows& rows, const uint32_t* index, size_t r, float* out) {
  switch (dtype) {
    case DType::kF16: return GatherElements<hwy::float16_t>(rows, index, r, out);
    case DType::kBF16: return GatherElements<hwy::bfloat16_t>(rows, index, r, out);
    case DType::kQ8_0: return GatherOfBlocks(rows, index, r, out);
    default: return GatherElements<float>(rows, index, r, out);
  }
}

void Cap(float cap_value, size_t count, float* scores) {
  const Lane16 d;
  const auto cap = hn::Set(d, cap_value);
  for (size_t i = 0; i < count; i += kLanes)
    hn::Store(hn::Mul(cap, Tanh(d, hn::Div(hn::Load(d, scores + i), cap))), d, scores + i);
}

// Bits of a float as an integer that compares as it does; -0 does not occur.
HWY_INLINE hn::Vec<hn::RebindToSigned<Lane16>> OrderOf(Vec16 x) {
  const hn::RebindToSigned<Lane16> di;
  const auto bits = hn::BitCast(di, x);
  return hn::Xor(bits, hn::And(hn::BroadcastSignBit(bits), hn::Set(di, 0x7FFFFFFF)));
}

void AddScores(size_t heads, const float* scores, int32_t* keys) {
  const Lane16 d;
  const hn::RebindToSigned<Lane16> di;
  for (size_t i = 0; i < kAttentionChunk; i += kLanes) {
    auto sum = hn::Zero(d);
    for (size_t h = 0; h < heads; ++h) sum = hn::Add(sum, hn::Load(d, scores + h * kAttentionChunk + i));
    hn::StoreU(OrderOf(sum), di, keys + i);
  }
}

void AddWeights(size_t heads, const float* p, const float* w, int32_t* keys) {
  const Lane16 d;
  const hn::RebindToSigned<Lane16> di;
  for (size_t i = 0; i < kAttentionChunk; i += kLanes) {
    auto sum = hn::Zero(d);
    for (size_t h = 0; h < heads; ++h)
      sum = hn::Add(sum, hn::Mul(hn::Load(d, p + h * kAttentionChunk + i), hn::Set(d, w[h])));
    hn::StoreU(OrderOf(sum), di, keys + i);
  }
}

// Lanes are heads.
void Weights(size_t chunks, size_t stride, float* m, const float* l) {
  const Lane16 d;
  for (size_t h = 0; h < stride; h += kLanes) {
    auto M = hn::Load(d, m + h), L = hn::Load(d, l + h);
    for (size_t chunk = 1; chunk < chunks; ++chunk) {
      const auto one = hn::Load(d, m + chunk * stride + h);
      const auto both = hn::IfThenElse(hn::Lt(M, one), one, M);
      const auto a = ExpUpTo0(d, hn::Sub(M, both)), b = ExpUpTo0(d, hn::Sub(one, both));
      L = hn::MulAdd(L, a, hn::Mul(hn::Load(d, l + chunk * stride + h), b));
      M = both;
    }
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      float* at = m + chunk * stride + h;
      hn::Store(hn::Div(ExpUpTo0(d, hn::Sub(hn::Load(d, at), M)), L), d, at);
    }
  }
}

using LaneInts = hn::RebindToSigned<Lane16>;

size_t CountAtLeast(const int32_t* keys, size_t n, int32_t threshold) {
  const LaneInts d;
  const auto below = hn::Set(d, threshold);
  auto sum = hn::Zero(d);  // minus the number of those below
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum = hn::Add(sum, hn::VecFromMask(d, hn::Gt(below, hn::LoadU(d, keys + i))));
  size_t count = i;
  HWY_ALIGN int32_t lanes[16];
  hn::Store(sum, d, lanes);
  for (size_t l = 0; l < kLanes; ++l) count -= static_cast<size_t>(-lanes[l]);
  for (; i < n; ++i) count += keys[i] >= threshold ? 1 : 0;
  return count;
}

// The greatest threshold that at least `take` keys reach, or a lower one that exactly so many reach. take >= 1, at most n.
int32_t ThresholdOf(const int32_t* keys, size_t n, size_t take) {
  uint32_t found = 0;  // of keys without a sign: + 2^31
  for (uint32_t bit = 0x80000000U; bit != 0; bit >>= 1) {
    const size_t count = CountAtLeast(keys, n, static_cast<int32_t>((found | bit) ^ 0x80000000U));
    if (count >= take) found |= bit;
    if (count == take) break;
  }
  return static_cast<int32_t>(found ^ 0x80000000U);
}

// Calls use(i) for ascending i with keys[i] >= threshold.
template <class Use>
HWY_INLINE void ForAtLeast(const int32_t* keys, size_t n, int32_t threshold, const Use& use) {
  const LaneInts d;
  const auto below = hn::Set(d, threshold);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    auto all = hn::Gt(below, hn::LoadU(d, keys + i));
    for (size_t l = kLanes; l < 16; l += kLanes) all = hn::And(all, hn::Gt(below, hn::LoadU(d, keys + i + l)));
    if (hn::AllTrue(d, all)) continue;
    for (size_t l = i; l < i + 16; ++l) {
      if (keys[l] >= threshold) use(l);
    }
  }
  for (; i < n; ++i) {
    if (keys[i] >= threshold) use(i);
  }
}

// Maxima of every 16 * width keys for each of 16 lanes; what is left behind whole ones does not count. Returns how many.
size_t Maxima(const int32_t* keys, size_t n, size_t width, int32_t* out) {
  const LaneInts d;
  size_t count = 0;
  for (size_t i = 0; i + 16 * width <= n; i += 16 * width, count += 16) {
    for (size_t l = 0; l < 16; l += kLanes) {
      auto most = hn::LoadU(d, keys + i + l);
      for (size_t w = 1; w < width; ++w) most = hn::Max(most, hn::LoadU(d, keys + i + 16 * w + l));
      hn::Store(most, d, out + count + l);
    }
  }
  return count;
}

// Takes those above what `take` keys reach, and of those equal to it the first ones.
void TakeGreatest(const int32_t* keys, const int32_t* index, size_t n, size_t take, uint32_t first, uint32_t* out) {
  const int32_t threshold = ThresholdOf(keys, n, take);
  size_t equal = take - (threshold == INT32_MAX ? 0 : CountAtLeast(keys, n, threshold + 1));
  ForAtLeast(keys, n, threshold, [&](size_t i) {
    if (keys[i] == threshold) {
      if (equal == 0) return;
      --equal;
    }
    *out++ = first + static_cast<uint32_t>(index == nullptr ? static_cast<int32_t>(i) : index[i]);
  });
}

void Select(const int32_t* keys, size_t n, size_t take, uint32_t first, int32_t* scratch, uint32_t* out) {
  if (take == 0) return;
  // Maxima of eight times as many parts: few keys besides those that are wanted reach what `take` maxima do.
  const size_t parts = HWY_MIN(kMaxMaxima, HWY_MAX(8 * take, 512));
  const size_t width = (n + parts - 1) / parts;
  if (width >= 2 && 2 * take <= parts) {
    int32_t* maxima = scratch;
    int32_t *candidates = scratch + kMaxMaxima, *index = candidates + kMaxCandidates;
    const int32_t least = ThresholdOf(maxima, Maxima(keys, n, width, maxima), take);
    size_t count = 0;
    ForAtLeast(keys, n, least, [&](size_t i) {
      if (count < kMaxCandidates) {
        candidates[count] = keys[i];
        index[count] = static_cast<int32_t>(i);
      }
      ++count;
    });
    if (count <= kMaxCandidates) return TakeGreatest(candidates, index, count, take, first, out);
  }
  TakeGreatest(keys, nullptr, n, take, first, out);
}

template <typename T>
HWY_INLINE void AddElements(const T* row, size_t dim, double* sum) {
  const Lane16 d;
  for (size_t i = 0; i < dim; i += 16) {
    HWY_ALIGN float part[16];
    for (size_t l = 0; l < 16; l += kLanes) hn::Store(LoadElements(row, i + l), d, part + l);
    for (size_t l = 0; l < 16; ++l) sum[i + l] += static_cast<double>(part[l]);
  }
}

void AddRow(DType dtype, const std::byte* row, size_t dim, double* sum) {
  switch (dtype) {
    case DType::kF16: return AddElements(reinterpret_cast<const hwy::float16_t*>(row), dim, sum);
    case DType::kBF16: return AddElements(reinterpret_cast<const hwy::bfloat16_t*>(row), dim, sum);
    case DType::kQ8_0: return AddElements(reinterpret_cast<const Q8Block*>(row), dim, sum);
    default: return AddElements(reinterpret_cast<const float*>(row), dim, sum);
  }
}

void Blend(size_t dim, float alpha, const float* mean, float* out) {
  const Lane16 d;
  const float rest = 1 - alpha;
  size_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    const auto part = hn::Mul(hn::Set(d, rest), hn::LoadU(d, mean + i));
    hn::StoreU(hn::MulAdd(hn::Set(d, alpha), hn::LoadU(d, out + i), part), d, out + i);
  }
  const hn::CappedTag<float, 1> one;
  for (; i < dim; ++i) {
    const auto part = hn::Mul(hn::Set(one, rest), hn::LoadU(one, mean + i));
    hn::StoreU(hn::MulAdd(hn::Set(one, alpha), hn::LoadU(one, out + i), part), one, out + i);
  }
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

SparseKernels PickSparse(Isa isa) {
  return {.score = TIDEMILL_PICK(isa, Score),
          .gather = TIDEMILL_PICK(isa, Gather),
          .cap = TIDEMILL_PICK(isa, Cap),
          .add_scores = TIDEMILL_PICK(isa, AddScores),
          .add_weights = TIDEMILL_PICK(isa, AddWeights),
          .weights = TIDEMILL_PICK(isa, Weights),
          .select = TIDEMILL_PICK(isa, Select),
          .add_row = TIDEMILL_PICK(isa, AddRow),
          .blend = TIDEMILL_PICK(isa, Blend)};
}

}  // namespace tidemill
#endif
