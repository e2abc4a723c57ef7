#include "kernels/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::activation_test {
namespace {

using testing::Arithmetic;
using testing::LevelsHere;
using testing::RandomFloats;
using testing::SameBits;
using testing::TestContext;

constexpr size_t kWidths[] = {1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 1536, 4099};
constexpr Activation kKinds[] = {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu,
                                 Activation::kSigmoid};
constexpr const char* kNames[] = {"silu", "gelu tanh", "gelu erf", "relu", "sigmoid"};
const char* Name(Activation kind) { return kNames[static_cast<size_t>(kind)]; }

std::vector<float> Apply(TestContext& context, Activation kind, const std::vector<float>& x, size_t rows) {
  std::vector<float> y(x.size());
  Activate(*context, kind, {x.data(), rows, x.size() / rows}, {y.data(), rows, x.size() / rows});
  return y;
}

std::vector<float> Gate(TestContext& context, Activation kind, const std::vector<float>& gate,
                        const std::vector<float>& up, size_t rows) {
  std::vector<float> y(gate.size());
  const size_t cols = gate.size() / rows;
  GatedActivate(*context, kind, {gate.data(), rows, cols}, {up.data(), rows, cols}, {y.data(), rows, cols});
  return y;
}

TEST(Activation, EveryLevel_StaysWithinTheToleranceOfTheExactFunction) {
  // Dense where the functions bend; each exponent; the ends. The exact value is not rounded to f32: the bound includes that.
  std::vector<float> x;
  for (int i = -12000; i <= 12000; ++i) x.push_back(static_cast<float>(i) / 1000);
  testing::Random random(3);
  for (const float amax : {0.5F, 8.0F, 120.0F}) {
    for (int i = 0; i < 20000; ++i) x.push_back(random.Uniform(amax));
  }
  for (int e = -149; e < 40; ++e) x.insert(x.end(), {std::ldexp(1.0F, e), -std::ldexp(1.0F, e)});
  for (const Activation kind : kKinds) {
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      const std::vector<float> y = Apply(context, kind, x, 1);
      double worst_share = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double at = static_cast<double>(x[i]), exact = reference::ActivationOf(kind, at);
        const double error = std::fabs(static_cast<double>(y[i]) - exact);
        const double allowed = ActivationTolerance(kind, at, exact);
        ASSERT_LE(error, allowed) << Name(kind) << " " << IsaName(isa) << " x = " << std::hexfloat << x[i] << " got "
                                  << y[i] << " exact " << exact;
        if (allowed > 0) worst_share = std::max(worst_share, error / allowed);
      }
      RecordProperty(std::string("worst_share_of_tolerance_") + kNames[static_cast<size_t>(kind)] + "_" +
                         std::string(IsaName(isa)),
                     std::to_string(worst_share));
    }
  }
}

TEST(GatedActivation, EveryLevel_MatchesReference) {
  for (const Activation kind : kKinds) {
    for (const float amax : {0.5F, 8.0F, 120.0F}) {
      for (const size_t ffn : kWidths) {
        const std::vector<float> gate = RandomFloats(ffn, 2 * ffn, amax), up = RandomFloats(ffn + 1, 2 * ffn, 3);
        std::vector<float> expected(gate.size()), alone(gate.size());
        reference::GatedActivate(kind, {gate.data(), 2, ffn}, {up.data(), 2, ffn}, {expected.data(), 2, ffn});
        reference::Activate(kind, {gate.data(), 2, ffn}, {alone.data(), 2, ffn});
        for (const Isa isa : LevelsHere()) {
          TestContext context(isa);
          const auto bound = [&](size_t i) {  // the reference's own rounding besides
            return ActivationTolerance(kind, static_cast<double>(gate[i]), static_cast<double>(alone[i])) *
                       std::fabs(static_cast<double>(up[i])) +
                   0x1p-23 * std::fabs(static_cast<double>(expected[i])) + 0x1p-148;
          };
          EXPECT_TRUE(testing::Within(expected, Gate(context, kind, gate, up, 2), bound))
              << Name(kind) << " " << IsaName(isa) << " ffn " << ffn << " amax " << amax;
        }
      }
    }
  }
}

TEST(Activation, EveryLevel_GivesTheBitsOfTheFormula) {
  for (const Activation kind : kKinds) {
    for (const size_t ffn : kWidths) {
      const std::vector<float> gate = RandomFloats(ffn + 2, 2 * ffn, 95), up = RandomFloats(ffn + 3, 2 * ffn);
      const std::vector<float> small = RandomFloats(ffn + 4, 2 * ffn, 4);
      for (const Isa isa : LevelsHere()) {
        const Arithmetic math = Arithmetic::Of(isa);
        std::vector<float> alone, gated;
        for (size_t i = 0; i < gate.size(); ++i) {
          alone.push_back(math.Activate(kind, small[i]));
          gated.push_back(math.Activate(kind, gate[i]) * up[i]);
        }
        TestContext context(isa);
        EXPECT_TRUE(SameBits(alone, Apply(context, kind, small, 2)))
            << Name(kind) << " " << IsaName(isa) << " ffn " << ffn;
        EXPECT_TRUE(SameBits(gated, Gate(context, kind, gate, up, 2)))
            << Name(kind) << " " << IsaName(isa) << " ffn " << ffn;
      }
    }
  }
}

// torch 2.15.0: torch.nn.functional.gelu(x, approximate=...) in f32 on a CPU, where 1 + tanh and 1 + erf cancel: what is compared is
// the error relative to x.
TEST(Activation, Gelu_MatchesPyTorch) {
  const std::vector<float> x = {-6, -3, -1, -0.1F, 1e-3F, 0.5F, 1, 2.5F, 4};
  const std::vector<float> tanh = {-0.0F,        -0.00363743305F, -0.158807993F, -0.0460172482F, 0.000500398979F,
                                   0.345714003F, 0.841192007F,    2.48491573F,   3.9999299F};
  const std::vector<float> erf = {-0.0F,        -0.00405022502F, -0.158655256F, -0.0460172184F, 0.000500398979F,
                                  0.345731229F, 0.841344714F,    2.48447585F,   3.99987364F};
  const auto bound = [&](size_t i) { return 0x1p-22 * std::fabs(static_cast<double>(x[i])); };
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    EXPECT_TRUE(testing::Within(tanh, Apply(context, Activation::kGeluTanh, x, 1), bound)) << IsaName(isa);
    EXPECT_TRUE(testing::Within(erf, Apply(context, Activation::kGeluErf, x, 1), bound)) << IsaName(isa);
  }
}

TEST(Activation, InPlaceAndThreadsAndLongRows_GiveTheSameBits) {
  struct Shape {
    size_t rows, cols;
  };
  for (const Shape s : {Shape{50, 1001}, Shape{3, 40001}}) {
    const std::vector<float> gate = RandomFloats(1, s.rows * s.cols, 9), up = RandomFloats(2, s.rows * s.cols);
    for (const Activation kind : {Activation::kSilu, Activation::kGeluErf}) {
      for (const Isa isa : LevelsHere()) {
        const Arithmetic math = Arithmetic::Of(isa);
        std::vector<float> alone(gate.size()), gated(gate.size());
        for (size_t i = 0; i < gate.size(); ++i) {
          alone[i] = math.Activate(kind, gate[i]);
          gated[i] = alone[i] * up[i];
        }
        for (const size_t threads : {1, 2, 3}) {
          TestContext context(isa, threads);
          std::vector<float> x = gate, g = gate, u = up;
          const auto view = [&](std::vector<float>& v) { return Matrix<float>(v.data(), s.rows, s.cols); };
          Activate(*context, kind, view(x), view(x));
          GatedActivate(*context, kind, view(g), {up.data(), s.rows, s.cols}, view(g));
          GatedActivate(*context, kind, {gate.data(), s.rows, s.cols}, view(u), view(u));
          EXPECT_TRUE(SameBits(alone, x)) << Name(kind) << " " << IsaName(isa) << " threads " << threads;
          EXPECT_TRUE(SameBits(gated, g)) << Name(kind) << " " << IsaName(isa) << " threads " << threads;
          EXPECT_TRUE(SameBits(gated, u)) << Name(kind) << " " << IsaName(isa) << " threads " << threads;
        }
      }
    }
  }
}

TEST(Activation, RowsApart_LeaveWhatIsBetween) {
  const std::vector<float> x = RandomFloats(1, 3 * 20, 3);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> y = x;
    Activate(*context, Activation::kRelu, {y.data(), 3, 17, 20}, {y.data(), 3, 17, 20});
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], i % 20 < 17 ? std::max(x[i], 0.0F) : x[i]) << IsaName(isa);
  }
}

TEST(Activation, ExtremeArguments_GiveTheirLimits) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {inf, 1e30F, 100, -100, -1e30F, 0, nan, -0.0F};
  const std::vector<float> up(x.size(), 2.0F);
  for (const Activation kind : kKinds) {
    if (kind == Activation::kSigmoid) continue;  // its own test, below
    const float below = kind == Activation::kRelu ? 0.0F : -0.0F;
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      EXPECT_TRUE(
          SameBits(std::vector<float>{inf, 1e30F, 100, below, below, 0, nan, -0.0F}, Apply(context, kind, x, 1)))
          << Name(kind) << " " << IsaName(isa);
      EXPECT_TRUE(
          SameBits(std::vector<float>{inf, 2e30F, 200, below, below, 0, nan, -0.0F}, Gate(context, kind, x, up, 1)))
          << Name(kind) << " " << IsaName(isa);
    }
  }
}

TEST(Activation, ExtremeArgumentsOfSigmoid_GiveItsLimits) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {inf, 1e30F, 100, -100, -1e30F, -inf, 0, nan, -0.0F};
  const std::vector<float> up(x.size(), -2.0F);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    EXPECT_TRUE(
        SameBits(std::vector<float>{1, 1, 1, 0, 0, 0, 0.5F, nan, 0.5F}, Apply(context, Activation::kSigmoid, x, 1)))
        << IsaName(isa);
    EXPECT_TRUE(SameBits(std::vector<float>{-2, -2, -2, -0.0F, -0.0F, -0.0F, -1, nan, -1},
                         Gate(context, Activation::kSigmoid, x, up, 1)))
        << IsaName(isa);
  }
}

TEST(Activation, NoRowsOrNoColumns_DoNothing) {
  TestContext context(Isa::kBaseline);
  Activate(*context, Activation::kSilu, {nullptr, 0, 5}, {nullptr, 0, 5});
  GatedActivate(*context, Activation::kSilu, {nullptr, 5, 0}, {nullptr, 5, 0}, {nullptr, 5, 0});
}

TEST(GatedActivation, Cost_IsOfTheFunction) {
  for (const Activation kind : kKinds) EXPECT_EQ(GatedActivationCost(kind, 3, 5).bytes, 3 * 5 * 12) << Name(kind);
  EXPECT_EQ(GatedActivationCost(Activation::kSilu, 3, 5).flops, 3 * 5 * 21);
  EXPECT_EQ(GatedActivationCost(Activation::kGeluTanh, 3, 5).flops, 3 * 5 * 26);
  EXPECT_EQ(GatedActivationCost(Activation::kGeluErf, 3, 5).flops, 3 * 5 * 50);
  EXPECT_EQ(GatedActivationCost(Activation::kRelu, 3, 5).flops, 3 * 5);
  EXPECT_EQ(GatedActivationCost(Activation::kSigmoid, 3, 5).flops, 3 * 5 * 21);
}

TEST(Activation, EveryLevel_GivesTheKeptHash) {
  const std::vector<float> gate = RandomFloats(100, 3 * 1536, 20), up = RandomFloats(101, 3 * 1536);
  constexpr uint64_t kFused[] = {0x35DDC58AC1E94151, 0x53D4FC0578F641C5, 0xC8A9660CFF993C13, 0x09D04EED28524DC5,
                                 0xB0518CC00F53D194},
                     kBaseline[] = {0xC8A861D9B9660DA0, 0xF76A02E69774D053, 0xE8D7CED4BA7B779C, 0x09D04EED28524DC5,
                                    0x495C696DF3AE0E2C};
  for (const Activation kind : kKinds) {
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      EXPECT_TRUE(testing::SameHash((HasFma(isa) ? kFused : kBaseline)[static_cast<size_t>(kind)],
                                    testing::HashOf<float>(Gate(context, kind, gate, up, 3))))
          << Name(kind) << " " << IsaName(isa);
    }
  }
}

}  // namespace
}  // namespace tidemill::activation_test
