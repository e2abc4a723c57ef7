// Included by cpu/row_kernels.cc alone.
#include "kernels/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "kernels/cpu/for_each_row.h"
#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

// The last x [n % 16], made up to 16 with `padding`: a masked load may read past the end below AVX2.
HWY_INLINE void PadTail(const float* x, size_t n, float padding, float* tail) {
  for (size_t j = 0; j < 16; ++j) tail[j] = j < n % 16 ? x[n / 16 * 16 + j] : padding;
}

float Sum(const float* x, const float* tail, size_t n) {
  const Lane16 d;
  HWY_ALIGN float sums[16];
  for (size_t part = 0; part < 16; part += hn::Lanes(d)) {
    auto acc = hn::Zero(d);
    for (size_t i = part; i < n / 16 * 16; i += 16) acc = hn::Add(acc, hn::LoadU(d, x + i));
    hn::Store(hn::Add(acc, hn::Load(d, tail + part)), d, sums + part);
  }
  return TreeSum16(sums);
}

float SumSquaredDeviations(const float* x, const float* tail, size_t n, float mean) {
  const Lane16 d;
  const auto m = hn::Set(d, mean);
  HWY_ALIGN float sums[16];
  for (size_t part = 0; part < 16; part += hn::Lanes(d)) {
    auto acc = hn::Zero(d);
    for (size_t i = part; i < n / 16 * 16; i += 16) {
      const auto deviation = hn::Sub(hn::LoadU(d, x + i), m);
      acc = hn::MulAdd(deviation, deviation, acc);
    }
    const auto deviation = hn::Sub(hn::Load(d, tail + part), m);
    hn::Store(hn::MulAdd(deviation, deviation, acc), d, sums + part);
  }
  return TreeSum16(sums);
}

void LayerNormRow(const float* x, const float* w, const float* b, size_t n, float eps, float* y) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN float tail[16], scales[16], shifts[16];
  PadTail(x, n, 0.0F, tail);
  const float mean = Sum(x, tail, n) / static_cast<float>(n);
  PadTail(x, n, mean, tail);  // a deviation of 0
  const float variance = SumSquaredDeviations(x, tail, n, mean) / static_cast<float>(n);
  const auto m = hn::Set(d, mean);
  const auto r = hn::Set(d, 1.0F / std::sqrt(variance + eps));
  const size_t whole = n / 16 * 16;
  for (size_t i = 0; i < whole; i += lanes) {
    const auto z = hn::Mul(hn::Sub(hn::LoadU(d, x + i), m), r);
    hn::StoreU(hn::MulAdd(z, hn::LoadU(d, w + i), hn::LoadU(d, b + i)), d, y + i);
  }
  if (whole == n) return;
  PadTail(w, n, 0.0F, scales);
  PadTail(b, n, 0.0F, shifts);
  for (size_t i = 0; i < 16; i += lanes) {
    const auto z = hn::Mul(hn::Sub(hn::Load(d, tail + i), m), r);
    hn::Store(hn::MulAdd(z, hn::Load(d, scales + i), hn::Load(d, shifts + i)), d, tail + i);
  }
  std::copy(tail, tail + n % 16, y + whole);
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

void LayerNorm(ExecutionContext& ctx, ConstMatrix<float> x, std::span<const float> w, std::span<const float> b,
               float eps, Matrix<float> y) {
  const auto kernel = TIDEMILL_PICK(ctx.isa(), LayerNormRow);
  ForEachRow(ctx, x.rows, x.cols, [&](size_t r) { kernel(x.row(r), w.data(), b.data(), x.cols, eps, y.row(r)); });
}

}  // namespace tidemill
#endif
