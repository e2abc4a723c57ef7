// Vector routines that kernels of one target share: one routine for body and tail, one order of operations on every level.
// Per-target include guard: foreach_target compiles this once for each target.
#if defined(TIDEMILL_KERNELS_CPU_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIDEMILL_KERNELS_CPU_VECTOR_MATH_INL_H_
#undef TIDEMILL_KERNELS_CPU_VECTOR_MATH_INL_H_
#else
#define TIDEMILL_KERNELS_CPU_VECTOR_MATH_INL_H_
#endif

#include <limits>

#include "hwy/highway.h"
#include "tensor/q8_block.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Lane16 = hn::CappedTag<float, 16>;  // 16 lanes in one, two or four registers
using Vec16 = hn::Vec<Lane16>;

// The bits of halves as f32, exactly. The baseline has no such instruction, and Highway's own replacement takes infinity and NaN for
// numbers.
template <class D, class V>
HWY_INLINE hn::Vec<D> Widen(D d, hwy::float16_t, V bits) {
  const auto v = hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
#if HWY_TARGET == HWY_SSE4
  const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  return hn::IfThenElse(hn::Ge(hn::Abs(v), hn::Set(d, 65536.0F)), hn::Or(v, infinity), v);
#else
  return v;
#endif
}

// The bits of bfloat16 as f32, exactly: they are the upper half.
template <class D, class V>
HWY_INLINE hn::Vec<D> Widen(D d, hwy::bfloat16_t, V bits) {
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>(), bits)));
}

// Elements of any stored type as f32.
template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadF32(D d, const T* p) {
  return Widen(d, T(), hn::LoadU(hn::Rebind<uint16_t, D>(), reinterpret_cast<const uint16_t*>(p)));
}

// Elements that one T of a stored row holds.
template <typename T>
inline constexpr size_t kPerStored = 1;
template <>
inline constexpr size_t kPerStored<Q8Block> = Q8Block::kElements;

// Elements [first, first + lanes) of a stored row as f32; of blocks, those of one block.
template <typename T>
HWY_INLINE Vec16 LoadElements(const T* row, size_t first) {
  return LoadF32(Lane16(), row + first);
}
HWY_INLINE Vec16 LoadElements(const Q8Block* row, size_t first) {
  const Lane16 d;
  const Q8Block& block = row[first / Q8Block::kElements];
  const auto quants = hn::LoadU(hn::Rebind<int8_t, Lane16>(), block.q + first % Q8Block::kElements);
  const auto scale = Widen(d, hwy::float16_t(), hn::Set(hn::Rebind<uint16_t, Lane16>(), block.d()));
  return hn::Mul(scale, hn::ConvertTo(d, hn::PromoteTo(hn::RebindToSigned<Lane16>(), quants)));
}

// The fixed tree over 16 partial sums: halves added to each other until one is left.
HWY_INLINE float TreeSum16(const float* s) {
  float t[8];
  for (int i = 0; i < 8; ++i) t[i] = s[i] + s[i + 8];
  for (int i = 0; i < 4; ++i) t[i] = t[i] + t[i + 4];
  return (t[0] + t[2]) + (t[1] + t[3]);
}

// The same of sums that are in registers.
template <class D, class V = hn::Vec<D>>
HWY_INLINE float TreeSumOfVector(D, V sums) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::GetLane(sums);
  } else {
    const hn::Half<D> half;
    return TreeSumOfVector(half, hn::Add(hn::LowerHalf(half, sums), hn::UpperHalf(half, sums)));
  }
}
template <size_t kParts>
HWY_INLINE float TreeSum16(Vec16 (&parts)[kParts]) {
  for (size_t n = kParts / 2; n != 0; n /= 2) {
    for (size_t i = 0; i < n; ++i) parts[i] = hn::Add(parts[i], parts[i + n]);
  }
  return TreeSumOfVector(Lane16(), parts[0]);
}

// exp(r) for exp(x) = 2^n exp(r), r = x - n ln 2, |r| <= ln 2 / 2: 1 + r + r^2 Q(r) with the Q of least relative error, 2^-28 after rounding
// its coefficients (Remez); Taylor's of the same degree loses 2 ulp at the ends.
HWY_INLINE Vec16 ExpOfRemainder(Lane16 d, Vec16 x, Vec16 n) {
  auto r = hn::MulAdd(n, hn::Set(d, -0.693359375F), x);
  r = hn::MulAdd(n, hn::Set(d, 2.12194440e-4F), r);
  auto p = hn::Set(d, 0x1.6a244cp-10F);
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.1239d4p-7F));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.5558f2p-5F));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.555492p-3F));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.fffffcp-2F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F));
  return hn::MulAdd(p, r, hn::Set(d, 1.0F));
}
inline constexpr float kLog2E = 1.44269504088896341F;

// exp(x), scaled by 2^n in two steps where no instruction does it, so that results down to the smallest denormals round once at the end. Error
// below 1 ulp, 1.25 ulp without FMA (vector_math_test). exp(-inf) = 0, exp(NaN) = NaN, above 88.73 inf.
HWY_INLINE Vec16 Exp(Lane16 d, Vec16 x) {
  [[maybe_unused]] const hn::RebindToSigned<Lane16> di;
  const auto low = hn::Set(d, -104.0F);
  const auto high = hn::Set(d, 89.0F);
#if HWY_TARGET == HWY_AVX3
  // Both instructions give their second operand where one is NaN.
  const Vec16 clamped{_mm512_min_ps(high.raw, _mm512_max_ps(low.raw, x.raw))};
#else
  const auto clamped = hn::IfThenElse(hn::Lt(x, low), low, hn::IfThenElse(hn::Gt(x, high), high, x));  // keeps NaN
#endif
  const auto n = hn::Round(hn::Mul(clamped, hn::Set(d, kLog2E)));
  const auto p = ExpOfRemainder(d, clamped, n);
#if HWY_TARGET == HWY_AVX3
  return Vec16{_mm512_scalef_ps(p.raw, n.raw)};  // rounds once, too, and keeps NaN
#else
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const auto scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  const auto result = hn::Mul(hn::Mul(p, scale1), scale2);
  // NaN's n converts to an arbitrary integer, so that NaN must be put back.
  return hn::IfThenElse(hn::Eq(x, x), result, x);
#endif
}

// The same bits for x <= 0 and NaN, by half as many instructions: adding 1.5 * 2^23 + 192 rounds to n as Round does, since it is even, and leaves
// n + 192 = (n + 65) + 127 in the lowest bits, whose 2^(n + 65) no n of -150 to 0 takes out of range.
HWY_INLINE Vec16 ExpUpTo0(Lane16 d, Vec16 x) {
#if HWY_TARGET == HWY_AVX3
  return Exp(d, x);
#else
  const hn::RebindToUnsigned<Lane16> du;
  const auto low = hn::Set(d, -104.0F);
  const auto clamped = hn::IfThenElse(hn::Lt(x, low), low, x);  // keeps NaN
  const auto shift = hn::Set(d, 0x1.8p23F + 192);
  const auto shifted = hn::Add(hn::Mul(clamped, hn::Set(d, kLog2E)), shift);
  const auto p = ExpOfRemainder(d, clamped, hn::Sub(shifted, shift));
  const auto scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  return hn::Mul(hn::Mul(p, scale), hn::Set(d, 0x1p-65F));
#endif
}

// tanh(x), odd, error below 2 ulp. Below 0.625: x + x z P(z), z = x^2, with the P of least relative error (2^-27.7 after rounding
// its coefficients), so that tiny x are exact. From there on 1 - 2 / (exp(2 |x|) + 1), which is 1 from 9.02 on and never above.
HWY_INLINE Vec16 Tanh(Lane16 d, Vec16 x) {
  const auto one = hn::Set(d, 1.0F);
  const auto a = hn::Abs(x);
  const auto z = hn::Mul(a, a);
  auto p = hn::Set(d, -0x1.750ce2p-8F);
  p = hn::MulAdd(p, z, hn::Set(d, 0x1.51f8cep-6F));
  p = hn::MulAdd(p, z, hn::Set(d, -0x1.b835a4p-5F));
  p = hn::MulAdd(p, z, hn::Set(d, 0x1.1106f6p-3F));
  p = hn::MulAdd(p, z, hn::Set(d, -0x1.555532p-2F));
  const auto near = hn::MulAdd(a, hn::Mul(p, z), a);
  const auto e = Exp(d, hn::Add(a, a));
  const auto far = hn::Sub(one, hn::Div(hn::Set(d, 2.0F), hn::Add(e, one)));
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.625F)), near, far), x);
}

// erf(x), odd, error below 2 ulp. Below 1: x + x P(x^2), P of least relative error (2^-29.4). From there on 1 - exp(t Q(t)), t = |x| up
// to 4, Q of least error in the result (2^-28.6); 1 from 3.92 on and never above.
HWY_INLINE Vec16 Erf(Lane16 d, Vec16 x) {
  const auto one = hn::Set(d, 1.0F);
  const auto four = hn::Set(d, 4.0F);
  const auto a = hn::Abs(x);
  const auto z = hn::Mul(a, a);
  auto p = hn::Set(d, 0x1.4771fcp-14F);
  p = hn::MulAdd(p, z, hn::Set(d, -0x1.a3515ep-11F));
  p = hn::MulAdd(p, z, hn::Set(d, 0x1.53f224p-8F));
  p = hn::MulAdd(p, z, hn::Set(d, -0x1.b7f71ap-6F));
  p = hn::MulAdd(p, z, hn::Set(d, 0x1.ce2ce6p-4F));
  p = hn::MulAdd(p, z, hn::Set(d, -0x1.81273ep-2F));
  p = hn::MulAdd(p, z, hn::Set(d, 0x1.06eba8p-3F));
  const auto near = hn::MulAdd(a, p, a);
  const auto t = hn::IfThenElse(hn::Gt(a, four), four, a);  // keeps NaN
  auto q = hn::Set(d, 0x1.b8c71ap-13F);
  q = hn::MulAdd(q, t, hn::Set(d, -0x1.a136ecp-9F));
  q = hn::MulAdd(q, t, hn::Set(d, 0x1.755376p-6F));
  q = hn::MulAdd(q, t, hn::Set(d, -0x1.ae79b8p-4F));
  q = hn::MulAdd(q, t, hn::Set(d, -0x1.458dacp-1F));
  q = hn::MulAdd(q, t, hn::Set(d, -0x1.20e3c6p+0F));
  const auto far = hn::Sub(one, Exp(d, hn::Mul(t, q)));
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, one), near, far), x);
}

// log(1 + y) for 0 <= y <= 1, error below 1.25 ulp (vector_math_test). It is 2 atanh(s), s = y / (2 + y), and 2 s = y - s y, so that y, which is
// exact, loses s (y - z P(z)), z = s^2: of the roundings of s and P less than a half counts, and tiny y are exact. P of least relative error in
// the result (2^-27.7 after rounding its coefficients). NaN stays NaN.
HWY_INLINE Vec16 Log1p(Lane16 d, Vec16 y) {
  const auto s = hn::Div(y, hn::Add(hn::Set(d, 2.0F), y));
  const auto z = hn::Mul(s, s);
  auto p = hn::Set(d, 0x1.1ecb1ap-2F);
  p = hn::MulAdd(p, z, hn::Set(d, 0x1.1ec012p-2F));
  p = hn::MulAdd(p, z, hn::Set(d, 0x1.99d1cep-2F));
  p = hn::MulAdd(p, z, hn::Set(d, 0x1.555502p-1F));
  return hn::NegMulAdd(s, hn::NegMulAdd(z, p, y), y);
}

// silu(x) = x / (1 + exp(-x)).
HWY_INLINE Vec16 Silu(Lane16 d, Vec16 x) { return hn::Div(x, hn::Add(hn::Set(d, 1.0F), Exp(d, hn::Neg(x)))); }

// 1 / (1 + exp(-x)).
HWY_INLINE Vec16 Sigmoid(Lane16 d, Vec16 x) {
  const auto one = hn::Set(d, 1.0F);
  return hn::Div(one, hn::Add(one, Exp(d, hn::Neg(x))));
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
