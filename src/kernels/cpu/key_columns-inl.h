// Columns of a row-major matrix of F16, BF16 or F32 as f32 vectors with one lane for each row: a transposition in registers.
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

// Columns that one call gives: 16 bytes of each row.
template <typename T>
inline constexpr size_t kColumnStep = 16 / sizeof(T);

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

// Lane r of columns[c] = element c of row r; rows are `stride` elements apart, as many as the vector has lanes.
HWY_INLINE void LoadColumns(const float* at, size_t stride, Vec16 (&columns)[4]) {
  const Lane16 d;
  const hn::Repartition<uint64_t, Lane16> d64;
  const auto a = LoadEveryFourthRow(d, at, stride), b = LoadEveryFourthRow(d, at + stride, stride);
  const auto c = LoadEveryFourthRow(d, at + 2 * stride, stride), e = LoadEveryFourthRow(d, at + 3 * stride, stride);
  const auto ab0 = hn::BitCast(d64, hn::InterleaveLower(d, a, b)), ab1 = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
  const auto ce0 = hn::BitCast(d64, hn::InterleaveLower(d, c, e)), ce1 = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
  columns[0] = hn::BitCast(d, hn::InterleaveLower(d64, ab0, ce0));
  columns[1] = hn::BitCast(d, hn::InterleaveUpper(d64, ab0, ce0));
  columns[2] = hn::BitCast(d, hn::InterleaveLower(d64, ab1, ce1));
  columns[3] = hn::BitCast(d, hn::InterleaveUpper(d64, ab1, ce1));
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

template <typename T>
HWY_INLINE void LoadColumns(const T* at, size_t stride, Vec16 (&columns)[8]) {
  const hn::Repartition<uint16_t, Lane16> d16;
  const hn::Repartition<uint32_t, Lane16> d32;
  const hn::Repartition<uint64_t, Lane16> d64;
  const auto* bits = reinterpret_cast<const uint16_t*>(at);
  const auto a = LoadEveryFourthRow(d16, bits, stride), b = LoadEveryFourthRow(d16, bits + stride, stride);
  const auto c = LoadEveryFourthRow(d16, bits + 2 * stride, stride),
             e = LoadEveryFourthRow(d16, bits + 3 * stride, stride);
  const auto four = [&](auto ab16, auto ce16, size_t column) {  // columns [column, column + 4)
    const auto ab = hn::BitCast(d32, ab16), ce = hn::BitCast(d32, ce16);
    // In each block of 64 bits: four rows of one column.
    const auto low = hn::BitCast(d64, hn::InterleaveLower(d32, ab, ce));
    const auto high = hn::BitCast(d64, hn::InterleaveUpper(d32, ab, ce));
    WidenHalves<T>(hn::ConcatEven(d64, high, low), columns[column], columns[column + 2]);
    WidenHalves<T>(hn::ConcatOdd(d64, high, low), columns[column + 1], columns[column + 3]);
  };
  four(hn::InterleaveLower(d16, a, b), hn::InterleaveLower(d16, c, e), 0);
  four(hn::InterleaveUpper(d16, a, b), hn::InterleaveUpper(d16, c, e), 4);
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
