#include "kernels/swiglu.h"

#include <cmath>

namespace tidemill::reference {

void SwiGlu(ConstMatrix<float> gate, ConstMatrix<float> up, Matrix<float> y) {
  for (size_t t = 0; t < y.rows; ++t) {
    for (size_t i = 0; i < y.cols; ++i) {
      const double g = static_cast<double>(gate.row(t)[i]);
      y.row(t)[i] = static_cast<float>(g / (1 + std::exp(-g)) * static_cast<double>(up.row(t)[i]));
    }
  }
}

}  // namespace tidemill::reference
