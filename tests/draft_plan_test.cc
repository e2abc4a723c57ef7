// What a plan says of drafts, and that requests begin with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/draft_prediction.h"
#include "runtime/engine_impl.h"
#include "tests/support/drafting_models.h"
#include "tests/support/engine_driver.h"
#include "tests/support/hybrid_models.h"
#include "tests/support/model_runner.h"
#include "tidemill/plan.h"

namespace tidemill::draft_plan_test {
namespace {

using testing::DraftingModel;
using testing::EngineDriver;
using testing::LoadModel;

constexpr DraftTreeKind kKinds[] = {DraftTreeKind::kChain, DraftTreeKind::kFixed, DraftTreeKind::kDynamic,
                                    DraftTreeKind::kOptimal};

Plan PlanOf(Engine& engine, const DraftOptions& draft, size_t batch) {
  PlanOptions options{.batch = batch, .draft = draft};
  options.profile_path = testing::WriteTemporary("draft_plan.json", "no profile");  // built-in numbers serve
  auto plan = MakePlan(engine, options);
  EXPECT_TRUE(plan.ok()) << plan.error().message();
  return std::move(plan).value();
}

// Requests with any shape of drafts begin with what is predicted at their depth; those with chains with what a plan says.
TEST(DraftPlan, Requests_BeginWithIt) {
  size_t chains = 0, trees = 0;
  for (const DraftingModel& source : testing::DraftingModels()) {
    for (const DraftTreeKind kind : kKinds) {
      if (source.at_once && kind != DraftTreeKind::kChain) continue;
      for (const size_t batch : {1, 4}) {
        const std::string where = source.name + ", tree " + std::to_string(static_cast<int>(kind));
        EngineDriver driver(source.model, source.Options(batch));
        DraftOptions draft = source.Draft(kind == DraftTreeKind::kChain ? 8 : 25, kind);
        draft.min_draft_tokens = 0;
        Engine::Impl& impl = driver.engine().impl();
        const size_t depth = impl.options.context / 2;  // where a plan looks
        const DraftCosts predicted =
            PredictDrafts(impl, ProfileOf(impl), draft, SettingOf(impl, draft, depth, batch - 1, batch - 1));
        std::optional<Plan> plan;
        if (kind == DraftTreeKind::kChain) plan = PlanOf(driver.engine(), draft, batch);
        const std::vector<int32_t> prompt(depth, 7);
        const Request request{.prompt = prompt, .generation = {.max_new_tokens = 4}, .draft = draft};
        Request other = request;  // that drafts, whatever it pays
        other.draft.min_draft_tokens = 1;
        for (size_t i = 1; i < batch; ++i) driver.Submit(other);
        const auto state = impl.NewState();
        const auto drafter = impl.NewDrafter(draft, 0, state.get());
        const DraftCosts costs = impl.PredictedDraftCosts(request, *drafter);
        ASSERT_TRUE(costs.any()) << where;
        EXPECT_EQ(costs.draft_token_seconds, predicted.draft_token_seconds) << where;
        EXPECT_EQ(costs.other_tokens, static_cast<double>(batch - 1)) << where;
        EXPECT_EQ(costs.step_seconds, predicted.step_seconds) << where;
        EXPECT_EQ(costs.promises, predicted.promises) << where;
        EXPECT_EQ(costs.promises[0] > 0, kind != DraftTreeKind::kChain) << where;
        driver.RunUntilIdle();
        ++(plan ? chains : trees);
        if (!plan) continue;
        EXPECT_EQ(costs.draft_token_seconds, plan->drafts.draft_token_seconds) << where;
        ASSERT_EQ(plan->drafts.steps.size(), 17U) << where;
        for (const PredictedDrafts::Step& step : plan->drafts.steps)
          EXPECT_EQ(costs.step_seconds[step.num_draft_tokens], step.seconds)
              << where << ", " << step.num_draft_tokens << " draft tokens";
        const size_t first = NumDraftTokens(0, draft.num_draft_tokens, drafter->draft_order(), costs).Next();
        const Choice& choice = plan->choices.back();
        EXPECT_EQ(choice.name, "draft tokens");
        EXPECT_EQ(choice.chosen.value, std::to_string(first)) << where;
      }
    }
  }
  EXPECT_GE(chains, 8U);
  EXPECT_GE(trees, 20U);
}

TEST(DraftPlan, Trees_AreRefused) {
  const DraftingModel source = testing::DraftingModels().front();
  EngineDriver driver(source.model, source.Options(1));
  PlanOptions options{.draft = source.Draft(25, DraftTreeKind::kFixed)};
  options.profile_path = testing::WriteTemporary("draft_plan.json", "no profile");
  const auto plan = MakePlan(driver.engine(), options);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code(), ErrorCode::kInvalidArgument);
}

// Without linear attention a draft token takes a step of one row, of many as of one.
TEST(DraftPlan, DraftTokensOneByOne_RunOnce) {
  for (const DraftingModel& source : testing::DraftingModels()) {
    if (source.at_once) continue;
    EngineDriver driver(source.model, source.Options(1));
    const auto seconds = [&](size_t num_draft_tokens) {
      return PlanOf(driver.engine(), source.Draft(num_draft_tokens), 1).drafts.draft_token_seconds;
    };
    EXPECT_EQ(seconds(16), seconds(1)) << source.name;
  }
}

// What is predicted of steps of the model's own layers is what they do: with linear attention each has all earlier draft tokens again, and of many
// one takes longer than of one.
TEST(DraftPlan, DraftTokensThatRunAgain_AreThoseOfLinearAttention) {
  size_t agains = 0;
  for (const auto& model : {testing::SmallContextModel(DType::kF32), testing::LoadHybrid("qwen3_next")}) {
    EngineDriver driver(model, {.threads = 1, .kv_policy = KvPolicy::kUpfront});
    Engine::Impl& impl = driver.engine().impl();
    for (const DraftSource source : {DraftSource::kLayers, DraftSource::kSparq}) {
      const DraftOptions draft{.num_draft_tokens = 4, .source = source, .layers = 1};
      const auto state = impl.NewState();
      const auto drafter = impl.NewDrafter(draft, 0, state.get());
      StepDrafter& steps = *StepDrafter::Of(drafter.get());
      const DraftForward on = steps.forward();
      const std::vector<int32_t> text = {7, 8};
      for (const int32_t id : text) steps.Append(id);
      const auto known = std::span(text).first(1);
      ASSERT_TRUE(state->Reserve(8).ok());
      const StepSequence first{.state = state.get(), .tokens = known, .rows = Wanted::kNothing};
      ASSERT_TRUE(impl.executor->Run(
          {&first, 1}, [](size_t, size_t, std::span<float>) {}, nullptr));
      state->Commit(testing::KeysOf(known));
      ASSERT_TRUE(state->Reserve(8).ok());
      steps.Begin(4);
      std::vector<size_t> rows;
      StepSequence step;
      while (steps.Next(on.executor->max_rows(), &step) == DraftNext::kStep) {
        rows.push_back(step.tokens.size());
        SequentialOrder order(on.num_layers);
        ASSERT_TRUE(on.executor->Run(
            {&step, 1}, [&](size_t, size_t row, std::span<float> logits) { steps.Choose(row, logits); }, nullptr,
            order));
        steps.Ran(0);
      }
      const bool again = SettingOf(impl, draft, 1, 0, 0).runs_draft_tokens_again;
      EXPECT_EQ(rows, again ? std::vector<size_t>({1, 2, 3, 4}) : std::vector<size_t>({1, 1, 1, 1}));
      agains += again ? 1U : 0U;
      const auto seconds = [&](size_t num_draft_tokens) {
        DraftOptions other = draft;
        other.num_draft_tokens = num_draft_tokens;
        return PlanOf(driver.engine(), other, 1).drafts.draft_token_seconds;
      };
      EXPECT_EQ(seconds(16) > seconds(1), again);
    }
  }
  EXPECT_EQ(agains, 2U);
}

// A draft token of a batch costs its share of the step that makes those of all: less than a step of its own.
TEST(DraftPlan, DraftTokensOfABatch_ShareTheirSteps) {
  for (const DraftingModel& source : testing::DraftingModels()) {
    EngineDriver driver(source.model, source.Options(8));
    std::vector<double> seconds;
    for (const size_t batch : {1, 2, 8})
      seconds.push_back(PlanOf(driver.engine(), source.Draft(4), batch).drafts.draft_token_seconds);
    EXPECT_LT(seconds[1], seconds[0]) << source.name;
    EXPECT_LT(seconds[2], seconds[1]) << source.name;
    EXPECT_GT(seconds[2], seconds[0] / 8) << source.name << ": a row takes some time, too";
  }
}

// A draft model that would read the prompt for longer than an answer can make up for is not used, and a warning says so; where draft tokens
// have to be made it is. Loops cost nothing here: in models as small as these they would be all that a step costs.
TEST(DraftPlan, DraftPrefillThatCannotPay_IsLeftOut) {
  size_t refused = 0, accepted = 0;
  for (const DraftingModel& source : testing::DraftingModels()) {
    const bool reads = source.draft_model != nullptr;
    EngineDriver driver(source.model, source.Options(1));
    Engine::Impl& impl = driver.engine().impl();
    impl.profile = ProfileOf(impl);
    for (OperationSeconds* operations : {&impl.profile->one, &impl.profile->all}) operations->loop = 0;
    const size_t context = impl.options.context;
    for (const size_t prompt : {size_t{2}, context / 2}) {
      DraftOptions draft = source.Draft(8);
      draft.min_draft_tokens = 0;
      const DraftPrefill draft_prefill =
          DraftPrefillOf(impl, *impl.profile, draft, SettingOf(impl, draft, prompt, 0, 0), prompt);
      EXPECT_EQ(draft_prefill.seconds > 0, reads) << source.name;
      EXPECT_TRUE(reads || draft_prefill.min_answer_tokens == 0U) << source.name;
      const auto trouble = [&](size_t max_new, size_t at_least) {
        draft.min_draft_tokens = at_least;
        const RequestId id =
            driver.Submit({.prompt = std::vector<int32_t>(prompt, 7),
                           .generation = {.max_new_tokens = static_cast<int>(max_new), .ignore_eos = true},
                           .draft = draft});
        driver.RunUntilIdle();
        return std::string(driver.outcome(id).stats.draft_trouble);
      };
      // More than the context holds counts as what it holds.
      for (const size_t max_new : {size_t{1}, size_t{5}, context / 4, context / 2 - 1, size_t{1} << 20}) {
        const size_t answer = std::min(max_new, context - prompt);
        const bool pays =
            answer <= 1 || (draft_prefill.min_answer_tokens && answer >= *draft_prefill.min_answer_tokens);
        const std::string why = trouble(max_new, 0);
        EXPECT_EQ(why.find("the draft prefill takes longer") == 0, !pays)
            << source.name << ", prompt " << prompt << ", " << max_new << " tokens: " << why;
        (pays ? accepted : refused) += reads ? 1U : 0U;
      }
      EXPECT_EQ(trouble(1, 1), "") << source.name;
    }
  }
  EXPECT_GT(refused, 5U);
  EXPECT_GT(accepted, 2U);
}

TEST(DraftPlan, ShorterContextOfTheDraftModel_IsWarnedOf) {
  const DraftingModel source = testing::DraftingModels().front();
  ASSERT_NE(source.draft_model, nullptr);
  const auto warnings = [&](int context) {
    DraftingModel changed = source;
    changed.draft_model =
        LoadModel("draft_plan", testing::BuildTinyLlama({.vocab = source.vocab, .context = context, .seed = 9}));
    EngineDriver driver(changed.model, changed.Options(1));
    const std::vector<std::string> all = PlanOf(driver.engine(), changed.Draft(8), 1).warnings;
    return std::count_if(all.begin(), all.end(), [](const std::string& warning) {
      return warning.find("the draft model's context has 40 tokens") != std::string::npos;
    });
  };
  EXPECT_EQ(warnings(40), 1);
  EXPECT_EQ(warnings(96), 0);
}

}  // namespace
}  // namespace tidemill::draft_plan_test
