// Included by cpu/row_kernels.cc alone.
#include "kernels/delta_inputs.h"

#include <cmath>

#include "hwy/highway.h"
#include "kernels/cpu/for_each_row.h"
#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/sum_squares-inl.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

void L2NormHeadsRow(float* x, size_t n, size_t head_dim, float scale) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  for (float* head = x; head < x + n; head += head_dim) {
    const float r = scale / std::sqrt(SumSquares(head, head_dim) + 1e-6F);
    const auto factor = hn::Set(d, r);
    size_t i = 0;
    for (; i + lanes <= head_dim; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, head + i), factor), d, head + i);
    for (; i < head_dim; ++i) head[i] = head[i] * r;
  }
}

HWY_INLINE Vec16 DecayGate(Lane16 d, Vec16 a, Vec16 dt_bias, Vec16 decay) {
  const auto zero = hn::Zero(d);
  const auto least = hn::Set(d, kMinDecay);
  const auto x = hn::Add(a, dt_bias);
  const auto above = hn::IfThenElse(hn::Lt(x, zero), zero, x);  // keeps NaN, which Max does not
  const auto softplus = hn::Add(above, Log1p(d, ExpUpTo0(d, hn::Neg(hn::Abs(x)))));
  const auto g = hn::Mul(decay, softplus);
  return hn::IfThenElse(hn::Lt(g, least), least, g);
}

void DeltaGatesRow(const float* b, const float* a, const float* decay, const float* dt_bias, size_t n, float* beta,
                   float* g) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  size_t h = 0;
  for (; h + lanes <= n; h += lanes) {
    hn::StoreU(Sigmoid(d, hn::LoadU(d, b + h)), d, beta + h);
    hn::StoreU(DecayGate(d, hn::LoadU(d, a + h), hn::LoadU(d, dt_bias + h), hn::LoadU(d, decay + h)), d, g + h);
  }
  if (h < n) {
    HWY_ALIGN float tail_b[16] = {}, tail_a[16] = {}, tail_dt_bias[16] = {}, tail_decay[16] = {};
    for (size_t j = 0; h + j < n; ++j) {
      tail_b[j] = b[h + j];
      tail_a[j] = a[h + j];
      tail_dt_bias[j] = dt_bias[h + j];
      tail_decay[j] = decay[h + j];
    }
    hn::Store(Sigmoid(d, hn::Load(d, tail_b)), d, tail_b);
    hn::Store(DecayGate(d, hn::Load(d, tail_a), hn::Load(d, tail_dt_bias), hn::Load(d, tail_decay)), d, tail_a);
    for (size_t j = 0; h + j < n; ++j) {
      beta[h + j] = tail_b[j];
      g[h + j] = tail_a[j];
    }
  }
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

void L2NormHeads(ExecutionContext& ctx, Matrix<float> x, size_t head_dim, float scale) {
  const auto kernel = TIDEMILL_PICK(ctx.isa(), L2NormHeadsRow);
  ForEachRow(ctx, x.rows, x.cols, [&](size_t r) { kernel(x.row(r), x.cols, head_dim, scale); });
}

void DeltaGates(ExecutionContext& ctx, ConstMatrix<float> b, ConstMatrix<float> a, std::span<const float> decay,
                std::span<const float> dt_bias, Matrix<float> beta, Matrix<float> g) {
  const auto kernel = TIDEMILL_PICK(ctx.isa(), DeltaGatesRow);
  constexpr size_t kBlockElements = kRowBlockElements / 4;  // two exps, a log and three divisions for each element
  ForEachRow(
      ctx, b.rows, b.cols,
      [&](size_t r) { kernel(b.row(r), a.row(r), decay.data(), dt_bias.data(), b.cols, beta.row(r), g.row(r)); },
      kBlockElements);
}

}  // namespace tidemill
#endif
