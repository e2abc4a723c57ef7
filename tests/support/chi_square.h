// Pearson's chi-square test: whether counts follow a distribution.
#ifndef TIDEMILL_TESTS_SUPPORT_CHI_SQUARE_H_
#define TIDEMILL_TESTS_SUPPORT_CHI_SQUARE_H_

#include <cmath>
#include <map>

namespace tidemill::testing {

// P(X > x) of a chi-square with so many degrees of freedom: Q(degrees / 2, x / 2), the upper part of the incomplete gamma function. Below
// its bend 1 - the series DLMF 8.7.1, above it the continued fraction DLMF 8.9.2.
inline double ChiSquareTail(double x, double degrees) {
  const double a = degrees / 2, z = x / 2;
  if (z <= 0) return 1;
  const double front = std::exp(a * std::log(z) - z - std::lgamma(a));
  if (z < a + 1) {
    double term = 1 / a, sum = term;
    for (double n = a + 1; term > 1e-16 * sum; ++n) sum += term *= z / n;
    return 1 - front * sum;
  }
  // From the back: z - a + 1 - 1 (1 - a) / (z - a + 3 - 2 (2 - a) / (z - a + 5 - ...)).
  double fraction = 0;
  for (double n = 200 + std::ceil(20 * std::sqrt(a)); n >= 1; --n)
    fraction = n * (n - a) / (z - a + 2 * n + 1 - fraction);
  return front / (z - a + 1 - fraction);
}

// How likely it is that counts are at least as far from what was expected of them as these are. expected: of all cells, in sum the number
// of counts; those of fewer than 5 are one cell. 0 where something was counted of which nothing was expected.
template <typename Cell>
double ChiSquareProbability(const std::map<Cell, double>& expected, std::map<Cell, double> counts) {
  double chi_square = 0, rare_expected = 0, rare = 0, cells = 0;
  const auto add = [&](double mean, double count) {
    chi_square += (count - mean) * (count - mean) / mean;
    ++cells;
  };
  for (const auto& [cell, mean] : expected) {
    const double count = counts[cell];
    counts.erase(cell);
    if (mean >= 5) {
      add(mean, count);
    } else {
      rare_expected += mean;
      rare += count;
    }
  }
  if (!counts.empty()) return 0;
  if (rare_expected > 0) add(rare_expected, rare);
  return cells < 2 ? 1 : ChiSquareTail(chi_square, cells - 1);
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_CHI_SQUARE_H_
