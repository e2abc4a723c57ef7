#include "planner/draft_costs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "planner/testing/round_numbers.h"

namespace tidemill {
namespace {

using testing::RoundModel;
using testing::RoundProfile;

DraftCosts Linear(double slope, double guess, double others = 0) {
  DraftCosts costs{.guess_seconds = guess, .other_tokens = others};
  for (size_t g = 0; g < costs.step_seconds.size(); ++g) costs.step_seconds[g] = 1 + slope * static_cast<double>(g);
  return costs;
}

// By hand, from testing/round_numbers.h: see PredictedCosts.CheckStep_... for the steps.
TEST(PredictDraftCosts, AreStepsOfBothModels) {
  const MachineProfile profile = RoundProfile();
  const ModelNumbers model = RoundModel();
  ModelNumbers half = model;
  half.weights = {{.dtype = DType::kQ8_0, .bytes = 1e6}};
  const PredictedCosts costs(profile, model), drafter(profile, half), slow(profile, half, ThreadUse::kOne);
  const DraftSetting setting{.depth = 999, .others = 3, .most = 8};
  const DraftCosts ngram = PredictDraftCosts(costs, nullptr, setting);
  EXPECT_TRUE(ngram.any());
  EXPECT_EQ(ngram.guess_seconds, 0);
  EXPECT_EQ(ngram.other_tokens, 3);
  for (const size_t guesses : {0, 1, 8, 64})
    EXPECT_EQ(ngram.step_seconds[guesses], costs.CheckStep(999, 1 + guesses, 3)) << guesses;
  // A row of the drafter: 0.3 ms of products, 0.1 ms of loops, 0.1 ms of elements, 2 ms of attention.
  EXPECT_NEAR(PredictDraftCosts(costs, &drafter, setting).guess_seconds, 2.5e-3, 1e-12);
  EXPECT_NEAR(PredictDraftCosts(costs, &slow, setting).guess_seconds, 4.9e-3, 1e-12);
  DraftSetting other = setting;
  other.order = GuessOrder::kAtOnce;
  EXPECT_EQ(PredictDraftCosts(costs, &drafter, other).guess_seconds, drafter.CheckStep(999, 8, 0));
  other.order = GuessOrder::kTree;
  EXPECT_FALSE(PredictDraftCosts(costs, &drafter, other).any());
}

TEST(DraftRate, IsTokensOverSeconds) {
  EXPECT_DOUBLE_EQ(DraftRate(Linear(0.1, 0.2), GuessOrder::kOneByOne, 0, 0.5), 1);
  EXPECT_DOUBLE_EQ(DraftRate(Linear(0.1, 0.2), GuessOrder::kOneByOne, 2, 0.5), 1.75 / 1.6);
  EXPECT_DOUBLE_EQ(DraftRate(Linear(0.1, 0.2), GuessOrder::kAtOnce, 2, 0.5), 1.75 / 1.4);
  EXPECT_DOUBLE_EQ(DraftRate(Linear(0.1, 0.2, 7), GuessOrder::kOneByOne, 2, 0.5), 8.75 / 1.6);
}

TEST(BreakEvenShare, IsWhereBothRatesAreEqual) {
  const auto share = [](const DraftCosts& costs, size_t guesses, GuessOrder order = GuessOrder::kOneByOne) {
    return BreakEvenShare(costs, order, guesses);
  };
  EXPECT_NEAR(share(Linear(0.1, 0.1), 1).value_or(-1), 0.2, 1e-9);                       // 1 + a = 1.2
  EXPECT_NEAR(share(Linear(0.1, 0.1), 2).value_or(-1), (std::sqrt(2.6) - 1) / 2, 1e-9);  // 1 + a + a^2 = 1.4
  EXPECT_NEAR(share(Linear(0.1, 0.1), 2, GuessOrder::kAtOnce).value_or(-1), (std::sqrt(2.2) - 1) / 2, 1e-9);  // 1.3
  EXPECT_NEAR(share(Linear(0.1, 0.9), 4).value_or(-1), 1, 1e-9);  // 5 tokens in 5 seconds
  EXPECT_FALSE(share(Linear(0.1, 1.0), 4).has_value());
  EXPECT_FALSE(share(Linear(0.1, 0.1, 9), 1).has_value());            // 10 + a = 12
  EXPECT_NEAR(share(Linear(0.05, 0, 9), 1).value_or(-1), 0.5, 1e-9);  // 10 + a = 10.5
  EXPECT_NEAR(share(Linear(0, 0), 3).value_or(-1), 0, 1e-9);          // rows that cost nothing always pay
}

}  // namespace
}  // namespace tidemill
