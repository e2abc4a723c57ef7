#include "kernels/associative_memory.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tidemill::reference {
namespace {

constexpr auto kEpsilon = static_cast<double>(kMemoryEpsilon);

double Dot(const float* a, const double* b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// Column c of f A.
double Column(const float* f, const double* a, size_t features, size_t hidden, size_t c) {
  double sum = 0;
  for (size_t p = 0; p < features; ++p) sum += static_cast<double>(f[p]) * a[p * hidden + c];
  return sum;
}

}  // namespace

void DpfpFeatures(ConstMatrix<float> x, size_t nu, Matrix<float> out) {
  const size_t n = x.cols, all = 2 * n;
  for (size_t t = 0; t < x.rows; ++t) {
    std::vector<float> c(all);
    for (size_t i = 0; i < n; ++i) {
      c[i] = std::max(x.row(t)[i], 0.0F);
      c[n + i] = std::max(-x.row(t)[i], 0.0F);
    }
    for (size_t j = 1; j <= nu; ++j) {
      for (size_t i = 0; i < all; ++i) out.row(t)[(j - 1) * all + i] = c[i] * c[(i + j * all - j) % all];
    }
  }
}

void MemoryRead(const MemoryShape& shape, const double* memory, ConstMatrix<float> f, Matrix<float> x) {
  const size_t features = shape.features(), hidden = shape.hidden;
  for (size_t t = 0; t < x.rows; ++t) {
    const double divisor = Dot(f.row(t), memory + features * hidden, features) + kEpsilon;
    for (size_t c = 0; c < hidden; ++c) {
      const double sum = Column(f.row(t), memory, features, hidden, c);
      x.row(t)[c] = static_cast<float>(static_cast<double>(x.row(t)[c]) + sum / divisor);
    }
  }
}

void MemoryWrite(const MemoryShape& shape, const double* memory, ConstMatrix<float> k, ConstMatrix<float> b,
                 ConstMatrix<float> v, double* out) {
  const size_t features = shape.features(), hidden = shape.hidden;
  std::vector<double> next(shape.elements());
  if (memory != nullptr) next.assign(memory, memory + shape.elements());
  for (size_t i = 0; i < k.rows; ++i) {
    const double beta = 1 / (1 + std::exp(-static_cast<double>(b.row(i)[0])));
    double divisor = 1, gamma = 1;
    if (memory != nullptr) {
      divisor = Dot(k.row(i), memory + features * hidden, features) + kEpsilon;
      double length = kEpsilon;
      for (size_t p = 0; p < features; ++p)
        length += static_cast<double>(k.row(i)[p]) * static_cast<double>(k.row(i)[p]);
      if (shape.correction) gamma = std::clamp(1 - divisor / length, 0.0, 1.0);
    }
    for (size_t c = 0; c < hidden; ++c) {
      const double old = memory == nullptr ? 0 : Column(k.row(i), memory, features, hidden, c) / divisor;
      const double u = beta * (static_cast<double>(v.row(i)[c]) - old);
      for (size_t p = 0; p < features; ++p) next[p * hidden + c] += static_cast<double>(k.row(i)[p]) * u;
    }
    for (size_t p = 0; p < features; ++p) next[features * hidden + p] += gamma * static_cast<double>(k.row(i)[p]);
  }
  std::copy(next.begin(), next.end(), out);
}

}  // namespace tidemill::reference
