#include "kernels/delta_inputs.h"

#include <cmath>

#include "kernels/activation.h"

namespace tidemill::reference {

void L2NormHeads(Matrix<float> x, size_t head_dim, float scale) {
  for (size_t t = 0; t < x.rows; ++t) {
    for (float* head = x.row(t); head < x.row(t) + x.cols; head += head_dim) {
      double sum = 0;
      for (size_t i = 0; i < head_dim; ++i) sum += static_cast<double>(head[i]) * static_cast<double>(head[i]);
      const double r = static_cast<double>(scale) / std::sqrt(sum + 1e-6);
      for (size_t i = 0; i < head_dim; ++i) head[i] = static_cast<float>(static_cast<double>(head[i]) * r);
    }
  }
}

void DeltaGates(ConstMatrix<float> b, ConstMatrix<float> a, std::span<const float> decay,
                std::span<const float> dt_bias, Matrix<float> beta, Matrix<float> g) {
  Activate(Activation::kSigmoid, b, beta);
  for (size_t t = 0; t < g.rows; ++t) {
    for (size_t h = 0; h < g.cols; ++h) {
      const double x = static_cast<double>(a.row(t)[h]) + static_cast<double>(dt_bias[h]);
      const double softplus = (x < 0 ? 0 : x) + std::log1p(std::exp(-std::fabs(x)));
      const double exact = static_cast<double>(decay[h]) * softplus;
      g.row(t)[h] = exact < static_cast<double>(kMinDecay) ? kMinDecay : static_cast<float>(exact);
    }
  }
}

}  // namespace tidemill::reference
