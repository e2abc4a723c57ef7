// Included by cpu/row_kernels.cc alone.
#include "kernels/rms_norm.h"

#include <cmath>

#include "hwy/highway.h"
#include "kernels/cpu/for_each_row.h"
#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/sum_squares-inl.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

void NormRow(const float* x, const float* w, size_t n, float r, float* y) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  const auto scale = hn::Set(d, r);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), scale), hn::LoadU(d, w + i)), d, y + i);
  }
  for (; i < n; ++i) y[i] = (x[i] * r) * w[i];
}

void RmsNormRow(const float* x, const float* w, size_t n, float eps, float* y) {
  const float mean = SumSquares(x, n) / static_cast<float>(n);
  NormRow(x, w, n, 1.0F / std::sqrt(mean + eps), y);
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

void RmsNorm(ExecutionContext& ctx, ConstMatrix<float> x, std::span<const float> w, float eps, Matrix<float> y) {
  const auto kernel = TIDEMILL_PICK(ctx.isa(), RmsNormRow);
  ForEachRow(ctx, x.rows, x.cols, [&](size_t r) { kernel(x.row(r), w.data(), x.cols, eps, y.row(r)); });
}

void RmsNormHeads(ExecutionContext& ctx, Matrix<float> x, size_t head_dim, std::span<const float> w, float eps) {
  const auto kernel = TIDEMILL_PICK(ctx.isa(), RmsNormRow);
  ForEachRow(ctx, x.rows, x.cols, [&](size_t r) {
    for (float* head = x.row(r); head < x.row(r) + x.cols; head += head_dim)
      kernel(head, w.data(), head_dim, eps, head);
  });
}

}  // namespace tidemill
#endif
