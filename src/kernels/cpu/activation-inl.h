// Included by cpu/row_kernels.cc alone.
#include "kernels/activation.h"

#include "hwy/highway.h"
#include "kernels/cpu/for_each_span.h"
#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

template <Activation kKind>
HWY_INLINE Vec16 Of(Lane16 d, Vec16 x) {
  if constexpr (kKind == Activation::kSilu) {
    return Silu(d, x);
  } else if constexpr (kKind == Activation::kGeluTanh) {
    const auto cubic = hn::Mul(hn::Mul(x, x), hn::Set(d, 0.044715F));
    const auto minus_s = hn::Mul(hn::MulAdd(cubic, x, x), hn::Set(d, -0x1.988454p+0F));  // -2 sqrt(2 / pi)
    return hn::Div(x, hn::Add(hn::Set(d, 1.0F), Exp(d, minus_s)));
  } else if constexpr (kKind == Activation::kGeluErf) {
    const auto erf = Erf(d, hn::Mul(x, hn::Set(d, 0x1.6a09e6p-1F)));  // sqrt(1 / 2)
    return hn::Mul(hn::Mul(x, hn::Set(d, 0.5F)), hn::Add(hn::Set(d, 1.0F), erf));
  } else if constexpr (kKind == Activation::kSigmoid) {
    return Sigmoid(d, x);
  } else {
    const auto zero = hn::Zero(d);
    return hn::IfThenElse(hn::Lt(x, zero), zero, x);  // keeps NaN, which Max does not
  }
}

template <Activation kKind>
void ActivateSpan(const float* x, size_t n, float* y) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(Of<kKind>(d, hn::LoadU(d, x + i)), d, y + i);
  if (i < n) {
    HWY_ALIGN float tail[16] = {};
    for (size_t j = 0; i + j < n; ++j) tail[j] = x[i + j];
    hn::Store(Of<kKind>(d, hn::Load(d, tail)), d, tail);
    for (size_t j = 0; i + j < n; ++j) y[i + j] = tail[j];
  }
}

template <Activation kKind>
void GatedActivateSpan(const float* gate, const float* up, size_t n, float* y) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(Of<kKind>(d, hn::LoadU(d, gate + i)), hn::LoadU(d, up + i)), d, y + i);
  }
  if (i < n) {
    HWY_ALIGN float g[16] = {};
    HWY_ALIGN float u[16] = {};
    for (size_t j = 0; i + j < n; ++j) {
      g[j] = gate[i + j];
      u[j] = up[i + j];
    }
    hn::Store(hn::Mul(Of<kKind>(d, hn::Load(d, g)), hn::Load(d, u)), d, g);
    for (size_t j = 0; i + j < n; ++j) y[i + j] = g[j];
  }
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {
namespace {

using ActivateKernel = void (*)(const float* x, size_t n, float* y);
using GatedKernel = void (*)(const float* gate, const float* up, size_t n, float* y);

template <Activation kKind>
ActivateKernel PickActivate(Isa isa) {
  return TIDEMILL_PICK(isa, ActivateSpan<kKind>);
}
template <Activation kKind>
GatedKernel PickGated(Isa isa) {
  return TIDEMILL_PICK(isa, GatedActivateSpan<kKind>);
}

ActivateKernel PickActivate(Isa isa, Activation kind) {
  switch (kind) {
    case Activation::kSilu: return PickActivate<Activation::kSilu>(isa);
    case Activation::kGeluTanh: return PickActivate<Activation::kGeluTanh>(isa);
    case Activation::kGeluErf: return PickActivate<Activation::kGeluErf>(isa);
    case Activation::kSigmoid: return PickActivate<Activation::kSigmoid>(isa);
    case Activation::kRelu: break;
  }
  return PickActivate<Activation::kRelu>(isa);
}
GatedKernel PickGated(Isa isa, Activation kind) {
  switch (kind) {
    case Activation::kSilu: return PickGated<Activation::kSilu>(isa);
    case Activation::kGeluTanh: return PickGated<Activation::kGeluTanh>(isa);
    case Activation::kGeluErf: return PickGated<Activation::kGeluErf>(isa);
    case Activation::kSigmoid: return PickGated<Activation::kSigmoid>(isa);
    case Activation::kRelu: break;
  }
  return PickGated<Activation::kRelu>(isa);
}

constexpr size_t kChunkElements = kRowBlockElements / 2;  // a few microseconds of work: an exp for each element

}  // namespace

void Activate(ExecutionContext& ctx, Activation kind, ConstMatrix<float> x, Matrix<float> y) {
  const ActivateKernel kernel = PickActivate(ctx.isa(), kind);
  ForEachSpan(ctx, y.rows, y.cols, kChunkElements,
              [&](size_t r, size_t first, size_t n) { kernel(x.row(r) + first, n, y.row(r) + first); });
}

void GatedActivate(ExecutionContext& ctx, Activation kind, ConstMatrix<float> gate, ConstMatrix<float> up,
                   Matrix<float> y) {
  const GatedKernel kernel = PickGated(ctx.isa(), kind);
  ForEachSpan(ctx, y.rows, y.cols, kChunkElements, [&](size_t r, size_t first, size_t n) {
    kernel(gate.row(r) + first, up.row(r) + first, n, y.row(r) + first);
  });
}

}  // namespace tidemill
#endif
