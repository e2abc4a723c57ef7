#include "kernels/activation.h"

#include <cmath>

namespace tidemill::reference {

double ActivationOf(Activation kind, double x) {
  switch (kind) {
    case Activation::kSilu: return x / (1 + std::exp(-x));
    // The tanh form, written as its logistic equal: f64 too would cancel far down the negative side.
    case Activation::kGeluTanh: return x / (1 + std::exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf: return 0.5 * x * std::erfc(-x * 0.70710678118654752);
    case Activation::kRelu: return x < 0 ? 0 : x;
    case Activation::kSigmoid: return 1 / (1 + std::exp(-x));
  }
  return 0;
}

void Activate(Activation kind, ConstMatrix<float> x, Matrix<float> y) {
  for (size_t t = 0; t < y.rows; ++t) {
    for (size_t i = 0; i < y.cols; ++i) {
      y.row(t)[i] = static_cast<float>(ActivationOf(kind, static_cast<double>(x.row(t)[i])));
    }
  }
}

void GatedActivate(Activation kind, ConstMatrix<float> gate, ConstMatrix<float> up, Matrix<float> y) {
  for (size_t t = 0; t < y.rows; ++t) {
    for (size_t i = 0; i < y.cols; ++i) {
      y.row(t)[i] = static_cast<float>(ActivationOf(kind, static_cast<double>(gate.row(t)[i])) *
                                       static_cast<double>(up.row(t)[i]));
    }
  }
}

}  // namespace tidemill::reference
