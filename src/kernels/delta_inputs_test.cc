#include "kernels/delta_inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/activation.h"
#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::delta_inputs_test {
namespace {

using testing::Arithmetic;
using testing::LevelsHere;
using testing::RandomFloats;
using testing::SameBits;
using testing::TestContext;

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

TEST(L2NormHeads, EveryLevel_MatchesReferenceAndGivesTheBitsOfEachHeadAlone) {
  struct Shape {
    size_t tokens, heads, head_dim, stride;
  };
  for (const Shape s : {Shape{1, 1, 1, 1}, Shape{3, 2, 7, 14}, Shape{3, 5, 8, 40}, Shape{3, 3, 12, 37},
                        Shape{3, 4, 16, 64}, Shape{2, 3, 20, 61}, Shape{5, 8, 64, 512}, Shape{70, 4, 128, 520}}) {
    for (const float amax : {5.0F, 1e-3F}) {  // the second: 1e-6 counts
      const std::vector<float> x = RandomFloats(s.head_dim, s.tokens * s.stride, amax);
      const float scale = 1 / std::sqrt(static_cast<float>(s.head_dim));
      std::vector<float> exact = x;
      reference::L2NormHeads({exact.data(), s.tokens, s.heads * s.head_dim, s.stride}, s.head_dim, scale);
      for (const Isa isa : LevelsHere()) {
        std::vector<float> expected = x;  // what lies between rows stays
        for (size_t t = 0; t < s.tokens; ++t) {
          for (size_t h = 0; h < s.heads; ++h) {
            const size_t at = t * s.stride + h * s.head_dim;
            const auto head = testing::L2Norm(Arithmetic::Of(isa), std::span(x).subspan(at, s.head_dim), scale);
            std::copy(head.begin(), head.end(), expected.begin() + static_cast<std::ptrdiff_t>(at));
          }
        }
        for (const size_t threads : {1, 2, 3}) {
          TestContext context(isa, threads);
          std::vector<float> y = x;
          L2NormHeads(*context, {y.data(), s.tokens, s.heads * s.head_dim, s.stride}, s.head_dim, scale);
          EXPECT_TRUE(SameBits(expected, y)) << IsaName(isa) << " head_dim " << s.head_dim << " threads " << threads;
          EXPECT_TRUE(testing::Within(
              exact, y,
              [&](size_t i) {
                return L2NormHeadsTolerance(s.head_dim) * std::fabs(static_cast<double>(exact[i])) + 0x1p-149;
              }))
              << IsaName(isa) << " head_dim " << s.head_dim;
        }
      }
    }
  }
}

TEST(L2NormHeads, HeadOfZerosOrWithNaN_StaysSoAndLeavesItsNeighbours) {
  constexpr size_t kDim = 20;
  std::vector<float> x = RandomFloats(1, 4 * kDim);
  std::fill_n(x.begin() + kDim, kDim, 0.0F);
  x[2 * kDim + 17] = kNan;
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> y = x;
    L2NormHeads(*context, {y.data(), 2, 2 * kDim}, kDim, 0.5F);
    for (const size_t h : {0, 3}) {
      EXPECT_TRUE(SameBits(testing::L2Norm(Arithmetic::Of(isa), std::span(x).subspan(h * kDim, kDim), 0.5F),
                           std::span(y).subspan(h * kDim, kDim)))
          << IsaName(isa) << " head " << h;
    }
    EXPECT_TRUE(SameBits(std::vector<float>(kDim, 0.0F), std::span(y).subspan(kDim, kDim))) << IsaName(isa);
    EXPECT_TRUE(SameBits(std::vector<float>(kDim, kNan), std::span(y).subspan(2 * kDim, kDim))) << IsaName(isa);
  }
}

TEST(L2NormHeads, EveryLevel_GivesTheKeptHash) {
  const std::vector<float> x = RandomFloats(100, 7 * 8 * 128, 3);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> y = x;
    L2NormHeads(*context, {y.data(), 7, 8 * 128}, 128, 0x1.6a09e6p-4F);
    EXPECT_TRUE(testing::SameHash(HasFma(isa) ? 0x7E8E94166180C3F4 : 0x9406FC0FD98535E5, testing::HashOf<float>(y)))
        << IsaName(isa);
  }
}

// What DeltaGates reads; each matrix has rows `stride` apart, NaN between them.
struct Gates {
  size_t tokens, heads, stride;
  std::vector<float> b, a, decay, dt_bias;

  Gates(size_t t, size_t h, size_t gap, uint64_t seed, float amax)
      : tokens(t), heads(h), stride(h + gap), b(t * stride, kNan), a(b), dt_bias(RandomFloats(seed, h, 3)) {
    testing::Random random(seed + 1);
    for (size_t row = 0; row < t; ++row) {
      for (size_t i = 0; i < h; ++i) {
        b[row * stride + i] = random.Uniform(amax);
        a[row * stride + i] = random.Uniform(amax);
      }
    }
    for (size_t i = 0; i < h; ++i) decay.push_back(-std::exp(random.Uniform(4)));
  }
  ConstMatrix<float> View(const std::vector<float>& v) const { return {v.data(), tokens, heads, stride}; }
  Matrix<float> View(std::vector<float>& v) const { return {v.data(), tokens, heads, stride}; }
};

// The gates of one token with heads that differ in a, b and decay.
struct Results {
  std::vector<float> beta, g;
};
Results Apply(TestContext& context, const std::vector<float>& b, const std::vector<float>& a,
              const std::vector<float>& decay, const std::vector<float>& dt_bias) {
  Results y{std::vector<float>(b.size()), std::vector<float>(a.size())};
  DeltaGates(*context, {b.data(), 1, b.size()}, {a.data(), 1, a.size()}, decay, dt_bias, {y.beta.data(), 1, b.size()},
             {y.g.data(), 1, a.size()});
  return y;
}

TEST(DeltaGates, EveryLevel_StaysWithinTheToleranceOfTheReference) {
  std::vector<float> x;
  for (int i = -200 * 64; i <= 200 * 64; ++i) x.push_back(static_cast<float>(i) / 64);
  for (int e = -149; e < 8; ++e) x.insert(x.end(), {std::ldexp(1.0F, e), -std::ldexp(1.0F, e)});
  const std::vector<float> dt_bias = RandomFloats(2, x.size(), 3);
  for (const float each : {-1e-3F, -0.7F, -16.0F, -1e4F}) {
    const std::vector<float> decay(x.size(), each);
    Results exact = {std::vector<float>(x.size()), std::vector<float>(x.size())};
    reference::DeltaGates({x.data(), 1, x.size()}, {x.data(), 1, x.size()}, decay, dt_bias,
                          {exact.beta.data(), 1, x.size()}, {exact.g.data(), 1, x.size()});
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      const Results y = Apply(context, x, x, decay, dt_bias);
      double worst_share = 0;
      EXPECT_TRUE(testing::Within(exact.beta, y.beta, [&](size_t i) {  // the reference's own rounding besides
        const auto beta = static_cast<double>(exact.beta[i]);
        return ActivationTolerance(Activation::kSigmoid, static_cast<double>(x[i]), beta) + 0x1p-24 * beta;
      })) << IsaName(isa);
      EXPECT_TRUE(testing::Within(
          exact.g, y.g,
          [&](size_t i) {
            const double at = static_cast<double>(x[i]) + static_cast<double>(dt_bias[i]);
            const double softplus = std::max(at, 0.0) + std::log1p(std::exp(-std::fabs(at)));
            const double allowed = DecayGateTolerance(at, softplus, static_cast<double>(each));
            worst_share = std::max(worst_share,
                                   std::fabs(static_cast<double>(y.g[i]) - static_cast<double>(exact.g[i])) / allowed);
            return allowed;
          }))
          << IsaName(isa) << " decay " << each;
      for (const float g : y.g) ASSERT_TRUE(g >= kMinDecay && g <= 0) << IsaName(isa) << " " << g;
      RecordProperty("worst_share_of_tolerance_" + std::to_string(each) + "_" + std::string(IsaName(isa)),
                     std::to_string(worst_share));
    }
  }
}

TEST(DeltaGates, InPlaceAndAnyNumberOfThreads_GiveTheBitsOfTheFormula) {
  for (const size_t heads : {1, 3, 4, 8, 15, 16, 17, 32, 40, 8192}) {
    for (const size_t gap : {0, 5}) {
      for (const float amax : {4.0F, 150.0F}) {
        const Gates in(heads > 100 ? 3 : 301, heads, gap, heads, amax);
        for (const Isa isa : LevelsHere()) {
          const Arithmetic math = Arithmetic::Of(isa);
          std::vector<float> beta = in.b, g = in.a;  // what lies between rows stays
          for (size_t t = 0; t < in.tokens; ++t) {
            for (size_t h = 0; h < heads; ++h) {
              const size_t at = t * in.stride + h;
              beta[at] = math.Sigmoid(in.b[at]);
              g[at] = testing::DecayGate(math, in.a[at], in.dt_bias[h], in.decay[h]);
            }
          }
          for (const size_t threads : {1, 2, 3}) {
            TestContext context(isa, threads);
            std::vector<float> other_beta(in.b.size(), kNan), other_g = other_beta, own_beta = in.b, own_g = in.a;
            DeltaGates(*context, in.View(in.b), in.View(in.a), in.decay, in.dt_bias, in.View(other_beta),
                       in.View(other_g));
            DeltaGates(*context, in.View(own_beta), in.View(own_g), in.decay, in.dt_bias, in.View(own_beta),
                       in.View(own_g));
            EXPECT_TRUE(SameBits(beta, other_beta)) << IsaName(isa) << " heads " << heads << " threads " << threads;
            EXPECT_TRUE(SameBits(beta, own_beta)) << IsaName(isa) << " heads " << heads << " threads " << threads;
            EXPECT_TRUE(SameBits(g, other_g)) << IsaName(isa) << " heads " << heads << " threads " << threads;
            EXPECT_TRUE(SameBits(g, own_g)) << IsaName(isa) << " heads " << heads << " threads " << threads;
          }
        }
      }
    }
  }
}

TEST(DeltaGates, BetaHasTheBitsOfSigmoid) {
  const std::vector<float> b = RandomFloats(9, 1001, 95), ones(b.size(), -1.0F);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> sigmoid(b.size());
    Activate(*context, Activation::kSigmoid, {b.data(), 1, b.size()}, {sigmoid.data(), 1, b.size()});
    EXPECT_TRUE(SameBits(sigmoid, Apply(context, b, b, ones, ones).beta)) << IsaName(isa);
  }
}

TEST(DeltaGates, ExtremeArguments_GiveTheirLimits) {
  const float lowest = std::numeric_limits<float>::lowest();
  struct Case {
    float a, dt_bias, decay, g;
  };
  const Case cases[] = {{0, 0, -1, -0x1.62e43p-1F},  // -log 2
                        {150, 50, -0.5F, -100},      {103.75F, 0, -1, -103.75F}, {104, 0, -1, kMinDecay},
                        {104.25F, 0, -1, kMinDecay}, {200, 0, -1, kMinDecay},    {1, 0, -1e4F, kMinDecay},
                        {-200, 0, -1e4F, -0.0F},     {-200, 0, -1, -0.0F},       {-lowest, -lowest, -1e-30F, kMinDecay},
                        {kInf, 0, -1, kMinDecay},    {-kInf, 0, -1, -0.0F},      {1, 1, lowest, kMinDecay},
                        {kNan, 0, -1, kNan},         {0, kNan, -1, kNan},        {0, 0, kNan, kNan}};
  std::vector<float> a, dt_bias, decay, g;
  for (const Case& c : cases) {
    a.push_back(c.a), dt_bias.push_back(c.dt_bias), decay.push_back(c.decay), g.push_back(c.g);
  }
  const std::vector<float> b = {100, -100, kInf, -kInf, 0, -0.0F, kNan, 1e30F, -1e30F, 17};
  const std::vector<float> beta = {1, 0, 1, 0, 0.5F, 0.5F, kNan, 1, 0, 1}, zeros(b.size()), ones(b.size(), -1.0F);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    EXPECT_TRUE(SameBits(g, Apply(context, a, a, decay, dt_bias).g)) << IsaName(isa);
    EXPECT_TRUE(SameBits(beta, Apply(context, b, zeros, ones, zeros).beta)) << IsaName(isa);
  }
}

TEST(DeltaGates, MinDecay_IsWhereExpGives0) {
  EXPECT_EQ(std::exp(kMinDecay), 0.0F);
  EXPECT_EQ(Arithmetic{true}.Exp(kMinDecay), 0.0F);
  EXPECT_GT(std::exp(kMinDecay + 1), 0.0F);
}

TEST(DeltaGates, EveryLevel_GivesTheKeptHash) {
  const Gates in(50, 48, 0, 7, 9);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    std::vector<float> beta = in.b, g = in.a;
    DeltaGates(*context, in.View(beta), in.View(g), in.decay, in.dt_bias, in.View(beta), in.View(g));
    EXPECT_TRUE(testing::SameHash(HasFma(isa) ? 0xB8D3BE544D6C0508 : 0xD482293364E67BB6,
                                  testing::HashOf<float>(g, testing::HashOf<float>(beta))))
        << IsaName(isa);
  }
}

TEST(DeltaInputs, NoRows_DoNothing) {
  TestContext context(Isa::kBaseline);
  L2NormHeads(*context, {nullptr, 0, 32}, 16, 1);
  const std::vector<float> decay(3, -1.0F);
  DeltaGates(*context, {nullptr, 0, 3}, {nullptr, 0, 3}, decay, decay, {nullptr, 0, 3}, {nullptr, 0, 3});
}

}  // namespace
}  // namespace tidemill::delta_inputs_test
