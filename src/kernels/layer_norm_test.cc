#include "kernels/layer_norm.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::layer_norm_test {
namespace {

using testing::Arithmetic;
using testing::LevelsHere;
using testing::RandomFloats;
using testing::SameBits;
using testing::TestContext;

constexpr size_t kHiddens[] = {1, 2, 3, 4, 7, 8, 12, 15, 16, 17, 20, 31, 32, 33, 63, 64, 65, 576, 2048, 4099};

// What the tolerance wants to know of a row.
struct RowFacts {
  double mean = 0, mean_abs = 0, root = 0;

  RowFacts(std::span<const float> x, double eps) {
    const auto n = static_cast<double>(x.size());
    for (const float v : x) mean += static_cast<double>(v) / n, mean_abs += std::fabs(static_cast<double>(v)) / n;
    double variance = 0;
    for (const float v : x) variance += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean) / n;
    root = std::sqrt(variance + eps);
  }
};

TEST(LayerNorm, EveryLevel_MatchesReference) {
  double worst_share = 0;
  for (const float offset : {0.0F, 3.0F, 500.0F}) {
    for (const size_t hidden : kHiddens) {
      std::vector<float> x = RandomFloats(hidden, 3 * hidden, 5);
      for (float& v : x) v += offset;
      const std::vector<float> w = RandomFloats(hidden + 1, hidden, 2), b = RandomFloats(hidden + 2, hidden, 2);
      std::vector<float> expected(x.size()), y(x.size());
      reference::LayerNorm({x.data(), 3, hidden}, w, b, 1e-5F, {expected.data(), 3, hidden});
      std::vector<double> allowed;
      for (size_t t = 0; t < 3; ++t) {
        const RowFacts row({x.data() + t * hidden, hidden}, 1e-5);
        for (size_t i = 0; i < hidden; ++i) {
          const double z = (static_cast<double>(x[t * hidden + i]) - row.mean) / row.root;
          allowed.push_back(LayerNormTolerance(hidden, z, row.mean_abs / row.root, static_cast<double>(w[i]),
                                               static_cast<double>(expected[t * hidden + i])));
        }
      }
      for (const Isa isa : LevelsHere()) {
        TestContext context(isa);
        LayerNorm(*context, {x.data(), 3, hidden}, w, b, 1e-5F, {y.data(), 3, hidden});
        EXPECT_TRUE(testing::Within(expected, y, [&](size_t i) { return allowed[i]; }))
            << IsaName(isa) << " hidden " << hidden << " offset " << offset;
        for (size_t i = 0; i < y.size(); ++i) {
          const double error = std::fabs(static_cast<double>(y[i]) - static_cast<double>(expected[i]));
          if (error > 0) worst_share = std::max(worst_share, error / allowed[i]);
        }
      }
    }
  }
  RecordProperty("worst_share_of_tolerance", std::to_string(worst_share));
}

// torch 2.15.0: torch.nn.functional.layer_norm(x, (9,), w, b, 1e-5) in f32 on a CPU.
TEST(LayerNorm, EveryLevel_MatchesPyTorch) {
  const std::vector<float> x = {1.5F,   -2.25F, 0.125F, 3.0F,   -0.75F,  0.5F,  2.0F,   -4.0F,  0.0625F,
                                100.5F, 101.0F, 99.75F, 100.0F, 100.25F, 98.5F, 102.0F, 100.0F, 100.125F};
  const std::vector<float> w = {1.0F, 0.5F, -2.0F, 1.25F, 0.75F, -1.0F, 3.0F, 0.25F, 1.5F};
  const std::vector<float> b = {0.0F, 1.0F, -0.5F, 0.25F, 2.0F, -1.5F, 0.125F, 0.0F, -3.0F};
  const std::vector<float> expected = {0.728137195F, 0.441077828F,   -0.60255456F,   2.08316231F,  1.71541119F,
                                       -1.73587537F, 3.04780436F,    -0.494825661F,  -2.96923375F, 0.296291292F,
                                       1.42884624F,  0.591621161F,   -0.0813874453F, 2.011693F,    0.449313641F,
                                       6.0664854F,   -0.0662774891F, -3.18713951F};
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> y(x.size());
    LayerNorm(*context, {x.data(), 2, 9}, w, b, 1e-5F, {y.data(), 2, 9});
    for (size_t t = 0; t < 2; ++t) {
      const RowFacts row({x.data() + t * 9, 9}, 1e-5);
      for (size_t i = 0; i < 9; ++i) {
        const double z = (static_cast<double>(x[t * 9 + i]) - row.mean) / row.root,
                     e = static_cast<double>(expected[t * 9 + i]);
        EXPECT_NEAR(y[t * 9 + i], expected[t * 9 + i],
                    2 * LayerNormTolerance(9, z, row.mean_abs / row.root, static_cast<double>(w[i]), e))
            << IsaName(isa) << " row " << t << " column " << i;
      }
    }
  }
}

TEST(LayerNorm, EveryLevel_GivesTheBitsOfTheFormula) {
  for (const size_t hidden : kHiddens) {
    const std::vector<float> x = RandomFloats(hidden + 7, 3 * hidden, 5), w = RandomFloats(hidden + 8, hidden, 2),
                             b = RandomFloats(hidden + 9, hidden, 2);
    for (const Isa isa : LevelsHere()) {
      std::vector<float> expected;
      for (size_t t = 0; t < 3; ++t) {
        const auto row = testing::LayerNorm(Arithmetic::Of(isa), std::span(x).subspan(t * hidden, hidden), w, b, 1e-6F);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      TestContext context(isa);
      std::vector<float> y(x.size());
      LayerNorm(*context, {x.data(), 3, hidden}, w, b, 1e-6F, {y.data(), 3, hidden});
      EXPECT_TRUE(SameBits(expected, y)) << IsaName(isa) << " hidden " << hidden;
    }
  }
}

TEST(LayerNorm, InPlaceAndAnyNumberOfThreads_GiveTheSameBits) {
  constexpr size_t kTokens = 120, kHidden = 577;
  const std::vector<float> x = RandomFloats(1, kTokens * kHidden), w = RandomFloats(2, kHidden),
                           b = RandomFloats(3, kHidden);
  for (const Isa isa : LevelsHere()) {
    TestContext one(isa);
    std::vector<float> expected(x.size());
    LayerNorm(*one, {x.data(), kTokens, kHidden}, w, b, 1e-5F, {expected.data(), kTokens, kHidden});
    for (const size_t threads : {1, 2, 3}) {
      TestContext context(isa, threads);
      std::vector<float> y = x;
      LayerNorm(*context, {y.data(), kTokens, kHidden}, w, b, 1e-5F, {y.data(), kTokens, kHidden});
      EXPECT_TRUE(SameBits(expected, y)) << IsaName(isa) << " threads " << threads;
    }
  }
}

TEST(LayerNorm, RowOfOneValue_IsTheBias) {
  const std::vector<float> x(33, 2.5F), w(33, 2.0F), b = RandomFloats(1, 33);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> y(33);
    LayerNorm(*context, {x.data(), 1, 33}, w, b, 1e-5F, {y.data(), 1, 33});
    EXPECT_TRUE(SameBits(b, y)) << IsaName(isa);
  }
}

TEST(LayerNorm, RowWithNanOrInfinity_IsNanAndLeavesTheOthers) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = RandomFloats(1, 3 * 19);
    const std::vector<float> w = RandomFloats(2, 19), b = RandomFloats(3, 19);
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      std::vector<float> clean(x.size()), y(x.size());
      LayerNorm(*context, {x.data(), 3, 19}, w, b, 1e-5F, {clean.data(), 3, 19});
      std::vector<float> dirty = x;
      dirty[19 + 4] = bad;
      LayerNorm(*context, {dirty.data(), 3, 19}, w, b, 1e-5F, {y.data(), 3, 19});
      std::fill(clean.begin() + 19, clean.begin() + 38, std::numeric_limits<float>::quiet_NaN());
      EXPECT_TRUE(SameBits(clean, y)) << IsaName(isa);
    }
  }
}

TEST(LayerNorm, EveryLevel_GivesTheKeptHash) {
  const std::vector<float> x = RandomFloats(100, 4 * 577, 3), w = RandomFloats(101, 577), b = RandomFloats(102, 577);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> y(x.size());
    LayerNorm(*context, {x.data(), 4, 577}, w, b, 1e-5F, {y.data(), 4, 577});
    EXPECT_TRUE(testing::SameHash(HasFma(isa) ? 0x2563C88F5F5D2137 : 0x72C909C1DF79756E, testing::HashOf<float>(y)))
        << IsaName(isa);
  }
}

}  // namespace
}  // namespace tidemill::layer_norm_test
