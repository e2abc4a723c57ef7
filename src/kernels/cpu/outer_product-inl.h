// The step of every sum in attention: some weights by some registers of keys or values.
// Per-target include guard: foreach_target compiles this once for each target.
#if defined(TIDEMILL_KERNELS_CPU_OUTER_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIDEMILL_KERNELS_CPU_OUTER_PRODUCT_INL_H_
#undef TIDEMILL_KERNELS_CPU_OUTER_PRODUCT_INL_H_
#else
#define TIDEMILL_KERNELS_CPU_OUTER_PRODUCT_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

// sums[r][c] += left(r) * right(c). The fewer of both wait in registers and the others come one by one: 12 sums, 3 weights and a value are
// the 16 registers of AVX2. With all four values in registers GCC 12 kept a sum on the stack: one row of 9 heads on 3 of 64 at depth 8192
// positions in cache took 357 instead of 266 us (Zen 4).
template <size_t kRows, size_t kColumns, class Left, class Right>
HWY_INLINE void AddOuterProduct(const Left& left, const Right& right, Vec16 (&sums)[kRows][kColumns]) {
  if constexpr (kRows < kColumns) {
    Vec16 lefts[kRows];
    for (size_t r = 0; r < kRows; ++r) lefts[r] = left(r);
    for (size_t c = 0; c < kColumns; ++c) {
      const auto one = right(c);
      for (size_t r = 0; r < kRows; ++r) sums[r][c] = hn::MulAdd(lefts[r], one, sums[r][c]);
    }
  } else {
    Vec16 rights[kColumns];
    for (size_t c = 0; c < kColumns; ++c) rights[c] = right(c);
    for (size_t r = 0; r < kRows; ++r) {
      const auto one = left(r);
      for (size_t c = 0; c < kColumns; ++c) sums[r][c] = hn::MulAdd(one, rights[c], sums[r][c]);
    }
  }
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
