#include "kernels/rms_norm.h"

#include <cmath>

namespace tidemill::reference {

void RmsNorm(ConstMatrix<float> x, std::span<const float> w, float eps, Matrix<float> y) {
  for (size_t t = 0; t < x.rows; ++t) {
    double sum = 0;
    for (size_t i = 0; i < x.cols; ++i) sum += static_cast<double>(x.row(t)[i]) * static_cast<double>(x.row(t)[i]);
    const double r = 1 / std::sqrt(sum / static_cast<double>(x.cols) + static_cast<double>(eps));
    for (size_t i = 0; i < x.cols; ++i) {
      y.row(t)[i] = static_cast<float>(static_cast<double>(x.row(t)[i]) * r * static_cast<double>(w[i]));
    }
  }
}

void RmsNormHeads(Matrix<float> x, size_t head_dim, std::span<const float> w, float eps) {
  for (size_t first = 0; first < x.cols; first += head_dim)
    RmsNorm(x.Cols(first, head_dim), w, eps, x.Cols(first, head_dim));
}

}  // namespace tidemill::reference
