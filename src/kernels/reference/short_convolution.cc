#include "kernels/short_convolution.h"

#include "kernels/activation.h"

namespace tidemill::reference {

void ShortConvolution(std::span<const float* const> inputs, ConstMatrix<float> w, Matrix<float> y) {
  for (size_t t = 0; t < y.rows; ++t) {
    for (size_t c = 0; c < y.cols; ++c) {
      double sum = 0;
      for (size_t i = 0; i < w.rows; ++i) {
        const float* x = inputs[t * w.rows + i];
        if (x != nullptr) sum += static_cast<double>(w.row(i)[c]) * static_cast<double>(x[c]);
      }
      y.row(t)[c] = static_cast<float>(ActivationOf(Activation::kSilu, sum));
    }
  }
}

}  // namespace tidemill::reference
