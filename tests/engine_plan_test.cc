// What a plan says of an engine, and that the engine does it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/support/engine_driver.h"
#include "tests/support/model_runner.h"
#include "tests/support/tiny_model.h"
#include "tidemill/plan.h"

namespace tidemill::engine_plan_test {
namespace {

using testing::BuildCountingModel;
using testing::EngineDriver;
using ::testing::HasSubstr;
using testing::LoadModel;
using testing::WriteTemporary;

constexpr size_t kContext = 64;

std::shared_ptr<const Model> CountingModel() {
  static const auto model = LoadModel("engine_plan", BuildCountingModel({.vocab = 400, .context = kContext}));
  return model;
}

// With a profile that cannot be read nothing is measured, and every number is one of the program's own.
PlanOptions WithoutMeasuring() {
  static const std::string path = WriteTemporary("engine_plan.json", "no profile");
  PlanOptions options;
  options.cpu = "a CPU";
  options.profile_path = path;
  return options;
}

Plan PlanOf(Engine& engine) {
  auto plan = MakePlan(engine, WithoutMeasuring());
  EXPECT_TRUE(plan.ok()) << plan.error().message();
  return std::move(plan).value();
}

uint64_t RowBytes() {
  static const uint64_t bytes =
      PlanOf(EngineDriver(CountingModel(), {.threads = 1, .kv_increment = 1}).engine()).state_row_bytes;
  return bytes;
}

TEST(EnginePlan, GrowthIncrement_IsWhatTheEngineGrowsBy) {
  constexpr uint64_t kKeyBytes = 16 * kContext + 8;
  for (const size_t increment : {64, 32, 16, 8}) {
    for (const size_t batch : {1, 3}) {
      EngineDriver driver(
          CountingModel(),
          {.threads = 1, .max_batch = batch, .state_memory = batch * (8 * increment * RowBytes() + kKeyBytes)});
      const Plan plan = PlanOf(driver.engine());
      EXPECT_EQ(plan.choices.front().name, "growth increment");
      EXPECT_EQ(plan.choices.front().chosen.value, std::to_string(increment) + " tokens");
      const testing::Outcome outcome = driver.Run({5}, {.ignore_eos = true});  // to the end of the context
      EXPECT_EQ(outcome.stats.growth.growths, kContext / increment) << "increment " << increment << ", batch " << batch;
    }
  }
}

TEST(EnginePlan, GrowthIncrementThatWasGiven_IsNotChosen) {
  EngineDriver driver(CountingModel(), {.threads = 1, .kv_increment = 16, .state_memory = uint64_t{1} << 40});
  EXPECT_EQ(PlanOf(driver.engine()).choices.front().reason, "given by --kv-increment");
  EXPECT_EQ(driver.Run({5}, {.ignore_eos = true}).stats.growth.growths, kContext / 16);
}

TEST(EnginePlan, OtherPolicies_KeepTheirDefault) {
  const auto model = LoadModel("engine_plan_long", BuildCountingModel({.vocab = 400, .context = 1024}));
  EngineDriver driver(model, {.threads = 1, .kv_policy = KvPolicy::kReserve});
  EXPECT_EQ(PlanOf(driver.engine()).choices.front().chosen.value, "256 tokens");
}

// Weights are those of the packed model, however it was loaded for the plan; the KV cache is what a request to the end of the context holds.
TEST(EnginePlan, Memory_IsWhatARunTakes) {
  const std::string file = BuildCountingModel({.vocab = 400, .context = kContext});
  const std::string path = testing::WriteTemporary("engine_plan_memory.gguf", file);
  LoadOptions as_file;
  as_file.weights = WeightStorage::kMapped;
  const auto packed = Model::Load(path, {}), mapped = Model::Load(path, as_file);
  ASSERT_TRUE(packed.ok() && mapped.ok());
  ASSERT_GT((*packed)->resident_weight_bytes(), (*mapped)->resident_weight_bytes());
  EngineDriver driver(*packed, {.threads = 1}), other(*mapped, {.threads = 1});
  const PlannedMemory memory = PlanOf(driver.engine()).memory;
  EXPECT_EQ(memory.weights, (*packed)->resident_weight_bytes());
  EXPECT_EQ(PlanOf(other.engine()).memory.weights, memory.weights);
  EXPECT_EQ(memory.kv_cache, driver.Run({5}, {.ignore_eos = true}).stats.growth.allocated_bytes);
  EXPECT_GT(memory.work, 4U << 20);  // what operations share
  PlanOptions options = WithoutMeasuring();
  options.weights = WeightStorage::kMapped;
  options.batch = 3;
  const auto plan = MakePlan(driver.engine(), options);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->memory.weights, (*packed)->info().file_bytes);
  EXPECT_EQ(plan->memory.kv_cache, 3 * memory.kv_cache);
  EXPECT_EQ(plan->memory.work, memory.work);
}

TEST(EnginePlan, UnreadableProfile_IsAWarningAndBuiltInNumbersServe) {
  EngineDriver driver(CountingModel(), {.threads = 1});
  const Plan plan = PlanOf(driver.engine());
  ASSERT_EQ(plan.warnings.size(), 1U);
  EXPECT_THAT(plan.warnings[0], HasSubstr("read the machine's profile: " + WithoutMeasuring().profile_path));
  EXPECT_FALSE(plan.profile.measured);
  EXPECT_EQ(plan.context, kContext);
}

TEST(EnginePlan, RequestsInFlight_AreRefused) {
  EngineDriver driver(CountingModel(), {.threads = 1});
  driver.Submit({5}, {});
  const auto plan = MakePlan(driver.engine(), WithoutMeasuring());
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code(), ErrorCode::kFailedPrecondition);
  driver.RunUntilIdle();
  EXPECT_TRUE(MakePlan(driver.engine(), WithoutMeasuring()).ok());
}

TEST(EnginePlan, BatchOfNone_IsRefused) {
  EngineDriver driver(CountingModel(), {.threads = 1});
  PlanOptions options = WithoutMeasuring();
  options.batch = 0;
  const auto plan = MakePlan(driver.engine(), options);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tidemill::engine_plan_test
