#include "decoding/exact_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace tidemill::exact_math_test {
namespace {

constexpr uint64_t kSeed = 20240902;

// |actual - expected| in units of the last place of expected. On machines whose long double is a double, the reference is
// itself off by up to one unit.
double UlpError(double actual, long double expected) {
  const double rounded = static_cast<double>(expected);
  const double ulp = std::nextafter(std::fabs(rounded), std::numeric_limits<double>::infinity()) - std::fabs(rounded);
  return static_cast<double>(std::fabs(static_cast<long double>(actual) - expected) / static_cast<long double>(ulp));
}

constexpr double ReferenceUlp() { return sizeof(long double) > sizeof(double) ? 0.0 : 1.0; }

TEST(Exp, Edges_AreExact) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Exp(0.0), 1.0);
  EXPECT_EQ(Exp(-0.0), 1.0);
  EXPECT_EQ(Exp(-inf), 0.0);
  EXPECT_EQ(Exp(std::nextafter(-708.0, -inf)), 0.0);
  EXPECT_GE(Exp(-708.0), std::numeric_limits<double>::min());
  EXPECT_LT(UlpError(Exp(-708.0), std::exp(-708.0L)), 1.0 + ReferenceUlp());
}

TEST(Exp, RandomArguments_WithinOneUlp) {
  std::mt19937_64 rng(kSeed);
  for (const double low : {-1e-9, -1e-3, -0.7, -5.0, -40.0, -708.0}) {
    std::uniform_real_distribution<double> uniform(low, 0.0);
    for (int i = 0; i < 20000; ++i) {
      const double x = uniform(rng);
      const double error = UlpError(Exp(x), std::exp(static_cast<long double>(x)));
      ASSERT_LT(error, 1.0 + ReferenceUlp()) << "x = " << x << ", seed " << kSeed;
    }
  }
}

TEST(Log, RandomArguments_WithinTwoUlp) {
  std::mt19937_64 rng(kSeed);
  EXPECT_EQ(Log(1.0), 0.0);
  for (const double high : {1e-300, 0.5, 0.99, 2.0, 1e6, 1e300}) {
    std::uniform_real_distribution<double> uniform(high * 1e-4, high);
    for (int i = 0; i < 20000; ++i) {
      const double x = uniform(rng);
      const long double expected = std::log(static_cast<long double>(x));
      const bool close = UlpError(Log(x), expected) < 2.0 + ReferenceUlp() ||
                         std::fabs(static_cast<long double>(Log(x)) - expected) < 1e-16L;
      ASSERT_TRUE(close) << "x = " << x << ", got " << Log(x) << ", error " << UlpError(Log(x), expected)
                         << " ulp, seed " << kSeed;
    }
  }
}

// The same on every machine and with every compiler: made on x86-64 with gcc 12, equal with clang 14.
TEST(ExpLog, Bits_AreThoseOfEveryMachine) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, by 64-bit words
  const auto add = [&](double value) { hash = (hash ^ std::bit_cast<uint64_t>(value)) * 0x100000001b3; };
  for (int i = 0; i < 100000; ++i) {
    const double x = -0.0071 * i;
    add(Exp(x));
    add(Log(1.0 + 0.37 * i));
  }
  EXPECT_EQ(hash, 16926359176833390883U);
}

}  // namespace
}  // namespace tidemill::exact_math_test
