// The sum that norms by the root of mean or sum of squares begin with.
// Per-target include guard: foreach_target compiles this once for each target.
#if defined(TIDEMILL_KERNELS_CPU_SUM_SQUARES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIDEMILL_KERNELS_CPU_SUM_SQUARES_INL_H_
#undef TIDEMILL_KERNELS_CPU_SUM_SQUARES_INL_H_
#else
#define TIDEMILL_KERNELS_CPU_SUM_SQUARES_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

// s[i % 16] = MulAdd(x[i], x[i], s[i % 16]) in ascending i, added by the fixed tree.
HWY_INLINE float SumSquares(const float* HWY_RESTRICT x, size_t n) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN float sums[16];
  for (size_t part = 0; part < 16; part += lanes) {
    auto acc = hn::Zero(d);
    size_t i = part;
    for (; i + lanes <= n; i += 16) {
      const auto v = hn::LoadU(d, x + i);
      acc = hn::MulAdd(v, v, acc);
    }
    if (i < n) {  // a padded copy: a masked load may read past the end below AVX2
      HWY_ALIGN float tail[16] = {};
      for (size_t j = 0; i + j < n; ++j) tail[j] = x[i + j];
      const auto v = hn::Load(d, tail);
      acc = hn::MulAdd(v, v, acc);
    }
    hn::Store(acc, d, sums + part);
  }
  return TreeSum16(sums);
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
