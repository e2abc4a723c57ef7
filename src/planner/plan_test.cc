#include "planner/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "planner/draft_costs.h"
#include "planner/growth_choice.h"
#include "planner/testing/round_numbers.h"

namespace tidemill {
namespace {

using ::testing::HasSubstr;
using testing::RoundModel;
using testing::RoundProfile;

PlanInput RoundInput() {
  PlanInput input;
  input.profile = RoundProfile();
  input.model = RoundModel();
  input.context = 8192;
  input.batch = 1;
  input.state_memory = uint64_t{1} << 30;
  input.period = ChooseExactPeriod(input.context, input.model.state_row_bytes, input.state_memory);
  input.prefill_chunk = 512;
  input.threads = 2;
  input.drafts.costs =
      PredictDraftCosts(PredictedCosts(input.profile, input.model), nullptr, {.depth = input.context / 2});
  return input;
}

const Choice& Named(const Plan& plan, const std::string& name) {
  for (const Choice& choice : plan.choices) {
    if (choice.name == name) return choice;
  }
  ADD_FAILURE() << "no choice " << name;
  return plan.choices.front();
}

TEST(Plan, RoundNumbers_GiveTheKeptText) {
  Plan plan = ChoosePlan(RoundInput());
  plan.profile = {.cpu = "a CPU", .isa = "avx2", .threads = 2, .date = "2026-01-02", .source = "round numbers"};
  // By hand: 8192 rows of 8192 bytes at 1 ns are 67.1 ms; two blocks copy and touch 4096 rows once more.
  EXPECT_EQ(PlanText(plan), R"text(machine             a CPU, 2 threads, avx2
numbers             round numbers, 2026-01-02
asked for           context 8192, batch 1, 1.07 GB of state memory, 8.19 kB of state a position

growth period       8192 rows: 67.1 ms; runner-up 4096 rows: 134 ms
                    cost of growing to the whole context
                    no spare row is ever read, so that a longer period costs no time, and its spare rows take at most 67.1 MB of the 134 MB allowed for those of a sequence
kv policy           bmc: 67.1 ms; runner-up upfront: 67.1 ms
                    cost of growing to the whole context
                    none whose spare rows are within what is allowed is predicted to take less time
prefill chunk       512 rows: 67.8 s; runner-up 256 rows: 67.8 s
                    cost of a prompt as long as the context
                    weights are read once a chunk, and a step's buffers grow with its rows; --prefill-chunk names another
threads             2: 9.59 ms; runner-up 1: 19.1 ms
                    cost of a decode step at half the context
                    one for each core that may be used, or as many as were asked for

predicted           decode at depth 0: 1.40 ms a step, 713 tokens/s
                    decode at depth 4096: 9.59 ms a step, 104 tokens/s
                    decode at depth 8191: 17.8 ms a step, 56.2 tokens/s
                    prefill of 8192 tokens: 67.8 s, 121 tokens/s
drafts              a guess takes no step of its own, as of prompt lookup
                    1 row: 9.59 ms a step
                    2 rows: 17.9 ms a step, pays where 86.9 % of the guesses are right
                    3 rows: 26.3 ms a step, pays where 91.0 % of the guesses are right
                    4 rows: 34.6 ms a step, pays where 93.2 % of the guesses are right
                    5 rows: 43.0 ms a step, pays where 94.5 % of the guesses are right
                    6 rows: 51.3 ms a step, pays where 95.4 % of the guesses are right
                    7 rows: 59.7 ms a step, pays where 96.0 % of the guesses are right
                    8 rows: 68.0 ms a step, pays where 96.5 % of the guesses are right
                    9 rows: 76.4 ms a step, pays where 96.9 % of the guesses are right
                    10 rows: 84.8 ms a step, pays where 97.2 % of the guesses are right
                    11 rows: 93.1 ms a step, pays where 97.5 % of the guesses are right
                    12 rows: 102 ms a step, pays where 97.7 % of the guesses are right
                    13 rows: 110 ms a step, pays where 97.9 % of the guesses are right
                    14 rows: 118 ms a step, pays where 98.0 % of the guesses are right
                    15 rows: 127 ms a step, pays where 98.1 % of the guesses are right
                    16 rows: 135 ms a step, pays where 98.3 % of the guesses are right
                    17 rows: 143 ms a step, pays where 98.3 % of the guesses are right
                    30 % right: 0 guesses, 9.59 ms a token
                    50 % right: 0 guesses, 9.59 ms a token
                    70 % right: 0 guesses, 9.59 ms a token
                    80 % right: 0 guesses, 9.59 ms a token
                    90 % right: 1 guess, 9.44 ms a token
)text");
}

TEST(Plan, GrowthPeriod_SaysWhy) {
  PlanInput input = RoundInput();
  const auto reason = [&input] { return Named(ChoosePlan(input), "growth period").reason; };
  EXPECT_THAT(reason(), HasSubstr("its spare rows take at most 67.1 MB of the 134 MB allowed"));
  input.state_memory = uint64_t{1} << 26;  // 1024 rows
  input.period = ChooseExactPeriod(8192, 8192, input.state_memory);
  EXPECT_EQ(input.period, 1024U);
  EXPECT_THAT(reason(), HasSubstr("a longer one would take more than the 8.39 MB allowed"));
  input.period_given = true;
  EXPECT_EQ(reason(), "given by --kv-period");
  input.period = 300;
  EXPECT_EQ(Named(ChoosePlan(input), "growth period").runner_up->value, "1024 rows");  // what the rule says
  input.period_given = false;
  input.model.state_row_bytes = 0;
  EXPECT_THAT(reason(), HasSubstr("every layer has a window"));
  input.policy = KvPolicy::kReserve;
  EXPECT_THAT(reason(), HasSubstr("the default"));
  EXPECT_FALSE(Named(ChoosePlan(input), "growth period").runner_up.has_value());
}

TEST(Plan, Policy_ThatLosesIsSaid) {
  PlanInput input = RoundInput();
  input.policy = KvPolicy::kIterative;
  const Plan plan = ChoosePlan(input);
  const Choice& choice = Named(plan, "kv policy");
  EXPECT_EQ(choice.chosen.value, "iterative");
  ASSERT_TRUE(choice.runner_up.has_value());
  EXPECT_EQ(choice.runner_up->value, "upfront");  // with bmc of one period and reserve the same time
  EXPECT_LT(choice.runner_up->cost, choice.chosen.cost);
  EXPECT_THAT(choice.reason, HasSubstr("upfront is predicted to save "));
}

TEST(Plan, Policies_WhoseSpareRowsAreTooManyAreNoRunnersUp) {
  PlanInput input = RoundInput();
  input.state_memory = uint64_t{1} << 26;
  input.period = 1024;
  EXPECT_EQ(Named(ChoosePlan(input), "kv policy").runner_up->value, "reserve");
  input.state_memory = uint64_t{1} << 23;  // 128 rows may be spare; reserve would have 256
  input.period = 128;
  EXPECT_EQ(Named(ChoosePlan(input), "kv policy").runner_up->value, "iterative");
  input.state_memory = 1;  // not even a row
  input.period = 1;
  EXPECT_EQ(Named(ChoosePlan(input), "kv policy").runner_up->value, "iterative");
}

TEST(Plan, OneThread_HasTheCostsOfOne) {
  PlanInput input = RoundInput();
  const double two = ChoosePlan(input).decode[0].seconds;
  input.threads = 1;
  EXPECT_GT(ChoosePlan(input).decode[0].seconds, 1.5 * two);
}

// Steps of 1 + g / 8 seconds, a guess in a sixteenth.
DraftPlan RoundDrafts() {
  DraftPlan drafts{.is_planned = true, .most = 8};
  for (size_t g = 0; g < drafts.costs.step_seconds.size(); ++g)
    drafts.costs.step_seconds[g] = 1 + static_cast<double>(g) / 8;
  drafts.costs.guess_seconds = 1.0 / 16;
  return drafts;
}

TEST(Plan, DraftWidth_IsTheBestWhereHalfIsRight) {
  PlanInput input = RoundInput();
  EXPECT_EQ(ChoosePlan(input).choices.size(), 4U) << "nothing is chosen where no drafter is named";
  input.drafts = RoundDrafts();
  const auto width = [&input] { return Named(ChoosePlan(input), "draft width"); };
  // Seconds a token: 1, 1.1875 / 1.5, 1.375 / 1.75, 1.5625 / 1.875.
  EXPECT_EQ(width().chosen.value, "2 guesses");
  EXPECT_DOUBLE_EQ(width().chosen.cost, 1.375 / 1.75);
  EXPECT_EQ(width().runner_up->value, "1 guess");
  EXPECT_DOUBLE_EQ(width().runner_up->cost, 1.1875 / 1.5);
  EXPECT_THAT(width().reason, HasSubstr("where a request starts"));
  input.drafts.least = 3;
  EXPECT_EQ(width().chosen.value, "3 guesses");
  EXPECT_EQ(width().runner_up->value, "4 guesses");
  EXPECT_THAT(width().reason, HasSubstr("is predicted to cost more than it brings"));
  input.drafts.most = 3;
  EXPECT_FALSE(width().runner_up.has_value());
  EXPECT_EQ(width().reason, "given by --draft-min and --draft-max");
  input.drafts = RoundDrafts();
  input.drafts.costs.guess_seconds = 1;  // a draft model as dear as the model
  EXPECT_EQ(width().chosen.value, "none");
  EXPECT_EQ(width().runner_up->value, "1 guess");
  input.drafts.order =
      GuessOrder::kAtOnce;  // all of them for that: 1, 2.125 / 1.5, 2.25 / 1.75, 2.375 / 1.875, 2.5 / 1.9375
  EXPECT_EQ(width().chosen.value, "none");
  EXPECT_EQ(width().runner_up->value, "3 guesses");
}

TEST(Plan, Drafts_HaveStepsOf17RowsAndTheBestWidths) {
  PlanInput input = RoundInput();
  input.drafts = RoundDrafts();
  input.drafts.reading = {.seconds = 2, .least_answer = 77};
  const PredictedDrafts drafts = ChoosePlan(input).drafts;
  EXPECT_TRUE(drafts.is_planned);
  EXPECT_EQ(drafts.reading_seconds, 2);
  EXPECT_EQ(drafts.least_answer, 77U);
  EXPECT_THAT(PlanText(ChoosePlan(input)),
              HasSubstr("half the context is read in 2.00 s: answers of at least 77 tokens"));
  input.drafts.reading.least_answer.reset();
  EXPECT_THAT(PlanText(ChoosePlan(input)), HasSubstr("no answer can make up for that"));
  EXPECT_EQ(drafts.guess_seconds, 1.0 / 16);
  ASSERT_EQ(drafts.steps.size(), 17U);
  EXPECT_FALSE(drafts.steps[0].break_even.has_value());
  EXPECT_NEAR(drafts.steps[1].break_even.value_or(-1), 3.0 / 16, 1e-9);  // 1 + a = 1.1875
  EXPECT_EQ(drafts.steps[16].seconds, 3);
  EXPECT_GT(drafts.steps[16].break_even.value_or(-1), 0.7);  // four tokens
  ASSERT_EQ(drafts.widths.size(), 5U);
  EXPECT_EQ(drafts.widths[1].share, 0.5);
  EXPECT_EQ(drafts.widths[1].guesses, 2U);
  for (size_t i = 1; i < 5; ++i) EXPECT_GE(drafts.widths[i].guesses, drafts.widths[i - 1].guesses);
  EXPECT_LE(drafts.widths[4].guesses, 8U) << "at most --draft-max";
  EXPECT_THAT(PlanText(ChoosePlan(input)), HasSubstr("a guess takes 62.5 ms"));
}

TEST(Plan, SmallestOfAll_HasNoRunnerUpWhereThereIsNone) {
  PlanInput input = RoundInput();
  input.context = input.period = input.prefill_chunk = input.threads = 1;
  const Plan plan = ChoosePlan(input);
  EXPECT_FALSE(Named(plan, "growth period").runner_up.has_value());
  EXPECT_FALSE(Named(plan, "threads").runner_up.has_value());
  ASSERT_EQ(plan.decode.size(), 1U);
  EXPECT_EQ(plan.decode[0].depth, 0U);
}

TEST(Plan, AnyInput_GivesFiniteCostsAndOneLineReasons) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 500; ++i) {
    PlanInput input = RoundInput();
    input.profile = NearestBuiltIn(Isa::kBaseline, 1, "");
    input.context = 1 + random() % (size_t{1} << (random() % 21));
    input.batch = 1 + random() % 64;
    input.state_memory = random() % (uint64_t{1} << (random() % 45));
    input.model.state_row_bytes = random() % 3 == 0 ? 0 : random() % 1'000'000;
    input.policy = static_cast<KvPolicy>(random() % 6);
    input.period_given = random() % 2 == 0;
    input.period = 1 + random() % input.context;
    input.prefill_chunk = 1 + random() % 8192;
    input.threads = 1 + random() % 4;
    const Plan plan = ChoosePlan(input);
    ASSERT_EQ(plan.choices.size(), 4U);
    for (const Choice& choice : plan.choices) {
      SCOPED_TRACE(choice.name + ", context " + std::to_string(input.context));
      ASSERT_TRUE(std::isfinite(choice.chosen.cost) && choice.chosen.cost >= 0);
      ASSERT_FALSE(choice.chosen.value.empty() || choice.of.empty() || choice.reason.empty());
      ASSERT_EQ(choice.reason.find('\n'), std::string::npos);
      if (!choice.runner_up) continue;
      ASSERT_TRUE(std::isfinite(choice.runner_up->cost) && choice.runner_up->cost >= 0);
      ASSERT_NE(choice.runner_up->value, choice.chosen.value);
    }
    ASSERT_TRUE(std::isfinite(plan.prefill_seconds));
    ASSERT_FALSE(PlanText(plan).empty());
  }
}

TEST(QuantityText, HasThreeDigits) {
  EXPECT_EQ(SecondsText(1.234), "1.23 s");
  EXPECT_EQ(SecondsText(0.01234), "12.3 ms");
  EXPECT_EQ(SecondsText(0.00099999), "1.00 ms");
  EXPECT_EQ(SecondsText(123.4e-6), "123 us");
  EXPECT_EQ(SecondsText(5e-9), "5.00 ns");
  EXPECT_EQ(SecondsText(12345), "12345 s");
  EXPECT_EQ(BytesText(999), "999 B");
  EXPECT_EQ(BytesText(23040), "23.0 kB");
  EXPECT_EQ(BytesText(917e6), "917 MB");
  EXPECT_EQ(BytesText(1.5e12), "1500 GB");
}

}  // namespace
}  // namespace tidemill
