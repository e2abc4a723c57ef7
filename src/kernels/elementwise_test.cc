#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::elementwise_test {
namespace {

using testing::Arithmetic;
using testing::LevelsHere;
using testing::RandomFloats;
using testing::SameBits;
using testing::TestContext;

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  size_t rows, cols, stride;
};
constexpr Shape kShapes[] = {{3, 1, 1},   {3, 3, 3},   {3, 4, 9},      {2, 8, 8},         {2, 15, 15},      {2, 16, 17},
                             {2, 17, 17}, {2, 33, 40}, {40, 577, 577}, {2, 40001, 40003}, {1, 49152, 49152}};

// A matrix whose rows have the shape's stride; what lies between rows is NaN and has to stay.
std::vector<float> Rows(const Shape& s, uint64_t seed, float amax) {
  std::vector<float> values(s.rows * s.stride, kNan);
  for (size_t t = 0; t < s.rows; ++t) {
    const std::vector<float> row = RandomFloats(seed + t, s.cols, amax);
    std::copy(row.begin(), row.end(), values.begin() + static_cast<std::ptrdiff_t>(t * s.stride));
  }
  return values;
}
Matrix<float> View(std::vector<float>& v, const Shape& s) { return {v.data(), s.rows, s.cols, s.stride}; }

// Runs `op` on a copy of y at every level and several numbers of threads.
template <typename Op>
void ExpectBits(const Shape& s, const std::vector<float>& y, const std::vector<float>& expected, const Op& op) {
  for (const Isa isa : LevelsHere()) {
    for (const size_t threads : {1, 3}) {
      TestContext context(isa, threads);
      std::vector<float> actual = y;
      op(*context, View(actual, s));
      EXPECT_TRUE(SameBits(expected, actual))
          << IsaName(isa) << " threads " << threads << " rows " << s.rows << " cols " << s.cols;
    }
  }
}

TEST(FillRows, EveryLevel_CopiesTheRow) {
  for (const Shape& s : kShapes) {
    const std::vector<float> v = RandomFloats(1, s.cols), y = Rows(s, 2, 1);
    std::vector<float> expected = y;
    reference::FillRows(v, View(expected, s));
    ExpectBits(s, y, expected, [&](ExecutionContext& ctx, Matrix<float> m) { FillRows(ctx, v, m); });
  }
}

// One rounding of the exact sum or product: f64 holds both of two f32 exactly enough for it to be f32's own.
TEST(AddRows, EveryLevel_GivesTheBitsOfTheReference) {
  for (const Shape& s : kShapes) {
    std::vector<float> x = Rows(s, 3, 5);
    const std::vector<float> y = Rows(s, 4, 1);
    std::vector<float> expected = y;
    reference::AddRows(View(x, s), View(expected, s));
    ExpectBits(s, y, expected, [&](ExecutionContext& ctx, Matrix<float> m) { AddRows(ctx, View(x, s), m); });
  }
}

TEST(ScaleRows, EveryLevel_GivesTheBitsOfTheReference) {
  for (const Shape& s : kShapes) {
    const std::vector<float> x = Rows(s, 5, 2);
    std::vector<float> expected = x;
    reference::ScaleRows(45.25F, View(expected, s));
    ExpectBits(s, x, expected, [&](ExecutionContext& ctx, Matrix<float> m) { ScaleRows(ctx, 45.25F, m); });
  }
}

TEST(SoftCap, EveryLevel_MatchesReferenceAndGivesTheBitsOfTheFormula) {
  double worst = 0;
  for (const float cap : {0.5F, 30.0F, 50.0F}) {
    for (const Shape& s : kShapes) {
      if (s.cols > 1000 && cap != 30) continue;  // time
      for (const float amax : {cap * 1e-4F, cap, cap * 12}) {
        const std::vector<float> x = Rows(s, s.cols, amax);
        std::vector<float> exact = x;
        reference::SoftCap(cap, View(exact, s));
        for (const Isa isa : LevelsHere()) {
          for (const size_t threads : {1, 3}) {
            TestContext context(isa, threads);
            std::vector<float> y = x;
            SoftCap(*context, cap, View(y, s));
            for (size_t i = 0; i < x.size(); ++i) {
              if (i % s.stride >= s.cols) {
                ASSERT_TRUE(std::isnan(y[i]));
                continue;
              }
              ASSERT_EQ(y[i], cap * Arithmetic::Of(isa).Tanh(x[i] / cap)) << IsaName(isa) << " x " << x[i];
              const double e = std::fabs(static_cast<double>(exact[i]));
              const double error = std::fabs(static_cast<double>(y[i]) - static_cast<double>(exact[i]));
              ASSERT_LE(error, (kSoftCapTolerance + 0x1p-24) * e) << IsaName(isa) << " cap " << cap << " x " << x[i];
              ASSERT_LE(std::fabs(y[i]), cap);
              if (e > 0) worst = std::max(worst, error / e);
            }
          }
        }
      }
    }
  }
  RecordProperty("worst_relative_error_in_2^-24", std::to_string(worst * 0x1p24));
}

TEST(SoftCap, ExtremeValues_GiveTheirLimits) {
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> x = {kInf, -kInf, kNan, 0, -0.0F, 1e30F, -1e30F, 1e-30F, -1e-30F};
    SoftCap(*context, 32, {x.data(), 1, x.size()});
    EXPECT_TRUE(SameBits(std::vector<float>{32, -32, kNan, 0, -0.0F, 32, -32, 1e-30F, -1e-30F}, x)) << IsaName(isa);
  }
}

TEST(Elementwise, NoRowsOrNoColumns_DoNothing) {
  TestContext context(Isa::kBaseline);
  FillRows(*context, {}, {nullptr, 3, 0});
  AddRows(*context, {nullptr, 0, 4}, {nullptr, 0, 4});
  ScaleRows(*context, 2, {nullptr, 0, 4});
  SoftCap(*context, 2, {nullptr, 3, 0});
}

TEST(SoftCap, EveryLevel_GivesTheKeptHash) {
  const std::vector<float> x = RandomFloats(100, 3 * 577, 90);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> y = x;
    SoftCap(*context, 30, {y.data(), 3, 577});
    EXPECT_TRUE(testing::SameHash(HasFma(isa) ? 0x287FD89908DE5710 : 0x7EA31BEA321EF7EC, testing::HashOf<float>(y)))
        << IsaName(isa);
  }
}

// One rounding: the same bits with and without FMA.
TEST(Elementwise, EveryLevel_GivesTheKeptHash) {
  const std::vector<float> x = RandomFloats(101, 3 * 577, 5), v = RandomFloats(102, 577);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> y(x.size());
    const Matrix<float> view(y.data(), 3, 577);
    FillRows(*context, v, view);
    AddRows(*context, {x.data(), 3, 577}, view);
    ScaleRows(*context, 33.9375F, view);
    EXPECT_TRUE(testing::SameHash(0x06485BBFCEEA7C62, testing::HashOf<float>(y))) << IsaName(isa);
  }
}

}  // namespace
}  // namespace tidemill::elementwise_test
