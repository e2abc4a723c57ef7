// Columns of a row-major matrix of F16, BF16, F32 or Q8_0 as f32 vectors with one lane for each row: a transposition in registers.
// Per-target include guard: foreach_target compiles this once for each target.
#if defined(TIDEMILL_KERNELS_CPU_KEY_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIDEMILL_KERNELS_CPU_KEY_COLUMNS_INL_H_
#undef TIDEMILL_KERNELS_CPU_KEY_COLUMNS_INL_H_
#else
#define TIDEMILL_KERNELS_CPU_KEY_COLUMNS_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

// Columns that one call gives: 16 bytes of each row, 32 of F16 and BF16 with registers of 64, or one block.
template <typename T>
inline constexpr size_t kColumnStep = (sizeof(T) == 2 && HWY_ARCH_X86 && HWY_MAX_BYTES == 64 ? 32 : 16) / sizeof(T);
template <>
inline constexpr size_t kColumnStep<Q8Block> = Q8Block::kElements;

// 16 bytes of rows 0, 4, 8, ... in the vector's 128-bit blocks.
template <class D>
HWY_INLINE hn::Vec<D> LoadEveryFourthRow(D d, const hn::TFromD<D>* at, size_t stride) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) <= 16) {
    return hn::LoadU(d, at);
  } else {
    const hn::Half<D> half;
    constexpr size_t kRows = hn::MaxLanes(hn::Half<D>()) * sizeof(hn::TFromD<D>) / 16 * 4;
    return hn::Combine(d, LoadEveryFourthRow(half, at + kRows * stride, stride), LoadEveryFourthRow(half, at, stride));
  }
}

// Lane r of words[w] = bytes [4 w, 4 w + 4) of row r; rows are `stride` bytes apart, as many as the vector has lanes.
HWY_INLINE void LoadWords(const uint8_t* at, size_t stride, Vec16 (&words)[4]) {
  const Lane16 d;
  const hn::Repartition<uint8_t, Lane16> d8;
  const hn::Repartition<uint64_t, Lane16> d64;
  const auto a = hn::BitCast(d, LoadEveryFourthRow(d8, at, stride));
  const auto b = hn::BitCast(d, LoadEveryFourthRow(d8, at + stride, stride));
  const auto c = hn::BitCast(d, LoadEveryFourthRow(d8, at + 2 * stride, stride));
  const auto e = hn::BitCast(d, LoadEveryFourthRow(d8, at + 3 * stride, stride));
  const auto ab0 = hn::BitCast(d64, hn::InterleaveLower(d, a, b)), ab1 = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
  const auto ce0 = hn::BitCast(d64, hn::InterleaveLower(d, c, e)), ce1 = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
  words[0] = hn::BitCast(d, hn::InterleaveLower(d64, ab0, ce0));
  words[1] = hn::BitCast(d, hn::InterleaveUpper(d64, ab0, ce0));
  words[2] = hn::BitCast(d, hn::InterleaveLower(d64, ab1, ce1));
  words[3] = hn::BitCast(d, hn::InterleaveUpper(d64, ab1, ce1));
}

// Calls use(c, column c) for kColumnStep columns: lane r is element c of row r; rows are `stride` elements apart.
template <class Use>
HWY_INLINE void ForColumns(const float* at, size_t stride, const Use& use) {
  Vec16 columns[4];
  LoadWords(reinterpret_cast<const uint8_t*>(at), stride * sizeof(float), columns);
  for (size_t c = 0; c < 4; ++c) use(c, columns[c]);
}

// `values` has twice the lanes of f32: its lower half is `first`, its upper half `second`.
template <typename T, class V>
HWY_INLINE void WidenHalves(V values, Vec16& first, Vec16& second) {
  const Lane16 d;
  const hn::Repartition<uint16_t, Lane16> d16;
  const hn::Half<decltype(d16)> half;
  const auto bits = hn::BitCast(d16, values);
  first = Widen(d, T(), hn::LowerHalf(half, bits));
  second = Widen(d, T(), hn::UpperHalf(half, bits));
}

// Columns of F16 or BF16 as they are stored, two in each register: the halves of pairs[p] are columns kHalves[p % 2][half] of the
// four from 4 * (p / 2) on.
using PackedColumns = hn::Vec<hn::Repartition<uint16_t, Lane16>>;

#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64
constexpr size_t kHalves[2][2] = {{0, 1}, {2, 3}};

// Two rows of 16 columns in each register, eight by eight: 32 shuffles instead of 48.
template <typename T>
HWY_INLINE void LoadColumns(const T* at, size_t stride, PackedColumns (&pairs)[8]) {
  const hn::Repartition<uint16_t, Lane16> d16;
  const hn::Half<decltype(d16)> half;
  const hn::Repartition<uint32_t, Lane16> d32;
  const hn::Repartition<uint64_t, Lane16> d64;
  const auto* bits = reinterpret_cast<const uint16_t*>(at);
  const auto load = [&](size_t r) {
    return hn::Combine(d16, hn::LoadU(half, bits + (r + 8) * stride), hn::LoadU(half, bits + r * stride));
  };
  // In each block of 64 bits: four rows of one column. Blocks 0, 1 and 4, 5 are of columns 2 p and 2 p + 1, the others of those 8 behind.
  const auto four = [&](size_t r, hn::Vec<decltype(d64)>(&out)[4]) {
    const auto a = load(r), b = load(r + 1), c = load(r + 2), e = load(r + 3);
    const auto ab0 = hn::BitCast(d32, hn::InterleaveLower(d16, a, b));
    const auto ab1 = hn::BitCast(d32, hn::InterleaveUpper(d16, a, b));
    const auto ce0 = hn::BitCast(d32, hn::InterleaveLower(d16, c, e));
    const auto ce1 = hn::BitCast(d32, hn::InterleaveUpper(d16, c, e));
    out[0] = hn::BitCast(d64, hn::InterleaveLower(d32, ab0, ce0));
    out[1] = hn::BitCast(d64, hn::InterleaveUpper(d32, ab0, ce0));
    out[2] = hn::BitCast(d64, hn::InterleaveLower(d32, ab1, ce1));
    out[3] = hn::BitCast(d64, hn::InterleaveUpper(d32, ab1, ce1));
  };
  hn::Vec<decltype(d64)> a[4], b[4];
  four(0, a);
  four(4, b);
  const auto low = _mm512_set_epi64(13, 5, 9, 1, 12, 4, 8, 0), high = _mm512_set_epi64(15, 7, 11, 3, 14, 6, 10, 2);
  for (size_t p = 0; p < 4; ++p) {
    pairs[p] = PackedColumns{_mm512_permutex2var_epi64(a[p].raw, low, b[p].raw)};
    pairs[p + 4] = PackedColumns{_mm512_permutex2var_epi64(a[p].raw, high, b[p].raw)};
  }
}
#else
constexpr size_t kHalves[2][2] = {{0, 2}, {1, 3}};

template <typename T>
HWY_INLINE void LoadColumns(const T* at, size_t stride, PackedColumns (&pairs)[4]) {
  const hn::Repartition<uint16_t, Lane16> d16;
  const hn::Repartition<uint32_t, Lane16> d32;
  const hn::Repartition<uint64_t, Lane16> d64;
  const auto* bits = reinterpret_cast<const uint16_t*>(at);
  const auto a = LoadEveryFourthRow(d16, bits, stride), b = LoadEveryFourthRow(d16, bits + stride, stride);
  const auto c = LoadEveryFourthRow(d16, bits + 2 * stride, stride),
             e = LoadEveryFourthRow(d16, bits + 3 * stride, stride);
  const auto four = [&](auto ab16, auto ce16, size_t pair) {
    const auto ab = hn::BitCast(d32, ab16), ce = hn::BitCast(d32, ce16);
    // In each block of 64 bits: four rows of one column.
    const auto low = hn::BitCast(d64, hn::InterleaveLower(d32, ab, ce));
    const auto high = hn::BitCast(d64, hn::InterleaveUpper(d32, ab, ce));
    pairs[pair] = hn::BitCast(d16, hn::ConcatEven(d64, high, low));
    pairs[pair + 1] = hn::BitCast(d16, hn::ConcatOdd(d64, high, low));
  };
  four(hn::InterleaveLower(d16, a, b), hn::InterleaveLower(d16, c, e), 0);
  four(hn::InterleaveUpper(d16, a, b), hn::InterleaveUpper(d16, c, e), 2);
}
#endif

template <typename T, class Use>
HWY_INLINE void ForColumns(const T* at, size_t stride, const Use& use) {
  PackedColumns pairs[kColumnStep<T> / 2];
  LoadColumns(at, stride, pairs);
  for (size_t p = 0; p < kColumnStep<T> / 2; p += 2) {
    Vec16 columns[4];
    for (size_t i = 0; i < 2; ++i) WidenHalves<T>(pairs[p + i], columns[kHalves[i][0]], columns[kHalves[i][1]]);
    for (size_t c = 0; c < 4; ++c) use(2 * p + c, columns[c]);
  }
}

// Byte kByte of each word as an i8, times 2^24: converted where it stands in the upper byte of a word.
template <size_t kByte>
HWY_INLINE Vec16 ByteOfWords(Vec16 words) {
  constexpr uint8_t kNone = 0x80;  // gives 0
  HWY_ALIGN static constexpr uint8_t kFrom[16] = {kNone, kNone, kNone, kByte,     kNone, kNone, kNone, kByte + 4,
                                                  kNone, kNone, kNone, kByte + 8, kNone, kNone, kNone, kByte + 12};
  const hn::Repartition<uint8_t, Lane16> d8;
  const auto upper = hn::TableLookupBytesOr0(hn::BitCast(d8, words), hn::LoadDup128(d8, kFrom));
  return hn::ConvertTo(Lane16(), hn::BitCast(hn::RebindToSigned<Lane16>(), upper));
}

// Quants are 2^24 times as large as they are, and scales as much less: both are exact, and so is their product, that of d and q.
template <class Use>
HWY_INLINE void ForColumns(const Q8Block* at, size_t stride, const Use& use) {
  const Lane16 d;
  const hn::RebindToSigned<Lane16> di;
  const auto* bytes = reinterpret_cast<const uint8_t*>(at);
  const size_t stride_bytes = stride / Q8Block::kElements * sizeof(Q8Block);
  Vec16 words[4];
  LoadWords(bytes, stride_bytes, words);
  const auto halves = hn::And(hn::BitCast(di, words[0]), hn::Set(di, 0xFFFF));
  const auto scale =
      hn::Mul(Widen(d, hwy::float16_t(), hn::DemoteTo(hn::Rebind<uint16_t, Lane16>(), halves)), hn::Set(d, 0x1p-24F));
  for (size_t half = 0; half < Q8Block::kElements; half += 16) {
    LoadWords(bytes + 2 + half, stride_bytes, words);
    for (size_t w = 0; w < 4; ++w) {
      use(half + 4 * w, hn::Mul(ByteOfWords<0>(words[w]), scale));
      use(half + 4 * w + 1, hn::Mul(ByteOfWords<1>(words[w]), scale));
      use(half + 4 * w + 2, hn::Mul(ByteOfWords<2>(words[w]), scale));
      use(half + 4 * w + 3, hn::Mul(ByteOfWords<3>(words[w]), scale));
    }
  }
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
