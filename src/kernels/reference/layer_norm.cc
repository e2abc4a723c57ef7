#include "kernels/layer_norm.h"

#include <cmath>

namespace tidemill::reference {

void LayerNorm(ConstMatrix<float> x, std::span<const float> w, std::span<const float> b, float eps, Matrix<float> y) {
  const double n = static_cast<double>(x.cols);
  for (size_t t = 0; t < x.rows; ++t) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < x.cols; ++i) mean += static_cast<double>(x.row(t)[i]) / n;
    for (size_t i = 0; i < x.cols; ++i) variance += std::pow(static_cast<double>(x.row(t)[i]) - mean, 2) / n;
    const double r = 1 / std::sqrt(variance + static_cast<double>(eps));
    for (size_t i = 0; i < x.cols; ++i) {
      y.row(t)[i] = static_cast<float>((static_cast<double>(x.row(t)[i]) - mean) * r * static_cast<double>(w[i]) +
                                       static_cast<double>(b[i]));
    }
  }
}

}  // namespace tidemill::reference
