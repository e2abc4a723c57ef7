// The vector routines themselves at every level: against the C library in f64, and against their transcription by bits.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
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
void ExpUpTo0Of(const float* x, float* y, size_t n) {
  const Lane16 d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(ExpUpTo0(d, hn::LoadU(d, x + i)), d, y + i);
}
void TanhOf(const float* x, float* y, size_t n) {
  const Lane16 d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(Tanh(d, hn::LoadU(d, x + i)), d, y + i);
}
void ErfOf(const float* x, float* y, size_t n) {
  const Lane16 d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(Erf(d, hn::LoadU(d, x + i)), d, y + i);
}
void Log1pOf(const float* x, float* y, size_t n) {
  const Lane16 d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(Log1p(d, hn::LoadU(d, x + i)), d, y + i);
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
      if (!(error <= worst)) worst = error, at = x[i];
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

TEST(VectorExp, UpTo0_GivesTheSameBits) {
  std::vector<float> x;
  for (const float v : ExpArguments()) {
    if (v <= 0) x.push_back(v);
  }
  for (uint32_t bits = 0x80000000; bits <= 0xFF800000; bits += 4099) x.push_back(std::bit_cast<float>(bits));
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  x.insert(x.end(), {-inf, nan, std::copysign(nan, -1.0F), 0.0F, -0.0F, -1e38F});
  for (const Isa isa : LevelsHere()) {
    EXPECT_TRUE(SameBits(Apply(TIDEMILL_PICK(isa, ExpOf), x), Apply(TIDEMILL_PICK(isa, ExpUpTo0Of), x)))
        << IsaName(isa);
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

// Every f32 exponent with random mantissas, dense where the curve bends and about `seam`, where one formula hands over to the other.
std::vector<float> OddArguments(float seam) {
  std::vector<float> x = {0};
  testing::Random random(2);
  for (int i = 1; i <= 12000; ++i) x.push_back(static_cast<float>(i) / 1000);
  for (int i = 0; i < 40000; ++i) x.push_back(std::fabs(random.Uniform(4)));
  for (int i = -200; i <= 200; ++i) x.push_back(seam * (1 + static_cast<float>(i) * 0x1p-23F));
  for (int e = -149; e < 128; ++e) {
    for (int i = 0; i < 8; ++i) x.push_back(std::ldexp(1 + (i == 0 ? 0 : std::fabs(random.Uniform(1))), e));
  }
  const size_t positive = x.size();
  for (size_t i = 0; i < positive; ++i) x.push_back(-x[i]);
  return x;
}

double WorstUlp(const std::vector<float>& x, const std::vector<float>& y, double (*exact)(double), float* at) {
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double e = exact(static_cast<double>(x[i]));
    const double ulp = e == 0 ? 0x1p-149 : std::max(std::ldexp(1.0, std::ilogb(e) - 23), 0x1p-149);
    const double error = std::fabs(static_cast<double>(y[i]) - e) / ulp;
    if (!(error <= worst)) worst = error, *at = x[i];
  }
  return worst;
}

struct OddRoutine {
  const char* name;
  Routine (*pick)(Isa);
  double (*exact)(double);
  float (Arithmetic::*formula)(float) const;
  float seam, one_from;  // 1 exactly for x >= one_from
};
const OddRoutine kOddRoutines[] = {
    {"tanh", [](Isa isa) -> Routine { return TIDEMILL_PICK(isa, TanhOf); }, [](double x) { return std::tanh(x); },
     &Arithmetic::Tanh, 0.625F, 9.02F},
    {"erf", [](Isa isa) -> Routine { return TIDEMILL_PICK(isa, ErfOf); }, [](double x) { return std::erf(x); },
     &Arithmetic::Erf, 1.0F, 3.93F},
};

TEST(VectorTanhAndErf, EveryLevel_StayBelowTheirErrorAndGiveTheFormula) {
  for (const OddRoutine& routine : kOddRoutines) {
    const std::vector<float> x = OddArguments(routine.seam);
    for (const Isa isa : LevelsHere()) {
      const std::vector<float> y = Apply(routine.pick(isa), x);
      float at = 0;
      const double worst = WorstUlp(x, y, routine.exact, &at);
      EXPECT_LT(worst, 2.0) << routine.name << " " << IsaName(isa) << " at x = " << std::hexfloat << at;
      RecordProperty(std::string("worst_ulp_") + routine.name + "_" + std::string(IsaName(isa)), std::to_string(worst));
      std::vector<float> expected;
      for (const float v : x) expected.push_back((Arithmetic::Of(isa).*routine.formula)(v));
      EXPECT_TRUE(SameBits(expected, y)) << routine.name << " " << IsaName(isa);
    }
  }
}

TEST(VectorTanhAndErf, SpecialArguments_GiveTheirLimits) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const OddRoutine& routine : kOddRoutines) {
    const float one = routine.one_from;
    for (const Isa isa : LevelsHere()) {
      const std::vector<float> y =
          Apply(routine.pick(isa), {0.0F, -0.0F, inf, -inf, nan, one, -one, 100, -100, 1e30F, -1e30F});
      EXPECT_TRUE(SameBits(std::vector<float>{0, -0.0F, 1, -1, nan, 1, -1, 1, -1, 1, -1}, y))
          << routine.name << " " << IsaName(isa);
    }
  }
}

// 0 to 1: evenly, and every exponent with random mantissas.
std::vector<float> Log1pArguments() {
  std::vector<float> y = {0, 1, 0x1.FFFFFEp-1F};
  testing::Random random(4);
  for (int i = 1; i < 100000; ++i) y.push_back(static_cast<float>(i) / 100000);
  for (int e = -149; e < 0; ++e) {
    for (int i = 0; i < 200; ++i) y.push_back(std::ldexp(1 + (i == 0 ? 0 : std::fabs(random.Uniform(1))), e));
  }
  std::erase_if(y, [](float v) { return v > 1; });
  return y;
}

TEST(VectorLog1p, EveryLevel_StaysBelowItsErrorAndGivesTheFormula) {
  const std::vector<float> x = Log1pArguments();
  for (const Isa isa : LevelsHere()) {
    const std::vector<float> y = Apply(TIDEMILL_PICK(isa, Log1pOf), x);
    float at = 0;
    const double worst = WorstUlp(
        x, y, [](double v) { return std::log1p(v); }, &at);
    EXPECT_LT(worst, 1.25) << IsaName(isa) << " at y = " << std::hexfloat << at;
    RecordProperty(std::string("worst_ulp_log1p_") + std::string(IsaName(isa)), std::to_string(worst));
    std::vector<float> expected;
    for (const float v : x) expected.push_back(Arithmetic::Of(isa).Log1p(v));
    EXPECT_TRUE(SameBits(expected, y)) << IsaName(isa);
  }
}

TEST(VectorLog1p, SpecialArguments_GiveTheirLimits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Isa isa : LevelsHere()) {
    const std::vector<float> y = Apply(TIDEMILL_PICK(isa, Log1pOf), {0.0F, 0x1p-149F, 0x1p-126F, 0x1p-30F, 1, nan});
    EXPECT_TRUE(SameBits(std::vector<float>{0, 0x1p-149F, 0x1p-126F, 0x1p-30F, 0x1.62e43p-1F, nan}, y)) << IsaName(isa);
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
