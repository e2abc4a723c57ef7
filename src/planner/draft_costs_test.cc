#include "planner/draft_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "decoding/acceptance_counts.h"
#include "planner/testing/round_numbers.h"

namespace tidemill::draft_costs_test {
namespace {

using testing::RoundModel;
using testing::RoundProfile;

DraftCosts Linear(double slope, double draft_token, double others = 0) {
  DraftCosts costs{.draft_token_seconds = draft_token, .other_tokens = others};
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
  const DraftSetting setting{.depth = 999, .others = 3, .num_draft_tokens = 8};
  const DraftCosts ngram = PredictDraftCosts(costs, nullptr, setting);
  EXPECT_TRUE(ngram.any());
  EXPECT_EQ(ngram.draft_token_seconds, 0);
  EXPECT_EQ(ngram.other_tokens, 3);
  EXPECT_EQ(ngram.acceptance, 0.5);
  EXPECT_EQ(PredictDraftCosts(costs, &drafter, setting).acceptance, kModelAcceptance);
  for (const size_t draft_tokens : {0, 1, 8, 64})
    EXPECT_EQ(ngram.step_seconds[draft_tokens], costs.CheckStep(999, 1 + draft_tokens, 3)) << draft_tokens;
  // A row of the drafter: 0.3 ms of products, 0.1 ms of loops, 0.1 ms of elements, 2 ms of attention.
  EXPECT_NEAR(PredictDraftCosts(costs, &drafter, setting).draft_token_seconds, 2.5e-3, 1e-12);
  EXPECT_NEAR(PredictDraftCosts(costs, &slow, setting).draft_token_seconds, 4.9e-3, 1e-12);
  DraftSetting other = setting;
  other.order = DraftOrder::kAtOnce;
  EXPECT_EQ(PredictDraftCosts(costs, &drafter, other).draft_token_seconds, drafter.CheckStep(999, 8, 0));
  // Each draft token runs those before it again: of eight, one to eight rows.
  DraftSetting again = setting;
  again.runs_draft_tokens_again = true;
  again.acceptance = 0.5;
  EXPECT_EQ(PredictDraftCosts(costs, &drafter, again).acceptance, 0.5);
  EXPECT_EQ(PredictDraftCosts(costs, &drafter, again).draft_token_seconds, drafter.BatchStep(999, 4, 1, 1));
  again.num_draft_tokens = 1;
  EXPECT_EQ(PredictDraftCosts(costs, &drafter, again).draft_token_seconds, drafter.DecodeStep(999, 1));
}

// A draft token is a share of the step that makes those of all: four rows of the drafter, of which attention alone takes four times as long.
TEST(PredictDraftCosts, ThoseOfOthersShareTheSteps) {
  const MachineProfile profile = RoundProfile();
  const ModelNumbers model = RoundModel();
  const PredictedCosts costs(profile, model);
  DraftSetting setting{.depth = 999, .others = 5, .together = 3, .num_draft_tokens = 8};
  const DraftCosts shared = PredictDraftCosts(costs, &costs, setting);
  EXPECT_DOUBLE_EQ(shared.draft_token_seconds, costs.DecodeStep(999, 4) / 4);
  EXPECT_LT(shared.draft_token_seconds, costs.DecodeStep(999, 1));
  EXPECT_EQ(shared.step_seconds[3], costs.CheckStep(999, 4, 5));
  setting.order = DraftOrder::kAtOnce;
  EXPECT_DOUBLE_EQ(PredictDraftCosts(costs, &costs, setting).draft_token_seconds, costs.BatchStep(999, 8, 8, 4) / 4);
}

TEST(PredictTreeCosts, HaveAStepOfTheDrafterForEachLevel) {
  const MachineProfile profile = RoundProfile();
  const ModelNumbers model = RoundModel();
  ModelNumbers half = model;
  half.weights = {{.dtype = DType::kQ8_0, .bytes = 1e6}};
  const PredictedCosts costs(profile, model), drafter(profile, half);
  // Two roots; the first has two children, of which the second has one, and the second root's child has one.
  const DraftShape shape{.parents = {-1, -1, 0, 0, 1, 3, 4}, .ranks = {0, 1, 0, 1, 0, 0, 0}};
  const std::vector<std::vector<double>> acceptance = {{0.5, 0.25}, {0.5, 0.125}};
  for (const size_t together : {0, 2}) {
    const DraftSetting setting{
        .depth = 999, .others = 2, .together = together, .num_draft_tokens = 7, .order = DraftOrder::kTree};
    const DraftCosts found = PredictTreeCosts(costs, drafter, setting, shape, acceptance);
    const auto level = [&](size_t rows, size_t asked) {
      return drafter.BatchStep(999, rows, asked, 1 + together) / static_cast<double>(1 + together);
    };
    const auto check = [&](size_t nodes) { return costs.CheckStep(999, 1 + nodes, 2); };
    const double first = level(1, 1);
    EXPECT_DOUBLE_EQ(found.step_seconds[0], check(0)) << "a plain step makes nothing";
    EXPECT_DOUBLE_EQ(found.step_seconds[1], check(1) + first);
    EXPECT_DOUBLE_EQ(found.step_seconds[2], check(2) + first);
    EXPECT_DOUBLE_EQ(found.step_seconds[3], check(3) + first + level(1, 1));
    EXPECT_DOUBLE_EQ(found.step_seconds[5], check(5) + first + level(2, 2));
    EXPECT_DOUBLE_EQ(found.step_seconds[6], check(6) + first + level(2, 2) + level(2, 1)) << "an ancestor runs again";
    EXPECT_DOUBLE_EQ(found.step_seconds[7], check(7) + first + level(2, 2) + level(4, 2));
    EXPECT_EQ(found.step_seconds[8], found.step_seconds[7]) << "there are no more nodes";
    EXPECT_EQ(found.draft_token_seconds, 0);
    EXPECT_EQ(found.other_tokens, 2);
    const double promises[] = {0.5, 0.25, 0.25, 0.0625, 0.125, 0, 0, 0};  // a third level is not in the list
    for (size_t i = 0; i < std::size(promises); ++i) EXPECT_DOUBLE_EQ(found.promises[i], promises[i]) << i;
  }
}

TEST(ShapeOf, IsWhatATreeBeginsWith) {
  const auto acceptance = AcceptanceCounts().Rates();
  EXPECT_EQ(ShapeOf(DraftTreeKind::kFixed, acceptance, 64).parents,
            OrderByPromise(FixedDraftShape(), acceptance).parents);
  EXPECT_EQ(ShapeOf(DraftTreeKind::kFixed, acceptance, 9).size(), 9U);
  for (const DraftTreeKind kind : {DraftTreeKind::kOptimal, DraftTreeKind::kDynamic})
    EXPECT_EQ(ShapeOf(kind, acceptance, 12).parents, OptimalDraftShape(acceptance, 12).parents);
}

TEST(DraftRate, IsTokensOverSeconds) {
  EXPECT_DOUBLE_EQ(DraftRate(Linear(0.1, 0.2), DraftOrder::kOneByOne, 0, 0.5), 1);
  EXPECT_DOUBLE_EQ(DraftRate(Linear(0.1, 0.2), DraftOrder::kOneByOne, 2, 0.5), 1.75 / 1.6);
  EXPECT_DOUBLE_EQ(DraftRate(Linear(0.1, 0.2), DraftOrder::kAtOnce, 2, 0.5), 1.75 / 1.4);
  EXPECT_DOUBLE_EQ(DraftRate(Linear(0.1, 0.2, 7), DraftOrder::kOneByOne, 2, 0.5), 8.75 / 1.6);
}

// An answer that makes up for draft_prefill takes, steps and draft_prefill together, at most as long as plain steps in which all sequences get as many
// tokens; one that is a token shorter takes longer.
TEST(PredictDraftPrefill, IsPaidBackByLongAnswers) {
  const MachineProfile profile = RoundProfile();
  const ModelNumbers model = RoundModel();
  ModelNumbers small = model;
  small.weights = {{.dtype = DType::kQ8_0, .bytes = 1e5}};
  small.attention[0].layers = 1;
  small.row_works = {};
  const PredictedCosts costs(profile, model), drafter(profile, small);
  size_t tested = 0;
  for (const size_t others : {0, 3}) {
    for (const DraftOrder order : {DraftOrder::kOneByOne, DraftOrder::kAtOnce, DraftOrder::kTree}) {
      const DraftSetting setting{.depth = 9, .others = others, .num_draft_tokens = 4, .order = order};
      DraftSetting chain = setting;
      if (order == DraftOrder::kTree) chain.order = DraftOrder::kOneByOne;
      const DraftCosts draft = PredictDraftCosts(costs, &drafter, chain);
      size_t width = 0;
      for (const size_t g : {1, 2, 3, 4}) {
        if (DraftRate(draft, chain.order, g, kHopedAcceptance) > DraftRate(draft, chain.order, width, kHopedAcceptance))
          width = g;
      }
      const DraftPrefill draft_prefill = PredictDraftPrefill(costs, drafter, setting, 500, 64);
      EXPECT_EQ(draft_prefill.seconds, drafter.Prefill(500, 64));
      ASSERT_EQ(draft_prefill.min_answer_tokens.has_value(), width != 0);
      if (width == 0) continue;
      double of_step = 1;
      for (size_t g = 1; g <= width; ++g) of_step += std::pow(kHopedAcceptance, g);
      const double making = static_cast<double>(order == DraftOrder::kAtOnce ? 1 : width) * draft.draft_token_seconds;
      const auto longer = [&](size_t answer) {  // than plain
        const double steps = static_cast<double>(answer) / of_step;
        const double tokens = steps * (of_step + static_cast<double>(others));
        const double plain_steps = tokens / static_cast<double>(1 + others);
        return draft_prefill.seconds + steps * (draft.step_seconds[width] + making) -
               plain_steps * draft.step_seconds[0];
      };
      EXPECT_LE(longer(*draft_prefill.min_answer_tokens), 1e-9);
      EXPECT_GT(longer(*draft_prefill.min_answer_tokens - 1), -1e-9);
      ++tested;
    }
  }
  EXPECT_GE(tested, 3U);
  // The model as its own drafter saves nothing; nothing to read is made up for at once.
  const DraftSetting alone{.depth = 999, .num_draft_tokens = 4};
  EXPECT_FALSE(PredictDraftPrefill(costs, costs, alone, 500, 64).min_answer_tokens.has_value());
  EXPECT_EQ(PredictDraftPrefill(costs, costs, alone, 0, 64).min_answer_tokens, 0U);
}

TEST(BreakEvenAcceptanceRate, IsWhereBothRatesAreEqual) {
  const auto share = [](const DraftCosts& costs, size_t draft_tokens, DraftOrder order = DraftOrder::kOneByOne) {
    return BreakEvenAcceptanceRate(costs, order, draft_tokens);
  };
  EXPECT_NEAR(share(Linear(0.1, 0.1), 1).value_or(-1), 0.2, 1e-9);                       // 1 + a = 1.2
  EXPECT_NEAR(share(Linear(0.1, 0.1), 2).value_or(-1), (std::sqrt(2.6) - 1) / 2, 1e-9);  // 1 + a + a^2 = 1.4
  EXPECT_NEAR(share(Linear(0.1, 0.1), 2, DraftOrder::kAtOnce).value_or(-1), (std::sqrt(2.2) - 1) / 2, 1e-9);  // 1.3
  EXPECT_NEAR(share(Linear(0.1, 0.9), 4).value_or(-1), 1, 1e-9);  // 5 tokens in 5 seconds
  EXPECT_FALSE(share(Linear(0.1, 1.0), 4).has_value());
  EXPECT_FALSE(share(Linear(0.1, 0.1, 9), 1).has_value());            // 10 + a = 12
  EXPECT_NEAR(share(Linear(0.05, 0, 9), 1).value_or(-1), 0.5, 1e-9);  // 10 + a = 10.5
  EXPECT_NEAR(share(Linear(0, 0), 3).value_or(-1), 0, 1e-9);          // rows that cost nothing always pay
}

}  // namespace
}  // namespace tidemill::draft_costs_test
