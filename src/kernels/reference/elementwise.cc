#include "kernels/elementwise.h"

#include <cmath>

namespace tidemill::reference {
namespace {

template <typename F>
void ForEach(Matrix<float> y, const F& f) {
  for (size_t t = 0; t < y.rows; ++t) {
    for (size_t i = 0; i < y.cols; ++i) y.row(t)[i] = static_cast<float>(f(t, i));
  }
}

}  // namespace

void FillRows(std::span<const float> v, Matrix<float> y) {
  ForEach(y, [&](size_t, size_t i) { return v[i]; });
}

void AddRows(ConstMatrix<float> x, Matrix<float> y) {
  ForEach(y, [&](size_t t, size_t i) { return static_cast<double>(y.row(t)[i]) + static_cast<double>(x.row(t)[i]); });
}

void ScaleRows(float s, Matrix<float> x) {
  ForEach(x, [&](size_t t, size_t i) { return static_cast<double>(s) * static_cast<double>(x.row(t)[i]); });
}

void SoftCap(float cap, Matrix<float> x) {
  const double c = static_cast<double>(cap);
  ForEach(x, [&](size_t t, size_t i) { return c * std::tanh(static_cast<double>(x.row(t)[i]) / c); });
}

}  // namespace tidemill::reference
