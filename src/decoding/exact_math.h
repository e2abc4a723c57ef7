// exp and log whose bits do not depend on the machine, the compiler or the C library: IEEE double additions and
// multiplications in a written order, no fused ones (the build has -ffp-contract=off). glibc's own differ between versions
// and between CPUs with and without FMA, which would change a drawn token.
#ifndef TIDEMILL_DECODING_EXACT_MATH_H_
#define TIDEMILL_DECODING_EXACT_MATH_H_

#include <bit>
#include <cstdint>

namespace tidemill {

namespace exact_math {
// log 2 in two parts; the first has 20 zero bits at its end, so that its product with a binary exponent is exact.
inline constexpr double kLn2High = 0x1.62e42feep-1;
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
inline constexpr double kLog2E = 0x1.71547652b82fep+0;
inline constexpr double kRoundToInteger = 0x1.8p52;  // x + this - this: the nearest integer, and its bits end in it
inline constexpr double kExpLowest = -708.0;         // below it exp is 0; above it the result is a normal number
// exp(r) = 1 + r + r^2 * (c[0] + c[1] r + ... + c[11] r^11), c[i] = 1 / (i + 2)!: cut off at 4e-18 for |r| <= log(2) / 2.
inline constexpr double kExpTerms[12] = {1.0 / 2.0,       1.0 / 6.0,        1.0 / 24.0,        1.0 / 120.0,
                                         1.0 / 720.0,     1.0 / 5040.0,     1.0 / 40320.0,     1.0 / 362880.0,
                                         1.0 / 3628800.0, 1.0 / 39916800.0, 1.0 / 479001600.0, 1.0 / 6227020800.0};
}  // namespace exact_math

// exp(x) for -inf <= x <= 708, not NaN; exactly 1 for 0, exactly 0 below -708. Error: under 1 ulp of the result.
// exact_exp-inl.h does the same operations in the same order on vectors.
inline double Exp(double x) {
  if (!(x >= exact_math::kExpLowest)) return 0.0;
  const double shifted = x * exact_math::kLog2E + exact_math::kRoundToInteger;
  const double exponent = shifted - exact_math::kRoundToInteger;
  const double r = x - exponent * exact_math::kLn2High - exponent * exact_math::kLn2Low;
  // Estrin's scheme: a third of Horner's latency.
  const double r2 = r * r;
  const double r4 = r2 * r2;
  const auto pair = [r](int i) { return exact_math::kExpTerms[i] + exact_math::kExpTerms[i + 1] * r; };
  const auto four = [r2, &pair](int i) { return pair(i) + pair(i + 2) * r2; };
  const double terms = (four(0) + four(4) * r4) + four(8) * (r4 * r4);
  const double mantissa = 1.0 + (r + r2 * terms);
  return std::bit_cast<double>(std::bit_cast<uint64_t>(mantissa) + (std::bit_cast<uint64_t>(shifted) << 52));
}

// Natural logarithm of a positive normal number. Error: under 2 ulp of the result (of 1e-16 beside x = 1).
//   x = m 2^k, m in [sqrt(1/2), sqrt(2));  s = (m - 1) / (m + 1);  log m = 2 (s + s^3/3 + s^5/5 + ... + s^23/23)
inline double Log(double x) {
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD;  // bits of sqrt(1/2)
  constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  // Counting binary orders from sqrt(1/2) instead of 1.
  const uint64_t offset = bits - kSqrtHalf;
  const double k = static_cast<double>(static_cast<int64_t>(offset) >> 52);
  const double m = std::bit_cast<double>((offset & kMantissa) + kSqrtHalf);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double terms = 1.0 / 23.0;
  for (int odd = 21; odd >= 3; odd -= 2) terms = terms * z + 1.0 / static_cast<double>(odd);
  return k * exact_math::kLn2High + (2.0 * s + (2.0 * s * z * terms + k * exact_math::kLn2Low));
}

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_EXACT_MATH_H_
