// Exp of exact_math.h on vectors: the same operations in the same order, so the same bits, at every level.
// Per-target include guard: foreach_target compiles this once for each target.
#if defined(TIDEMILL_DECODING_EXACT_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIDEMILL_DECODING_EXACT_EXP_INL_H_
#undef TIDEMILL_DECODING_EXACT_EXP_INL_H_
#else
#define TIDEMILL_DECODING_EXACT_EXP_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"

#include "decoding/exact_math.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Lane8 = hn::CappedTag<double, 8>;  // 8 f64 or fewer in one register
using Vec8 = hn::Vec<Lane8>;

// x[n] = Exp(x[n]), step by step for all n: 19 multiplications of latency 3 in a row leave the units idle, and the CPU's
// window holds too few instructions to find the next vector's. Four at once take 0.88 of the time of one at AVX-512, 0.79 at
// AVX2 and 0.84 at the baseline (Zen 4, gcc 12); two at once gain half of that.
template <size_t N>
HWY_INLINE void ExpOfEach(Lane8 d, Vec8* HWY_RESTRICT x) {
  const hn::RebindToUnsigned<Lane8> du;
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, value); };
  const auto term = [d](size_t i) HWY_ATTR { return hn::Set(d, exact_math::kExpTerms[i]); };
  Vec8 shifted[N], r[N], r2[N], r4[N], low[N], middle[N], high[N], even[N];
  for (size_t n = 0; n < N; ++n) shifted[n] = hn::Mul(x[n], set(exact_math::kLog2E));
  for (size_t n = 0; n < N; ++n) shifted[n] = hn::Add(shifted[n], set(exact_math::kRoundToInteger));
  for (size_t n = 0; n < N; ++n) low[n] = hn::Sub(shifted[n], set(exact_math::kRoundToInteger));
  // The product is exact, so fused or not is the same.
  for (size_t n = 0; n < N; ++n) r[n] = hn::NegMulAdd(low[n], set(exact_math::kLn2High), x[n]);
  for (size_t n = 0; n < N; ++n) low[n] = hn::Mul(low[n], set(exact_math::kLn2Low));
  for (size_t n = 0; n < N; ++n) r[n] = hn::Sub(r[n], low[n]);
  for (size_t n = 0; n < N; ++n) r2[n] = hn::Mul(r[n], r[n]);
  for (size_t n = 0; n < N; ++n) even[n] = hn::Add(term(10), hn::Mul(term(11), r[n]));
  for (size_t n = 0; n < N; ++n) high[n] = hn::Add(term(8), hn::Mul(term(9), r[n]));
  for (size_t n = 0; n < N; ++n) r4[n] = hn::Mul(r2[n], r2[n]);
  for (size_t n = 0; n < N; ++n) high[n] = hn::Add(high[n], hn::Mul(even[n], r2[n]));
  for (size_t n = 0; n < N; ++n) high[n] = hn::Mul(high[n], hn::Mul(r4[n], r4[n]));
  for (size_t n = 0; n < N; ++n) even[n] = hn::Add(term(6), hn::Mul(term(7), r[n]));
  for (size_t n = 0; n < N; ++n) middle[n] = hn::Add(term(4), hn::Mul(term(5), r[n]));
  for (size_t n = 0; n < N; ++n) middle[n] = hn::Mul(hn::Add(middle[n], hn::Mul(even[n], r2[n])), r4[n]);
  for (size_t n = 0; n < N; ++n) even[n] = hn::Mul(hn::Add(term(2), hn::Mul(term(3), r[n])), r2[n]);
  for (size_t n = 0; n < N; ++n) low[n] = hn::Add(hn::Add(term(0), hn::Mul(term(1), r[n])), even[n]);
  for (size_t n = 0; n < N; ++n) low[n] = hn::Add(hn::Add(low[n], middle[n]), high[n]);
  for (size_t n = 0; n < N; ++n) low[n] = hn::Add(set(1.0), hn::Add(r[n], hn::Mul(r2[n], low[n])));
  for (size_t n = 0; n < N; ++n) {
    const auto bits = hn::Add(hn::BitCast(du, low[n]), hn::ShiftLeft<52>(hn::BitCast(du, shifted[n])));
    x[n] = hn::IfThenElseZero(hn::Ge(x[n], set(exact_math::kExpLowest)), hn::BitCast(d, bits));
  }
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
