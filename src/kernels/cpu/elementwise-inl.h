// Included by cpu/row_kernels.cc alone.
#include "kernels/elementwise.h"

#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/for_each_span.h"
#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

void AddSpan(const float* x, size_t n, float* y) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::LoadU(d, x + i)), d, y + i);
  for (; i < n; ++i) y[i] = y[i] + x[i];
}

void ScaleSpan(float s, size_t n, float* x) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  const auto scale = hn::Set(d, s);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(scale, hn::LoadU(d, x + i)), d, x + i);
  for (; i < n; ++i) x[i] = s * x[i];
}

void SoftCapSpan(float cap, size_t n, float* x) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  const auto c = hn::Set(d, cap);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(c, Tanh(d, hn::Div(hn::LoadU(d, x + i), c))), d, x + i);
  if (i < n) {
    HWY_ALIGN float tail[16] = {};
    for (size_t j = 0; i + j < n; ++j) tail[j] = x[i + j];
    hn::Store(hn::Mul(c, Tanh(d, hn::Div(hn::Load(d, tail), c))), d, tail);
    for (size_t j = 0; i + j < n; ++j) x[i + j] = tail[j];
  }
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

void FillRows(ExecutionContext& ctx, std::span<const float> v, Matrix<float> y) {
  ForEachSpan(ctx, y.rows, y.cols, kRowBlockElements, [&](size_t r, size_t first, size_t n) {
    std::memcpy(y.row(r) + first, v.data() + first, n * sizeof(float));
  });
}

void AddRows(ExecutionContext& ctx, ConstMatrix<float> x, Matrix<float> y) {
  const auto kernel = TIDEMILL_PICK(ctx.isa(), AddSpan);
  ForEachSpan(ctx, y.rows, y.cols, kRowBlockElements,
              [&](size_t r, size_t first, size_t n) { kernel(x.row(r) + first, n, y.row(r) + first); });
}

void ScaleRows(ExecutionContext& ctx, float s, Matrix<float> x) {
  const auto kernel = TIDEMILL_PICK(ctx.isa(), ScaleSpan);
  ForEachSpan(ctx, x.rows, x.cols, kRowBlockElements,
              [&](size_t r, size_t first, size_t n) { kernel(s, n, x.row(r) + first); });
}

void SoftCap(ExecutionContext& ctx, float cap, Matrix<float> x) {
  const auto kernel = TIDEMILL_PICK(ctx.isa(), SoftCapSpan);
  ForEachSpan(ctx, x.rows, x.cols, kRowBlockElements / 2,  // an exp for each element
              [&](size_t r, size_t first, size_t n) { kernel(cap, n, x.row(r) + first); });
}

}  // namespace tidemill
#endif
