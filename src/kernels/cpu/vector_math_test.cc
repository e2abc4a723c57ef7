// The vector routines themselves at every level: against the C library in f64, and against their transcription by bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/vector_math_test.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

// n is a multiple of 16.
void ExpOf(const float* x, float* y, size_t n) {
  const Lane16 d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(Exp(d, hn::LoadU(d, x + i)), d, y + i);
}
void TanhOf(const float* x, float* y, size_t n) {
  const Lane16 d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(Tanh(d, hn::LoadU(d, x + i)), d, y + i);
}
void TreeSumOf(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; i += 16) y[i / 16] = TreeSum16(x + i);
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {
namespace {

using testing::Arithmetic;
using testing::LevelsHere;
using testing::SameBits;
using Routine = void (*)(const float*, float*, size_t);

std::vector<float> Apply(Routine routine, const std::vector<float>& x) {
  std::vector<float> padded = x, y((x.size() + 15) / 16 * 16);
  padded.resize(y.size());
  routine(padded.data(), y.data(), y.size());
  y.resize(x.size());
  return y;
}

// Dense from -104 to 89, denser about 0 and about the edges of the reduction.
std::vector<float> ExpArguments() {
  std::vector<float> x;
  for (int i = -104 * 400; i <= 89 * 400; ++i) x.push_back(static_cast<float>(i) / 400);
  testing::Random random(1);
  for (int i = 0; i < 40000; ++i) x.push_back(random.Uniform(1));
  for (int n = -150; n <= 128; ++n) {
    for (int j = -20; j <= 20; ++j)
      x.push_back((static_cast<float>(n) + 0.5F) * 0.693147181F * (1 + static_cast<float>(j) * 0x1p-22F));
  }
  for (int e = -149; e < 0; ++e) x.insert(x.end(), {std::ldexp(1.0F, e), -std::ldexp(1.0F, e)});
  return x;
}

TEST(VectorExp, EveryLevel_StaysBelowItsError) {
  const std::vector<float> x = ExpArguments();
  for (const Isa isa : LevelsHere()) {
    const std::vector<float> y = Apply(TIDEMILL_PICK(isa, ExpOf), x);
    double worst = 0;
    float at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      if (exact >= 0x1.FFFFFFp127) {
        EXPECT_TRUE(std::isinf(y[i])) << x[i];
        continue;
      }
      const double ulp = std::max(std::ldexp(1.0, std::ilogb(exact) - 23), 0x1p-149);
      const double error = std::fabs(static_cast<double>(y[i]) - exact) / ulp;
      if (error > worst) worst = error, at = x[i];
    }
    EXPECT_LT(worst, HasFma(isa) ? 1.0 : 1.25) << IsaName(isa) << " at x = " << at;
    RecordProperty(std::string("worst_ulp_") + std::string(IsaName(isa)), std::to_string(worst));
  }
}

TEST(VectorExp, EveryLevel_GivesTheBitsOfTheFormula) {
  std::vector<float> x = ExpArguments();
  const float inf = std::numeric_limits<float>::infinity();
  x.insert(x.end(), {inf, -inf, 1e38F, -1e38F, std::numeric_limits<float>::quiet_NaN(), 0.0F, -0.0F});
  for (const Isa isa : LevelsHere()) {
    std::vector<float> expected;
    for (const float v : x) expected.push_back(Arithmetic::Of(isa).Exp(v));
    EXPECT_TRUE(SameBits(expected, Apply(TIDEMILL_PICK(isa, ExpOf), x))) << IsaName(isa);
  }
}

TEST(VectorExp, SpecialArguments_GiveTheirLimits) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const Isa isa : LevelsHere()) {
    const std::vector<float> y =
        Apply(TIDEMILL_PICK(isa, ExpOf), {0.0F, -0.0F, inf, -inf, nan, 88.8F, -104.5F, -1e30F, 1e30F});
    EXPECT_TRUE(SameBits(std::vector<float>{1, 1, inf, 0, nan, inf, 0, 0, inf}, y)) << IsaName(isa);
  }
}

TEST(VectorTanh, EveryLevel_StaysBelowItsErrorAndGivesTheFormula) {
  std::vector<float> x;
  for (int i = -12000; i <= 12000; ++i) x.push_back(static_cast<float>(i) / 1000);
  testing::Random random(2);
  for (int i = 0; i < 20000; ++i) x.push_back(random.Uniform(1));
  const float inf = std::numeric_limits<float>::infinity();
  x.insert(x.end(), {inf, -inf, 1e30F, -1e30F, 1e-30F, -1e-30F, 0.0F, -0.0F});
  for (const Isa isa : LevelsHere()) {
    const std::vector<float> y = Apply(TIDEMILL_PICK(isa, TanhOf), x);
    std::vector<float> expected;
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_LT(std::fabs(static_cast<double>(y[i]) - std::tanh(static_cast<double>(x[i]))), 0x1p-22)
          << IsaName(isa) << " " << x[i];
      expected.push_back(Arithmetic::Of(isa).Tanh(x[i]));
    }
    EXPECT_TRUE(SameBits(expected, y)) << IsaName(isa);
  }
}

TEST(TreeSum16, EveryLevel_AddsInTheFixedOrder) {
  const std::vector<float> x = testing::RandomFloats(3, 16 * 100, 1000);
  std::vector<float> expected;
  for (size_t i = 0; i < x.size(); i += 16) expected.push_back(testing::TreeSum16(std::span(x).subspan(i).first<16>()));
  for (const Isa isa : LevelsHere()) {
    std::vector<float> y(100);
    TIDEMILL_PICK(isa, TreeSumOf)(x.data(), y.data(), x.size());
    EXPECT_TRUE(SameBits(expected, y)) << IsaName(isa);
  }
}

}  // namespace
}  // namespace tidemill
#endif
