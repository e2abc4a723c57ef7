// What plan and bench say of a recurrent-memory model, and that the engine does it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine_impl.h"
#include "runtime/model_numbers.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/drafting_models.h"
#include "tests/support/engine_driver.h"
#include "tests/support/model_runner.h"
#include "tests/support/recurrent_model.h"
#include "tests/support/tiny_tokenizer_json.h"
#include "tidemill/measure.h"
#include "tidemill/plan.h"

namespace tidemill::segment_plan_test {
namespace {

using testing::EngineDriver;
using ::testing::HasSubstr;
using testing::Recurrent;

constexpr size_t kSegment = 7, kMemory = 3, kLayers = 5, kHidden = 40, kFeatures = 36,
                 kPositions = 64;  // of the fixture

// With a profile that cannot be read nothing is measured, and every number is one of the program's own.
Plan PlanOf(EngineDriver& driver) {
  PlanOptions options;
  options.cpu = "a CPU";
  options.profile_path = testing::WriteTemporary("segment_plan.json", "no profile");
  auto plan = MakePlan(driver.engine(), options);
  EXPECT_TRUE(plan.ok()) << plan.error().message();
  return std::move(plan).value();
}

TEST(SegmentPlan, Numbers_AreThoseOfTheModel) {
  for (const size_t context : {size_t{1}, size_t{7}, size_t{8}, size_t{100}, size_t{1} << 24}) {
    EngineDriver driver(Recurrent(), {.threads = 2, .context = context});
    const Plan plan = PlanOf(driver);
    ASSERT_TRUE(plan.segments) << context;
    const PredictedSegments& segments = *plan.segments;
    EXPECT_EQ(segments.segment_tokens, kSegment);
    EXPECT_EQ(segments.memory_tokens, kMemory);
    EXPECT_EQ(segments.prompt_tokens, context);
    EXPECT_EQ(segments.whole_segments, (context - 1) / kSegment);
    EXPECT_EQ(segments.memory_bytes, kLayers * kFeatures * (kHidden + 1) * 4);
    EXPECT_EQ(segments.tail_bytes, (kSegment + kMemory) * plan.state_row_bytes);
    EXPECT_EQ(segments.orders.front().name, "sequential");
    EXPECT_EQ(segments.orders.size() > 1, context > 2 * kSegment) << context;
    EXPECT_LT(plan.decode.back().depth, kPositions);
    for (const PredictedSegments::Order& order : segments.orders) EXPECT_GT(order.prompt_seconds, 0.0) << order.name;
    EXPECT_EQ(plan.prefill_seconds, plan.choices[2].chosen.cost);
    EXPECT_THAT(PlanText(plan), HasSubstr(segments.note));
  }
  // A state takes the same at any length.
  EngineDriver few(Recurrent(), {.threads = 1, .context = 100}), many(Recurrent(), {.threads = 1});
  EXPECT_EQ(PlanOf(few).memory.kv_cache, PlanOf(many).memory.kv_cache);
}

// Every weight counts once: for all rows, for memory rows, or in the last layer that runs for rows that are read.
TEST(SegmentPlan, Weights_CountForTheRowsThatNeedThem) {
  const LanguageModel& model = *Recurrent()->impl().language_model;
  const auto bytes_of = [](const std::vector<WeightGroup>& groups) {
    double bytes = 0;
    for (const WeightGroup& group : groups) bytes += group.experts * group.bytes;
    return bytes;
  };
  double all = 0, memory = 0, outputs = 0;
  for (const DecoderLayer& layer : model.layers) {
    layer.ForEachWeight([&](const WeightUse& use) {
      const bool is_of_outputs = use.of_outputs && &layer == &model.layers.back();
      const auto bytes = static_cast<double>(use.linear.weight.packed_bytes());
      (use.of_memory_rows ? memory : is_of_outputs ? outputs : all) += bytes;
    });
  }
  const ModelNumbers numbers = NumbersOf(model, DType::kF16);
  EXPECT_EQ(bytes_of(numbers.outputs), outputs);
  EXPECT_EQ(bytes_of(numbers.memory), memory);
  EXPECT_EQ(bytes_of(numbers.weights), all + static_cast<double>(kLayers * model.segments.shape.memory.bytes()));
  EXPECT_GT(outputs, 0.0);
  EXPECT_GT(memory, 0.0);
  EXPECT_EQ(bytes_of(NumbersOf(model, DType::kF16, kLayers - 1).outputs), outputs);  // an early exit
}

TEST(SegmentPlan, Engine_RunsTheOrderThatThePlanSays) {
  constexpr size_t kTokens = 200;
  for (const size_t threads : {1, 2}) {
    EngineDriver driver(Recurrent(), {.threads = threads, .context = kTokens, .cpu = "a CPU"});
    const PredictedSegments segments = *PlanOf(driver).segments;
    std::vector<int32_t> prompt(kTokens - 1, 5);
    driver.Run(prompt, {.max_new_tokens = 1});
    const EngineWaves& waves = driver.engine().impl().waves;
    EXPECT_EQ(waves.wave == nullptr, segments.wave_segments == 0);
    EXPECT_EQ(waves.wave == nullptr ? "sequential" : WaveFormName(waves.form), segments.chosen);
  }
}

TEST(SegmentBench, Prefill_RunsWavesAndDecodeGoesOnBehindThem) {
  EXPECT_EQ(DefaultPromptTokens(EngineDriver(Recurrent(), {.threads = 1}).engine()), 8 * kSegment);
  for (const WaveForm& form : {WaveForm{WaveOrder::kDiagonal, 3, 0}, WaveForm{WaveOrder::kTeams, 2, 1}}) {
    EngineDriver driver(Recurrent(), {.threads = 2, .prefill_chunk = 4});
    EngineWaves& waves = driver.engine().impl().waves;
    waves.given = form;
    std::atomic<size_t> cells{0};
    waves.passed = [&](const WavePiece&, size_t) { ++cells; };
    BenchCaches caches;
    const BenchTest prefill{.test = "prefill", .prompt_tokens = 8 * kSegment, .prompts = {}, .repeat = 2};
    const auto read = RunBench(driver.engine(), prefill, &caches);
    ASSERT_TRUE(read.ok()) << read.error().message();
    EXPECT_EQ(cells.exchange(0), 3 * 7 * kLayers);  // with the warm-up
    EXPECT_EQ(read->samples.size(), 2U);
    const BenchTest decode{.test = "decode", .depth = 5 * kSegment + 2, .gen_tokens = 9, .prompts = {}, .repeat = 3};
    const auto written = RunBench(driver.engine(), decode, &caches);
    ASSERT_TRUE(written.ok()) << written.error().message();
    EXPECT_EQ(cells.exchange(0), 5 * kLayers);  // filled once
    EXPECT_FALSE(written->beyond_context);
    // A wave is no longer than the engine's.
    driver.engine().impl().scheduler->LimitWaves(3 * kSegment, 2);
    ASSERT_TRUE(
        RunBench(driver.engine(), {.test = "prefill", .prompt_tokens = 8 * kSegment, .prompts = {}, .repeat = 1}).ok());
    EXPECT_EQ(cells.load(), 2 * 7 * kLayers - 2 * kLayers);  // the seventh segment is a step
  }
}

// Without associative memories a segment needs the last layer of the one before.
TEST(SegmentPlan, CarriedMemory_LeavesOneOrder) {
  const auto model = testing::LoadRecurrent(testing::ChangedCheckpoint("armt/rmt_llama"));
  EngineDriver driver(model, {.threads = 2, .context = 1000});
  const Plan plan = PlanOf(driver);
  ASSERT_TRUE(plan.segments);
  EXPECT_EQ(plan.segments->orders.size(), 1U);
  EXPECT_EQ(plan.segments->chosen, "sequential");
  EXPECT_EQ(plan.segments->wave_segments, 0U);
  EXPECT_EQ(plan.segments->memory_bytes, kMemory * kHidden * sizeof(float));
  EXPECT_EQ(plan.segments->tail_bytes, (kMemory + kSegment + kMemory) * plan.state_row_bytes);
  for (const size_t depth : {size_t{0}, size_t{5}, 10 * kSegment}) {  // with and without a segment that the steps begin
    const auto decoded =
        RunBench(driver.engine(), {.test = "decode", .depth = depth, .gen_tokens = 9, .prompts = {}, .repeat = 2});
    ASSERT_TRUE(decoded.ok()) << decoded.error().message();
  }
  EXPECT_EQ(driver.engine().impl().waves.wave, nullptr);
}

// Work is that of segments, each with its memory rows and its own attention.
TEST(SegmentBench, Work_GrowsWithTheLength) {
  EngineDriver driver(Recurrent(), {.threads = 1});
  const auto work = [&](size_t segments) {
    const auto result = RunBench(driver.engine(),
                                 {.test = "prefill", .prompt_tokens = segments * kSegment, .prompts = {}, .repeat = 1});
    EXPECT_TRUE(result.ok());
    return *result;
  };
  const BenchResult few = work(2), more = work(3), many = work(12);
  EXPECT_NEAR(many.attention.flops - few.attention.flops, 10 * (more.attention.flops - few.attention.flops),
              1e-6 * many.attention.flops);
  EXPECT_GT(more.products.operations(), few.products.operations());
}

}  // namespace
}  // namespace tidemill::segment_plan_test
