// Plain loops: the compiler vectorises them for the baseline, and there is nothing to gain beside the matrix products.
#include "kernels/rope.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/cpu/for_each_row.h"

namespace tidemill {

double RopeFrequency(double theta, size_t i, size_t rotary_dim) {
  return std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
}

void SinCos(double x, double* sin, double* cos) {
  // x = n pi / 2 + r. The first two parts of pi / 2 have at most 27 bits, so that n * part is exact for n < 2^26.
  constexpr double kPart1 = 0x1.921fb54p+0, kPart2 = 0x1.10b461p-30, kPart3 = 0x1.a62633145c06ep-58;
  const double n = std::nearbyint(x * 0.63661977236758134308);
  const double r = ((x - n * kPart1) - n * kPart2) - n * kPart3;
  const double z = r * r;
  // Taylor series on |r| <= pi / 4: the first term left out is below 2^-54.
  double s = -1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  s = r + r * (z * s);
  double c = 1.0 / 20922789888000.0;
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = 1.0 - (0.5 * z - (z * z) * c);
  switch (static_cast<long long>(n) & 3) {
    case 0:
      *sin = s;
      *cos = c;
      break;
    case 1:
      *sin = c;
      *cos = -s;
      break;
    case 2:
      *sin = -s;
      *cos = -c;
      break;
    default:
      *sin = -c;
      *cos = s;
      break;
  }
}

void RopeAngles(ExecutionContext& ctx, std::span<const uint32_t> positions, std::span<const float> inv_freq,
                Matrix<float> cos, Matrix<float> sin) {
  constexpr size_t kChunkRows = 16;
  ctx.threads().ParallelFor((positions.size() + kChunkRows - 1) / kChunkRows, [&](size_t chunk, size_t) {
    for (size_t t = chunk * kChunkRows; t < std::min(positions.size(), (chunk + 1) * kChunkRows); ++t) {
      for (size_t i = 0; i < inv_freq.size(); ++i) {
        const float angle = static_cast<float>(positions[t]) * inv_freq[i];
        double s = 0, c = 0;
        SinCos(static_cast<double>(angle), &s, &c);
        sin.row(t)[i] = static_cast<float>(s);
        cos.row(t)[i] = static_cast<float>(c);
      }
    }
  });
}

void ApplyRope(ExecutionContext& ctx, ConstMatrix<float> cos, ConstMatrix<float> sin, size_t head_dim,
               Matrix<float> x) {
  TIDEMILL_DCHECK(2 * cos.cols <= head_dim && x.cols % head_dim == 0);
  const size_t half = cos.cols, heads = x.cols / head_dim;
  ForEachRow(ctx, x.rows, x.cols, [&](size_t t) {
    const float* __restrict c = cos.row(t);
    const float* __restrict s = sin.row(t);
    for (size_t h = 0; h < heads; ++h) {
      float* __restrict a = x.row(t) + h * head_dim;
      float* __restrict b = a + half;
      for (size_t i = 0; i < half; ++i) {
        const float x0 = a[i], x1 = b[i];
        a[i] = x0 * c[i] - x1 * s[i];
        b[i] = x1 * c[i] + x0 * s[i];
      }
    }
  });
}

}  // namespace tidemill
