// The pointwise functions of feed-forward layers, alone and as the gate of a gated layer (arXiv:2002.05202) or of a layer's output.
//   Activate:       y[t, i] = f(x[t, i])
//   GatedActivate:  y[t, i] = f(gate[t, i]) * up[t, i]
//     kSilu      x / (1 + exp(-x))
//     kGeluTanh  x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2       arXiv:1606.08415; gelu_new, gelu_pytorch_tanh
//     kGeluErf   x (1 + erf(x / sqrt(2))) / 2
//     kRelu      max(x, 0)
//     kSigmoid   1 / (1 + exp(-x))      a gate alone: no model file names it as its activation
//   x, gate, up, y : [tokens, ffn] f32; y may be one of the inputs itself, no other overlap
// Bits:  exp and erf as in cpu/vector_math-inl.h.  kSilu: one addition, one division.
//        kGeluTanh: z = x x, s = MulAdd(0.044715 z, x, x) 2 sqrt(2 / pi), x / (1 + exp(-s)): (1 + tanh(v)) / 2 is 1 / (1 + exp(-2 v)),
//        which does not cancel on the negative side.  kGeluErf: (x / 2) (1 + erf(x sqrt(1 / 2))).  kRelu: x < 0 ? 0 : x.
//        kSigmoid: one addition, one division.
//        Gated: one product more. NaN stays NaN.
// Error: |f - exact| <= ActivationTolerance(kind, x, exact); gated: that times |up|, + 2^-24 |exact up| + 2^-149.
// Cost:  GatedActivationCost(kind, tokens, ffn).
// Threads: splits elements over ctx. Allocates nothing.
#ifndef TIDEMILL_KERNELS_ACTIVATION_H_
#define TIDEMILL_KERNELS_ACTIVATION_H_

#include <cmath>
#include <cstddef>

#include "kernels/cost.h"
#include "kernels/execution_context.h"
#include "tensor/matrix.h"

namespace tidemill {

enum class Activation { kSilu, kGeluTanh, kGeluErf, kRelu, kSigmoid };

void Activate(ExecutionContext& ctx, Activation kind, ConstMatrix<float> x, Matrix<float> y);
void GatedActivate(ExecutionContext& ctx, Activation kind, ConstMatrix<float> gate, ConstMatrix<float> up,
                   Matrix<float> y);

inline double ActivationTolerance(Activation kind, double x, double exact) {
  constexpr double u = 0x1p-24;
  switch (kind) {
    case Activation::kSilu:
      // exp: 1.25 ulp; it overflows below x = -88.73, where silu is -88.73 / 2^128 and becomes 0.
      return 8 * u * std::fabs(exact) + 0x1p-121;
    case Activation::kGeluTanh: {
      // s has at most 8 roundings, its two constants' among them, which exp(-s) turns into |s| times as much; exp overflows below
      // x = -10.1, where the result is -10.1 / 2^128.
      const double s = 1.5957691216057308 * std::fabs(x) * (1 + 0.044715 * x * x);
      return (8 * s + 8) * u * std::fabs(exact) + 0x1p-124;
    }
    case Activation::kGeluErf:
      // erf's argument: 2 roundings, which erf turns into 1 u at most; erf: 2 ulp, 2 u at most; the sum: 1 u; the product: 1 u of
      // |exact| <= |x|. Relative to x, not to a small result: the sum cancels below x = -1, as it does in PyTorch's f32.
      return 3 * u * std::fabs(x) + 0x1p-149;
    case Activation::kRelu: return 0;
    case Activation::kSigmoid:
      // exp: 1.25 ulp, 2.5 u; the sum: 1 u; the quotient: 1 u. exp overflows below x = -88.73, where the result is 2^-128 and becomes 0.
      return 5 * u * std::fabs(exact) + 0x1p-128;
  }
  return 0;
}

// Multiplications and additions, a division as one: exp takes 18 of them, erf 27 beside its exp, the gate's product one.
constexpr Cost GatedActivationCost(Activation kind, size_t tokens, size_t ffn) {
  constexpr double kFlops[] = {21, 26, 50, 1, 21};  // in the order of Activation
  const double elements = static_cast<double>(tokens) * static_cast<double>(ffn);
  return {.bytes = 12 * elements, .flops = kFlops[static_cast<size_t>(kind)] * elements, .int8_ops = 0};
}

namespace reference {
void Activate(Activation kind, ConstMatrix<float> x, Matrix<float> y);
void GatedActivate(Activation kind, ConstMatrix<float> gate, ConstMatrix<float> up, Matrix<float> y);
double ActivationOf(Activation kind, double x);
}  // namespace reference

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_ACTIVATION_H_
