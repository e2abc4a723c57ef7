#include "planner/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "planner/draft_costs.h"
#include "planner/growth_choice.h"
#include "planner/testing/round_numbers.h"

namespace tidemill::plan_test {
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
  input.increment = ChooseGrowthIncrement(input.context, input.model.state_row_bytes, input.state_memory);
  input.prefill_chunk = 512;
  input.threads = 2;
  input.memory = {.weights = 12'000'000, .kv_cache = 67'108'864, .work = 2'000'000, .free = 8'000'000'000};
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

Plan RoundPlan(const PlanInput& input) {
  Plan plan = ChoosePlan(input);
  plan.profile = {.cpu = "a CPU", .isa = "avx2", .threads = 2, .date = "2026-01-02", .source = "round numbers"};
  return plan;
}

// By hand: 8192 rows of 8192 bytes at 1 ns are 67.1 ms; two blocks copy and touch 4096 rows once more.
constexpr const char* kText = R"text(machine           a CPU, 2 threads, avx2
request           context size 8192, batch 1
memory            weights 12.0 MB + KV cache 67.1 MB + work 2.00 MB = 81.1 MB; fits in 8.00 GB free
decode            713 tokens/s at depth 0, 104 at 4096, 56.2 at 8191
prefill           121 tokens/s: 8192 tokens in 67.8 s

choice            chosen         cost      alternative    cost      cost is the time of
growth increment  8192 tokens    67.1 ms   4096 tokens    134 ms    growing to 8192 tokens
kv policy         bmc            67.1 ms   upfront        67.1 ms   growing to 8192 tokens
prefill chunk     512 tokens     67.8 s    256 tokens     67.8 s    a prompt of 8192 tokens
threads           2              9.59 ms   1              19.1 ms   a decode step at depth 4096
)text";

// 28 + 4 tokens a segment: 2.4 ms of products for 32 rows, 99 us of loops, 1.6 ms of elements and a loop, 2 * 528 us of attention. A diagonal
// of two layers has 128 lists of two cells where there are 254 cells.
PlanInput SegmentInput() {
  PlanInput input = RoundInput();
  input.model.weights = {{.dtype = DType::kQ8_0, .bytes = 10e6}};
  input.context = input.increment = 512;
  input.segments = SegmentPlan{.segment_tokens = 28,
                               .memory_tokens = 4,
                               .prompt_tokens = 28 * 127 + 5,
                               .whole_segments = 127,
                               .memory_bytes = 3'000'000};
  WaveInput waves;
  waves.layers = 2;
  waves.segment_tokens = 28;
  waves.memory_rows = 4;
  waves.pieces = 127;
  waves.threads = 2;
  waves.bytes = [](const WaveForm& form) { return 1'000'000 * form.in_flight; };
  input.segments->waves = ChooseWave(input.profile, input.model, waves);
  return input;
}

constexpr const char* kSegmentText = R"text(machine           a CPU, 2 threads, avx2
request           context size 3561, batch 1
memory            weights 12.0 MB + KV cache 67.1 MB + work 2.00 MB = 81.1 MB; fits in 8.00 GB free
decode            713 tokens/s at depth 0, 522 at 256, 413 at 511
prefill           5938 tokens/s: 3561 tokens in 600 ms

choice            chosen         cost      alternative    cost      cost is the time of
growth increment  512 tokens     4.19 ms   256 tokens     8.39 ms   growing to 512 tokens
kv policy         bmc            4.19 ms   upfront        4.19 ms   growing to 512 tokens
segment order     diagonal 2     600 ms    sequential     606 ms    a prompt of 3561 tokens
threads           2              1.91 ms   1              3.73 ms   a decode step at depth 256

segments          28 + 4 memory tokens; a state keeps at any length 3.00 MB of memory and 262 kB of the segment at hand
                  order                 a segment  prompt tokens/s   buffers
                  sequential              4.76 ms           5876.5   1.00 MB
                  diagonal 2              4.71 ms           5938.3   2.00 MB
                  teams 2 x 1             4.79 ms           5830.8   2.00 MB
                  diagonal 2, at most 424 segments at a time: it is predicted to save 1 % of the sequential order's time: threads wait for each other in 128 groups of cells, not in 254 cells
                  On a CPU all orders read the same bytes; an order decides how often threads wait for each other, and how many bytes come from a cache.

--verbose says why, and what draft tokens cost
)text";

TEST(Plan, Segments_HaveTheirOrders) {
  const Plan plan = RoundPlan(SegmentInput());
  ASSERT_TRUE(plan.segments);
  EXPECT_EQ(plan.context, 28U * 127 + 5);
  EXPECT_EQ(plan.decode.back().depth, 511U);  // within a segment
  const PredictedSegments& segments = *plan.segments;
  ASSERT_EQ(segments.orders.size(), 3U);
  EXPECT_EQ(segments.orders[0].name, "sequential");
  EXPECT_NEAR(segments.orders[0].segment_seconds, 2e-3 + 99e-6 + 1.6e-3 + 1e-6 + 2 * 528e-6, 1e-12);
  // The last five tokens, with logits: the same of a prompt.
  const double tail = PredictedCosts(SegmentInput().profile, SegmentInput().model).Prefill(5, 512);
  for (const PredictedSegments::Order& order : segments.orders)
    EXPECT_NEAR(order.prompt_seconds, 127 * order.segment_seconds + tail, 1e-12);
  EXPECT_EQ(segments.tail_bytes, 8192U * 32);
  EXPECT_EQ(segments.note, kWaveOrdersText);
  const Choice& order = Named(plan, "segment order");
  EXPECT_EQ(order.chosen.value, segments.chosen);
  EXPECT_EQ(order.reason, segments.reason);
  EXPECT_EQ(plan.prefill_seconds, order.chosen.cost);
  EXPECT_FALSE(order.runner_up_is_cheaper());
  EXPECT_EQ(PlanText(plan), kSegmentText);
}

// Longer than a wave may be: steps or one segment at a time.
TEST(Plan, SegmentLongerThanAWave_HasNoMates) {
  PlanInput input = SegmentInput();
  WaveInput waves;
  waves.segment_tokens = 2 * kMaxWaveTokens;
  waves.pieces = 9;
  waves.bytes = [](const WaveForm&) { return 1; };
  input.segments->waves = ChooseWave(input.profile, input.model, waves);
  const Plan plan = RoundPlan(input);
  EXPECT_EQ(plan.segments->chosen, "sequential");
  EXPECT_EQ(plan.segments->wave_segments, 0U);
  EXPECT_FALSE(Named(plan, "segment order").runner_up);
  EXPECT_THAT(PlanText(plan), HasSubstr("sequential, in steps: a segment takes "));
}

TEST(Plan, RoundNumbers_GiveTheKeptText) {
  const std::string text = kText;
  EXPECT_EQ(PlanText(RoundPlan(RoundInput())), text + "\n--verbose says why, and what draft tokens cost\n");
  EXPECT_EQ(PlanText(RoundPlan(RoundInput()), true), text + R"text(
numbers           round numbers, 2026-01-02
state memory      1.07 GB for the KV caches of all requests
KV cache          8.19 kB a token; at most 67.1 MB of unused capacity

growth increment  unused capacity costs no time, and its 67.1 MB at most are within the 134 MB that a sequence may leave unused
kv policy         the default; no policy that leaves as little unused grows faster
prefill chunk     the most whose step buffers take 32 MiB, unless --prefill-chunk says otherwise
threads           one for each core that may be used, unless --threads says otherwise

draft tokens      take no draft step, as of prompt lookup
                  drafted     one step  break-even acceptance rate
                        0      9.59 ms  -
                        1      17.9 ms  0.869
                        2      26.3 ms  0.910
                        3      34.6 ms  0.932
                        4      43.0 ms  0.945
                        5      51.3 ms  0.954
                        6      59.7 ms  0.960
                        7      68.0 ms  0.965
                        8      76.4 ms  0.969
                        9      84.8 ms  0.972
                       10      93.1 ms  0.975
                       11       102 ms  0.977
                       12       110 ms  0.979
                       13       118 ms  0.980
                       14       127 ms  0.981
                       15       135 ms  0.983
                       16       143 ms  0.983
                  acceptance rate  best number of draft tokens  one token
                              0.3                             0    9.59 ms
                              0.5                             0    9.59 ms
                              0.7                             0    9.59 ms
                              0.8                             0    9.59 ms
                              0.9                             1    9.44 ms
)text");
}

TEST(Plan, CheaperAlternative_IsNamedWithWhyItIsNotChosen) {
  PlanInput input = RoundInput();
  input.state_memory = uint64_t{1} << 26;
  input.increment = 1024;
  EXPECT_THAT(
      PlanText(RoundPlan(input)),
      HasSubstr(
          "\n--kv-policy reserve would save 470 ms; bmc is kept: the default; a layer's attention took 0.93 to 1.19 "
          "times as long with reserve\n"));
  // 1 % is nothing to speak of.
  const auto is_cheaper = [](double cost) {
    return Choice{.name = "", .chosen = {"a", 100}, .runner_up = Alternative{"b", cost}}.runner_up_is_cheaper();
  };
  EXPECT_FALSE(is_cheaper(99.5));
  EXPECT_TRUE(is_cheaper(98));
  const Choice alone{.name = "", .chosen = {"a", 100}};
  EXPECT_FALSE(alone.runner_up_is_cheaper());
}

TEST(Plan, Memory_IsWeightsAndKvCacheAndWork) {
  PlanInput input = RoundInput();
  const auto line = [&input] {
    const std::string text = PlanText(ChoosePlan(input));
    const size_t begin = text.find("memory ");
    return text.substr(begin, text.find("decode ") - begin);
  };
  input.memory = {.weights = 12'000'000, .kv_cache = 67'000'000, .work = 1'000'000};
  EXPECT_EQ(line(), "memory            weights 12.0 MB + KV cache 67.0 MB + work 1.00 MB = 80.0 MB\n");
  input.memory.free = 80'000'000;
  EXPECT_THAT(line(), HasSubstr("= 80.0 MB; fits in 80.0 MB free\n"));
  input.memory.free = 79'999'999;
  EXPECT_THAT(line(), HasSubstr("; does not fit in 80.0 MB free\n"));
  input.batch = 2;
  EXPECT_EQ(ChoosePlan(input).memory.unused_capacity, 2 * 8191 * 8192U);
  input.state_memory = 40'000'000;
  EXPECT_THAT(
      line(),
      HasSubstr("\n                  the KV cache is larger than --state-memory, 40.0 MB: some sequences will wait\n"));
  input.state_memory = 30'000'000;
  EXPECT_THAT(line(), HasSubstr(": one sequence of this context size is refused\n"));
  input.memory.kv_cache = UINT64_MAX;
  EXPECT_EQ(ChoosePlan(input).memory.total(), UINT64_MAX);
}

TEST(Plan, GrowthIncrement_SaysWhy) {
  PlanInput input = RoundInput();
  const auto reason = [&input] { return Named(ChoosePlan(input), "growth increment").reason; };
  EXPECT_THAT(reason(), HasSubstr("its 67.1 MB at most are within the 134 MB"));
  input.state_memory = uint64_t{1} << 26;  // 1024 rows
  input.increment = ChooseGrowthIncrement(8192, 8192, input.state_memory);
  EXPECT_EQ(input.increment, 1024U);
  EXPECT_THAT(reason(), HasSubstr("a larger increment may leave more than 8.39 MB of a sequence unused"));
  input.increment_given = true;
  EXPECT_EQ(reason(), "given by --kv-increment");
  input.increment = 300;
  const Choice choice = Named(ChoosePlan(input), "growth increment");
  EXPECT_EQ(choice.runner_up->value, "1024 tokens");  // what the rule says
  EXPECT_EQ(choice.option, "--kv-increment 1024");
  input.increment_given = false;
  input.model.state_row_bytes = 0;
  EXPECT_THAT(reason(), HasSubstr("every layer has a window"));
  input.policy = KvPolicy::kReserve;
  EXPECT_THAT(reason(), HasSubstr("the default"));
  EXPECT_FALSE(Named(ChoosePlan(input), "growth increment").runner_up.has_value());
}

TEST(Plan, Policy_SaysWhy) {
  PlanInput input = RoundInput();
  const auto choice = [&input] { return Named(ChoosePlan(input), "kv policy"); };
  EXPECT_EQ(choice().reason, "the default; no policy that leaves as little unused grows faster");
  input.increment = 300;
  input.increment_given = true;
  EXPECT_EQ(choice().runner_up->value, "upfront");
  EXPECT_EQ(choice().reason, "the default; upfront allocates more than a short answer needs");
  input.policy = KvPolicy::kIterative;
  EXPECT_EQ(choice().chosen.value, "iterative");
  EXPECT_EQ(choice().runner_up->value, "upfront");  // with reserve the same time
  EXPECT_EQ(choice().option, "--kv-policy upfront");
  EXPECT_LT(choice().runner_up->cost, choice().chosen.cost);
  EXPECT_EQ(choice().reason, "given by --kv-policy");
}

TEST(Plan, Policies_WithTooMuchUnusedCapacityAreNoAlternatives) {
  PlanInput input = RoundInput();
  const auto other = [&input] { return Named(ChoosePlan(input), "kv policy").runner_up->value; };
  input.state_memory = uint64_t{1} << 26;
  input.increment = 1024;
  EXPECT_EQ(other(), "reserve");
  input.state_memory = uint64_t{1} << 23;  // 128 rows may be unused; reserve would have 256
  input.increment = 128;
  EXPECT_EQ(other(), "iterative");
  input.state_memory = 1;  // not even a row
  input.increment = 1;
  EXPECT_EQ(other(), "iterative");
}

TEST(Plan, LinearForm_StandsBesideTheRecurrentOneAndThatBesideTheBest) {
  PlanInput input = RoundInput();
  for (const Choice& choice : ChoosePlan(input).choices) EXPECT_NE(choice.name, "linear form");
  input.model.linear = {
      .layers = 3,
      .shape = {
          .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .form = {.start = 8, .period = 8}}};
  const Plan plan = ChoosePlan(input);
  EXPECT_EQ(Named(plan, "linear form").chosen.value, "buffered 8");
  EXPECT_EQ(Named(plan, "linear form").runner_up->value, "recurrent");
  EXPECT_EQ(Named(plan, "linear form").option, "--linear-form recurrent");
  EXPECT_FALSE(Named(plan, "linear form").runner_up_is_cheaper());
  EXPECT_THAT(Named(plan, "linear form").reason, HasSubstr("by the model's shape; a write costs 1.00 of a read"));
  input.model.linear.shape.form = {.start = 128, .period = 16};
  input.linear_given = true;
  EXPECT_EQ(Named(ChoosePlan(input), "linear form").chosen.value, "kv 128");
  EXPECT_THAT(Named(ChoosePlan(input), "linear form").reason, HasSubstr("given"));
  input.model.linear.shape.form = {};
  const Plan recurrent = ChoosePlan(input);
  EXPECT_EQ(Named(recurrent, "linear form").chosen.value, "recurrent");
  EXPECT_EQ(Named(recurrent, "linear form").runner_up->value, "buffered 13");  // sqrt(2 S / e), w = 1
  EXPECT_EQ(Named(recurrent, "linear form").option, "--linear-buffer 13");
  EXPECT_TRUE(Named(recurrent, "linear form").runner_up_is_cheaper());
}

TEST(Plan, Attention_StandsBesideWhatIsSparseAndThatBesideDense) {
  PlanInput input = RoundInput();
  for (const Choice& choice : ChoosePlan(input).choices) EXPECT_NE(choice.name, "attention");
  input.other_attention = input.model.attention;
  input.other_attention.front().sparse = {.kind = SparseKind::kSparq, .r = 16, .k = 128, .local = 32};
  const Plan dense = ChoosePlan(input);
  EXPECT_EQ(Named(dense, "attention").chosen.value, "dense");
  EXPECT_EQ(Named(dense, "attention").runner_up->value, "sparq r 16 k 128");
  EXPECT_EQ(Named(dense, "attention").option, "--attention sparq");
  EXPECT_TRUE(Named(dense, "attention").runner_up_is_cheaper());
  EXPECT_THAT(Named(dense, "attention").reason, HasSubstr("exact"));
  input.model.attention = input.other_attention;
  const Plan sparse = ChoosePlan(input);
  EXPECT_EQ(Named(sparse, "attention").chosen.value, "sparq r 16 k 128");
  EXPECT_EQ(Named(sparse, "attention").runner_up->value, "dense");
  EXPECT_EQ(Named(sparse, "attention").option, "--attention dense");
  EXPECT_EQ(Named(sparse, "attention").chosen.cost, Named(dense, "attention").runner_up->cost);
  EXPECT_EQ(Named(sparse, "attention").runner_up->cost, Named(dense, "attention").chosen.cost);
  EXPECT_LT(sparse.decode.back().seconds, dense.decode.back().seconds);
}

TEST(Plan, AttentionByAuto_SaysWhatDecided) {
  PlanInput input = RoundInput();
  input.other_attention = input.model.attention;
  input.other_attention.front().sparse = {.kind = SparseKind::kSparq, .r = 16, .k = 128, .local = 32};
  input.attention_reason = "--attention auto: few positions";
  EXPECT_EQ(Named(ChoosePlan(input), "attention").reason, "chosen by --attention auto: few positions");
  EXPECT_THAT(PlanText(ChoosePlan(input)), HasSubstr("; dense is kept: chosen by --attention auto: few positions\n"));
  input.model.attention = input.other_attention;
  EXPECT_EQ(Named(ChoosePlan(input), "attention").reason,
            "chosen by --attention auto: few positions; it is approximate, --attention-audit says by how much");
}

TEST(Plan, Attention_CountsEachLayerAsItReads) {
  PlanInput input = RoundInput();
  input.model.attention.front().sparse = {.kind = SparseKind::kSparq, .r = 16, .k = 128, .local = 32};
  const Plan all = ChoosePlan(input);
  AttentionLayers& group = input.model.attention.front();
  group.layers = 1;
  const AttentionLayers dense{.layers = 1, .shape = group.shape};
  input.model.attention.push_back(dense);
  const Plan half = ChoosePlan(input);
  EXPECT_EQ(Named(half, "attention").chosen.value, "sparq r 16 k 128");
  EXPECT_NEAR(Named(half, "attention").chosen.cost,
              (Named(all, "attention").chosen.cost + Named(all, "attention").runner_up->cost) / 2, 1e-12);
  EXPECT_EQ(Named(half, "attention").runner_up->cost, Named(all, "attention").runner_up->cost);
  EXPECT_GT(half.decode.back().seconds, all.decode.back().seconds);
}

TEST(Plan, Attention_IsDenseInFrontOfItsFirstSparsePosition) {
  PlanInput input = RoundInput();
  const Plan dense = ChoosePlan(input);
  input.model.attention.front().sparse = {.kind = SparseKind::kSparq, .r = 16, .k = 128, .local = 32};
  const Plan sparse = ChoosePlan(input);
  input.model.sparse_from = 5000;
  const Plan plan = ChoosePlan(input);
  const Choice& choice = Named(plan, "attention");
  EXPECT_EQ(choice.chosen.value, "sparq r 16 k 128");
  EXPECT_EQ(choice.chosen.cost, choice.runner_up->cost);
  EXPECT_THAT(choice.reason, HasSubstr("; rows before position 5000 are dense"));
  EXPECT_EQ(plan.decode[1].seconds, dense.decode[1].seconds);  // at 4096
  EXPECT_EQ(plan.decode[2].seconds, sparse.decode[2].seconds);
  EXPECT_LT(plan.prefill_seconds, sparse.prefill_seconds);
  input.model.sparse_from = 9000;
  EXPECT_EQ(ChoosePlan(input).decode[2].seconds, dense.decode[2].seconds);
  EXPECT_EQ(ChoosePlan(input).prefill_seconds, dense.prefill_seconds);
}

TEST(Plan, OneThread_HasTheCostsOfOne) {
  PlanInput input = RoundInput();
  const double two = ChoosePlan(input).decode[0].seconds;
  input.threads = 1;
  EXPECT_GT(ChoosePlan(input).decode[0].seconds, 1.5 * two);
}

// Steps of 1 + g / 8 seconds, a draft token in a sixteenth.
DraftPlan RoundDrafts() {
  DraftPlan drafts{.is_planned = true, .num_draft_tokens = 8};
  for (size_t g = 0; g < drafts.costs.step_seconds.size(); ++g)
    drafts.costs.step_seconds[g] = 1 + static_cast<double>(g) / 8;
  drafts.costs.draft_token_seconds = 1.0 / 16;
  return drafts;
}

TEST(Plan, DraftTokens_AreTheBestNumberAtAnAcceptanceRateOfOneHalf) {
  PlanInput input = RoundInput();
  EXPECT_EQ(ChoosePlan(input).choices.size(), 4U) << "nothing is chosen where no drafter is named";
  input.drafts = RoundDrafts();
  const auto width = [&input] { return Named(ChoosePlan(input), "draft tokens"); };
  // Seconds a token: 1, 1.1875 / 1.5, 1.375 / 1.75, 1.5625 / 1.875.
  EXPECT_EQ(width().chosen.value, "2");
  EXPECT_DOUBLE_EQ(width().chosen.cost, 1.375 / 1.75);
  EXPECT_EQ(width().runner_up->value, "1");
  EXPECT_DOUBLE_EQ(width().runner_up->cost, 1.1875 / 1.5);
  EXPECT_THAT(width().reason, HasSubstr("at first; then by the measured acceptance rate"));
  input.drafts.min_draft_tokens = 3;
  EXPECT_EQ(width().chosen.value, "3");
  EXPECT_EQ(width().runner_up->value, "4");
  EXPECT_THAT(width().reason, HasSubstr("one more is predicted to cost more than it brings"));
  input.drafts.num_draft_tokens = 3;
  EXPECT_FALSE(width().runner_up.has_value());
  EXPECT_EQ(width().reason, "given by --draft-min and --draft-max");
  input.drafts = RoundDrafts();
  input.drafts.costs.draft_token_seconds = 1;  // a draft model as dear as the model
  EXPECT_EQ(width().chosen.value, "0");
  EXPECT_EQ(width().runner_up->value, "1");
  input.drafts.order =
      DraftOrder::kAtOnce;  // all of them for that: 1, 2.125 / 1.5, 2.25 / 1.75, 2.375 / 1.875, 2.5 / 1.9375
  EXPECT_EQ(width().chosen.value, "0");
  EXPECT_EQ(width().runner_up->value, "3");
}

TEST(Plan, Drafts_HaveStepsOf17RowsAndTheBestNumbers) {
  PlanInput input = RoundInput();
  input.drafts = RoundDrafts();
  input.drafts.prefill = {.seconds = 2, .min_answer_tokens = 77};
  const PredictedDrafts drafts = ChoosePlan(input).drafts;
  EXPECT_TRUE(drafts.is_planned);
  EXPECT_EQ(drafts.draft_prefill_seconds, 2);
  EXPECT_EQ(drafts.min_answer_tokens, 77U);
  EXPECT_THAT(PlanText(ChoosePlan(input), true),
              HasSubstr("draft prefill     2.00 s for half the context; pays in answers of at least 77 tokens"));
  input.drafts.prefill.min_answer_tokens.reset();
  EXPECT_THAT(PlanText(ChoosePlan(input), true), HasSubstr("no answer is long enough to make up for it"));
  EXPECT_EQ(drafts.draft_token_seconds, 1.0 / 16);
  ASSERT_EQ(drafts.steps.size(), 17U);
  EXPECT_FALSE(drafts.steps[0].break_even.has_value());
  EXPECT_NEAR(drafts.steps[1].break_even.value_or(-1), 3.0 / 16, 1e-9);  // 1 + a = 1.1875
  EXPECT_EQ(drafts.steps[16].seconds, 3);
  EXPECT_GT(drafts.steps[16].break_even.value_or(-1), 0.7);  // four tokens
  ASSERT_EQ(drafts.best.size(), 5U);
  EXPECT_EQ(drafts.best[1].acceptance_rate, 0.5);
  EXPECT_EQ(drafts.best[1].num_draft_tokens, 2U);
  for (size_t i = 1; i < 5; ++i) EXPECT_GE(drafts.best[i].num_draft_tokens, drafts.best[i - 1].num_draft_tokens);
  EXPECT_LE(drafts.best[4].num_draft_tokens, 8U) << "at most --draft-max";
  EXPECT_THAT(PlanText(ChoosePlan(input), true), HasSubstr("draft tokens      one takes 62.5 ms"));
}

TEST(Plan, SmallestOfAll_HasNoAlternativeWhereThereIsNone) {
  PlanInput input = RoundInput();
  input.context = input.increment = input.prefill_chunk = input.threads = 1;
  const Plan plan = ChoosePlan(input);
  EXPECT_FALSE(Named(plan, "growth increment").runner_up.has_value());
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
    input.increment_given = random() % 2 == 0;
    input.increment = 1 + random() % input.context;
    input.prefill_chunk = 1 + random() % 8192;
    input.threads = 1 + random() % 4;
    input.memory = {.weights = random() % 1'000'000, .kv_cache = random(), .work = 1, .free = random()};
    const bool drafts = random() % 2 == 0;
    if (drafts) input.drafts = RoundDrafts();
    const Plan plan = ChoosePlan(input);
    ASSERT_EQ(plan.choices.size(), drafts ? 5U : 4U);
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
    const std::string text = PlanText(plan);
    ASSERT_LE(std::count(text.begin(), text.end(), '\n'), 20) << text;
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
}  // namespace tidemill::plan_test
