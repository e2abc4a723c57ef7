#include "kernels/expert_routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::expert_routing_test {
namespace {

using testing::Arithmetic;
using testing::LevelsHere;
using testing::RandomFloats;
using testing::SameBits;
using testing::TestContext;

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Normalise kBoth[] = {Normalise::kOverAll, Normalise::kOverChosen};

struct Shape {
  size_t tokens, experts, top_k;
};
constexpr Shape kShapes[] = {{1, 1, 1},   {3, 2, 1},   {5, 8, 2},   {4, 8, 8},    {3, 15, 4},
                             {3, 16, 16}, {3, 17, 17}, {40, 60, 4}, {33, 128, 8}, {21, 512, 10}};

struct Routes {
  std::vector<uint32_t> experts;
  std::vector<float> weights;

  explicit Routes(const Shape& s) : experts(s.tokens * s.top_k, 77777), weights(s.tokens * s.top_k) {}
  Matrix<uint32_t> ExpertView(const Shape& s) { return {experts.data(), s.tokens, s.top_k}; }
  Matrix<float> WeightView(const Shape& s) { return {weights.data(), s.tokens, s.top_k}; }
};

Routes Route(TestContext& context, const Shape& s, const std::vector<float>& logits, Normalise normalise) {
  Routes routes(s);
  RouteTokens(*context, {logits.data(), s.tokens, s.experts}, normalise, routes.ExpertView(s), routes.WeightView(s));
  return routes;
}

// The header's formula for the weights of the ids in `routes`.
std::vector<float> WeightsByFormula(Arithmetic math, const Shape& s, const std::vector<float>& logits,
                                    Normalise normalise, const std::vector<uint32_t>& experts) {
  std::vector<float> weights;
  for (size_t t = 0; t < s.tokens; ++t) {
    const float* row = logits.data() + t * s.experts;
    const float m = *std::max_element(row, row + s.experts);
    std::array<float, 16> sums{};
    for (size_t e = 0; e < s.experts; ++e) sums[e % 16] += math.Exp(row[e] - m);
    float sum = normalise == Normalise::kOverAll ? testing::TreeSum16(sums) : 0;
    const std::span<const uint32_t> ids(experts.data() + t * s.top_k, s.top_k);
    if (normalise == Normalise::kOverChosen) {
      for (const uint32_t e : ids) sum += math.Exp(row[e] - m);
    }
    for (const uint32_t e : ids) weights.push_back(math.Exp(row[e] - m) / sum);
  }
  return weights;
}

TEST(RouteTokens, EveryLevel_MatchesReferenceAndGivesTheBitsOfTheFormula) {
  double worst_share = 0;
  for (const Shape& s : kShapes) {
    for (const float amax : {1.0F, 12.0F, 60.0F}) {
      std::vector<float> logits = RandomFloats(s.experts, s.tokens * s.experts, amax);
      for (size_t i = 0; i < logits.size(); i += 5) logits[i] = logits[i / 5 * 3];  // ties
      for (const Normalise normalise : kBoth) {
        Routes exact(s);
        reference::RouteTokens({logits.data(), s.tokens, s.experts}, normalise, exact.ExpertView(s),
                               exact.WeightView(s));
        for (const Isa isa : LevelsHere()) {
          for (const size_t threads : {1, 3}) {
            TestContext context(isa, threads);
            const Routes routes = Route(context, s, logits, normalise);
            ASSERT_EQ(routes.experts, exact.experts) << IsaName(isa) << " experts " << s.experts;
            EXPECT_TRUE(
                SameBits(WeightsByFormula(Arithmetic::Of(isa), s, logits, normalise, exact.experts), routes.weights))
                << IsaName(isa) << " experts " << s.experts;
            const auto bound = [&](size_t i) {
              const float* row = logits.data() + i / s.top_k * s.experts;
              const double below = static_cast<double>(*std::max_element(row, row + s.experts)) -
                                   static_cast<double>(row[exact.experts[i]]);
              return ExpertWeightTolerance(s.experts, s.top_k, below) * static_cast<double>(exact.weights[i]) +
                     0x1p-148;
            };
            EXPECT_TRUE(testing::Within(exact.weights, routes.weights, bound))
                << IsaName(isa) << " experts " << s.experts << " amax " << amax;
            for (size_t i = 0; i < routes.weights.size(); ++i) {
              const double error =
                  std::fabs(static_cast<double>(routes.weights[i]) - static_cast<double>(exact.weights[i]));
              worst_share = std::max(worst_share, error / bound(i));
            }
          }
        }
      }
    }
  }
  RecordProperty("worst_share_of_tolerance", std::to_string(worst_share));
}

// Softmax over nothing but the chosen logits, as Mixtral has it, is softmax over all, renormalised, as Qwen3-MoE has it: by bits.
TEST(RouteTokens, SoftmaxOverTheChosenAlone_GivesTheBitsOfTheRenormalised) {
  const Shape s{21, 128, 8};
  const std::vector<float> logits = RandomFloats(1, s.tokens * s.experts, 9);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    const Routes routes = Route(context, s, logits, Normalise::kOverChosen);
    std::vector<float> chosen;
    for (size_t i = 0; i < routes.experts.size(); ++i) {
      chosen.push_back(logits[i / s.top_k * s.experts + routes.experts[i]]);
    }
    const Shape alone{s.tokens, s.top_k, s.top_k};
    EXPECT_TRUE(SameBits(routes.weights, Route(context, alone, chosen, Normalise::kOverChosen).weights))
        << IsaName(isa);
  }
}

TEST(RouteTokens, EqualLogits_ChooseTheLowerIds) {
  const Shape s{3, 20, 3};
  std::vector<float> logits(s.tokens * s.experts, 1.5F);
  logits[20 + 17] = 2;  // one above the equal ones
  for (size_t e = 40; e < 60; ++e) logits[e] = e % 2 == 0 ? 0.0F : -0.0F;
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    EXPECT_EQ(Route(context, s, logits, Normalise::kOverAll).experts,
              (std::vector<uint32_t>{0, 1, 2, 0, 1, 17, 0, 1, 2}))
        << IsaName(isa);
  }
}

TEST(RouteTokens, LogitsThatAreNoNumbers_GiveNanWeightsAndValidIds) {
  const Shape s{7, 19, 4};
  const std::vector<float> clean = RandomFloats(3, s.tokens * s.experts, 3);
  std::vector<float> logits = clean;
  const auto row = [&](size_t t) { return logits.begin() + static_cast<std::ptrdiff_t>(t * s.experts); };
  row(0)[18] = kNan;
  std::fill(row(1), row(2), kNan);
  row(2)[5] = kInf;
  std::fill(row(3), row(4), -kInf);
  row(4)[0] = -kInf;  // a masked expert: a number like any other
  std::fill(row(6), row(6) + 10, kNan);
  for (const Normalise normalise : kBoth) {
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      const Routes routes = Route(context, s, logits, normalise), other = Route(context, s, clean, normalise);
      for (size_t t = 0; t < s.tokens; ++t) {
        for (size_t j = 0; j < s.top_k; ++j) {
          const size_t i = t * s.top_k + j;
          ASSERT_LT(routes.experts[i], s.experts);
          if (j > 0) {
            EXPECT_LT(routes.experts[i - 1], routes.experts[i]);
          }
          EXPECT_EQ(std::isnan(routes.weights[i]), t != 4 && t != 5) << IsaName(isa) << " row " << t;
          if (t == 5) {
            EXPECT_EQ(routes.weights[i], other.weights[i]);
          }
        }
      }
      EXPECT_EQ(routes.experts[3], 18U);  // NaN is chosen
    }
  }
}

struct Groups {
  std::vector<uint32_t> order, offsets, slots;

  explicit Groups(const Shape& s)
      : order(s.tokens * s.top_k, 88888), offsets(s.experts + 1, 88888), slots(s.tokens * s.top_k, 88888) {}
  ExpertGroups View(const Shape& s) { return {order, offsets, {slots.data(), s.tokens, s.top_k}}; }
};

TEST(GroupByExpert, AnyRoutes_GiveEachExpertItsRowsInOrder) {
  TestContext context(Isa::kBaseline);
  for (const Shape& s : kShapes) {
    const Routes routes = Route(context, s, RandomFloats(7, s.tokens * s.experts), Normalise::kOverAll);
    Groups groups(s), expected(s);
    GroupByExpert({routes.experts.data(), s.tokens, s.top_k}, groups.View(s));
    reference::GroupByExpert({routes.experts.data(), s.tokens, s.top_k}, expected.View(s));
    EXPECT_EQ(groups.order, expected.order) << "experts " << s.experts;
    EXPECT_EQ(groups.offsets, expected.offsets) << "experts " << s.experts;
    EXPECT_EQ(groups.slots, expected.slots) << "experts " << s.experts;
    for (size_t i = 0; i < routes.experts.size(); ++i) {  // there and back
      const uint32_t slot = groups.slots[i], e = routes.experts[i];
      EXPECT_EQ(groups.order[slot], i / s.top_k);
      EXPECT_TRUE(groups.offsets[e] <= slot && slot < groups.offsets[e + 1]);
    }
  }
}

TEST(GroupByExpert, NoTokensOrOneExpertForAll_LeaveTheOthersEmpty) {
  const Shape none{0, 5, 2}, all{4, 3, 1};
  Groups empty(none), one(all);
  GroupByExpert({nullptr, 0, 2}, empty.View(none));
  EXPECT_EQ(empty.offsets, std::vector<uint32_t>(6, 0));
  const std::vector<uint32_t> experts(4, 1);
  GroupByExpert({experts.data(), 4, 1}, one.View(all));
  EXPECT_EQ(one.offsets, (std::vector<uint32_t>{0, 0, 4, 4}));
  EXPECT_EQ(one.order, (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(one.slots, (std::vector<uint32_t>{0, 1, 2, 3}));
}

// A layer whose expert e multiplies a row by (e + 1) / 4: all of the routing with nothing between its ends.
struct Mixture {
  Shape shape;
  size_t hidden;
  std::vector<float> x, y, logits;

  Mixture(const Shape& s, size_t h)
      : shape(s),
        hidden(h),
        x(RandomFloats(1, s.tokens * h)),
        y(RandomFloats(2, s.tokens * h)),
        logits(RandomFloats(3, s.tokens * s.experts, 4)) {}

  // Rows [first, first + count) through the layer.
  std::vector<float> Run(TestContext& context, size_t first, size_t count) const {
    const Shape s{count, shape.experts, shape.top_k};
    Routes routes(s);
    Groups groups(s);
    RouteTokens(*context, {logits.data() + first * s.experts, count, s.experts}, Normalise::kOverChosen,
                routes.ExpertView(s), routes.WeightView(s));
    GroupByExpert(routes.ExpertView(s), groups.View(s));
    std::vector<float> gathered(groups.order.size() * hidden);
    const Matrix<float> rows(gathered.data(), groups.order.size(), hidden);
    GatherRows(*context, {x.data() + first * hidden, count, hidden}, groups.order, rows);
    for (size_t e = 0; e < s.experts; ++e) {
      for (size_t i = groups.offsets[e] * hidden; i < groups.offsets[e + 1] * hidden; ++i) {
        gathered[i] *= static_cast<float>(e + 1) / 4;
      }
    }
    std::vector<float> result(y.begin() + static_cast<std::ptrdiff_t>(first * hidden),
                              y.begin() + static_cast<std::ptrdiff_t>((first + count) * hidden));
    ScatterAddExperts(*context, rows, groups.View(s).slots, routes.WeightView(s), {result.data(), count, hidden});
    return result;
  }
};

TEST(ScatterAddExperts, EveryLevel_GivesTheBitsOfTheFormulaAndMatchesReference) {
  double worst_share = 0;
  for (const Shape& s : kShapes) {
    for (const size_t hidden : {1, 5, 16, 31, 577}) {
      const Mixture mixture(s, hidden);
      for (const Isa isa : LevelsHere()) {
        const Arithmetic math = Arithmetic::Of(isa);
        TestContext context(isa);
        const Routes routes = Route(context, s, mixture.logits, Normalise::kOverChosen);
        std::vector<float> expected, exact;
        std::vector<double> allowed;
        for (size_t i = 0; i < mixture.y.size(); ++i) {
          const size_t t = i / hidden;
          float acc = 0;
          double sum = static_cast<double>(mixture.y[i]), magnitude = std::fabs(sum);
          for (size_t j = t * s.top_k; j < (t + 1) * s.top_k; ++j) {
            const float out = mixture.x[i] * (static_cast<float>(routes.experts[j] + 1) / 4);
            acc = math.MulAdd(routes.weights[j], out, acc);
            const double product = static_cast<double>(routes.weights[j]) * static_cast<double>(out);
            sum += product;
            magnitude += std::fabs(product);
          }
          expected.push_back(mixture.y[i] + acc);
          exact.push_back(static_cast<float>(sum));
          allowed.push_back((ScatterAddTolerance(s.top_k) + 0x1p-24) * magnitude);
        }
        const std::vector<float> actual = mixture.Run(context, 0, s.tokens);
        EXPECT_TRUE(SameBits(expected, actual)) << IsaName(isa) << " experts " << s.experts << " hidden " << hidden;
        EXPECT_TRUE(testing::Within(exact, actual, [&](size_t i) { return allowed[i]; })) << IsaName(isa);
        for (size_t i = 0; i < actual.size(); ++i) {
          const double error = std::fabs(static_cast<double>(actual[i]) - static_cast<double>(exact[i]));
          if (error > 0) worst_share = std::max(worst_share, error / allowed[i]);
        }
      }
    }
  }
  RecordProperty("worst_share_of_tolerance", std::to_string(worst_share));
}

TEST(ExpertRouting, AnyBatchMatesAndThreads_GiveATokenTheSameBits) {
  const Mixture mixture({33, 60, 4}, 1031);
  for (const Isa isa : LevelsHere()) {
    TestContext one(isa);
    const std::vector<float> whole = mixture.Run(one, 0, 33);
    for (const size_t threads : {2, 3}) {
      TestContext context(isa, threads);
      EXPECT_TRUE(SameBits(whole, mixture.Run(context, 0, 33))) << IsaName(isa) << " threads " << threads;
    }
    for (const size_t count : {1, 7}) {
      std::vector<float> pieces;
      for (size_t first = 0; first < 33; first += count) {
        const std::vector<float> piece = mixture.Run(one, first, std::min<size_t>(count, 33 - first));
        pieces.insert(pieces.end(), piece.begin(), piece.end());
      }
      EXPECT_TRUE(SameBits(whole, pieces)) << IsaName(isa) << " rows at a time " << count;
    }
  }
}

TEST(ScatterAddExperts, ReferenceAndKernel_AgreeOnTheLayout) {
  const std::vector<float> out = {1, 2, 10, 20, 100, 200}, weights = {0.5F, 2, 4};
  const std::vector<uint32_t> slots = {0, 1, 2};
  std::vector<float> expected = {1000}, y = {1000};
  const ConstMatrix<float> columns(out.data() + 1, 3, 1, 2);  // the second column of rows of two
  reference::ScatterAddExperts(columns, {slots.data(), 1, 3}, {weights.data(), 1, 3}, {expected.data(), 1, 1});
  EXPECT_EQ(expected[0], 1841);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    y = {1000};
    ScatterAddExperts(*context, columns, {slots.data(), 1, 3}, {weights.data(), 1, 3}, {y.data(), 1, 1});
    EXPECT_EQ(y, expected) << IsaName(isa);
  }
}

TEST(ExpertRouting, NoTokens_DoNothing) {
  TestContext context(Isa::kBaseline);
  RouteTokens(*context, {nullptr, 0, 4}, Normalise::kOverAll, {nullptr, 0, 2}, {nullptr, 0, 2});
  GatherRows(*context, {nullptr, 0, 8}, {}, {nullptr, 0, 8});
  ScatterAddExperts(*context, {nullptr, 0, 8}, {nullptr, 0, 2}, {nullptr, 0, 2}, {nullptr, 0, 8});
}

TEST(ExpertRouting, EveryLevel_GivesTheKeptHash) {
  const Shape s{21, 128, 8};
  const Mixture mixture(s, 65);
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    const Routes routes = Route(context, s, mixture.logits, Normalise::kOverAll);
    uint64_t hash = testing::HashOf<uint32_t>(routes.experts);
    hash = testing::HashOf<float>(routes.weights, hash);
    hash = testing::HashOf<float>(mixture.Run(context, 0, s.tokens), hash);
    EXPECT_TRUE(testing::SameHash(HasFma(isa) ? 0x95EC9197FE988607 : 0xEEDFF06E90585D1A, hash)) << IsaName(isa);
  }
}

}  // namespace
}  // namespace tidemill::expert_routing_test
