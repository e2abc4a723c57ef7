// Between two growths of the state a step allocates nothing.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/support/allocation_probe.h"
#include "tests/support/engine_driver.h"
#include "tests/support/model_runner.h"
#include "tests/support/tiny_model.h"

namespace tidemill {
namespace {

using testing::BuildCountingModel;
using testing::BuildTinyLlama;
using testing::EngineDriver;
using testing::LoadModel;
using testing::ModelRunner;
using testing::NumAllocations;
using testing::WriteTemporary;

// Four sequences in one batch: one token each, or prompt chunks of 5.
TEST(EngineAllocation, ExecutorAndState_AllocateNothing) {
  for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
    const std::string path =
        WriteTemporary("engine_allocation.gguf", BuildTinyLlama({.vocab = 300, .context = 512, .dtype = dtype}));
    for (const size_t threads : {1, 2}) {
      for (const size_t rows : {1, 5}) {
        ModelRunner runner(path, {.threads = threads, .kv_dtype = DType::kF16, .context = 512, .max_rows = 32});
        std::vector<std::unique_ptr<SequenceState>> states;
        std::vector<int32_t> ids(rows);
        std::iota(ids.begin(), ids.end(), 7);
        std::vector<StepSequence> step;
        for (int i = 0; i < 4; ++i) {
          states.push_back(runner.NewState());
          step.push_back({.state = states.back().get(), .tokens = ids, .rows = Wanted::kLast});
          ASSERT_TRUE(states.back()->Reserve(1).ok());
        }
        const std::vector<RowKey> keys = testing::KeysOf(ids);
        float sum = 0;
        const SequentialExecutor::RowSink sink = [&sum](size_t, size_t, std::span<float> logits) { sum += logits[0]; };
        const size_t before = NumAllocations();
        for (int i = 0; i < 50; ++i) {
          for (const auto& state : states) ASSERT_TRUE(state->Reserve(rows).ok());
          ASSERT_TRUE(runner.executor().Run(step, sink, nullptr));
          for (const auto& state : states) state->Commit(keys);
        }
        EXPECT_EQ(NumAllocations() - before, 0U) << InfoOf(dtype).name << ", threads " << threads << ", rows " << rows;
        EXPECT_NE(sum, 0.0f);
      }
    }
  }
}

// The growth steps, by name: the first step of a sequence, and those that pass a multiple of 256 positions.
TEST(EngineAllocation, StepsOfTheEngine_AllocateOnlyWhereTheStateGrows) {
  EngineDriver driver(
      LoadModel("engine_allocation", BuildCountingModel({.vocab = 1000, .context = 700, .eos_token = 999})),
      {.threads = 1, .kv_period = 256});
  ASSERT_TRUE(driver.engine().Submit({.prompt = {5}, .generation = {}}).ok());
  std::vector<size_t> growths;
  for (size_t position = 0; position < 600; ++position) {
    const size_t before = NumAllocations();
    ASSERT_EQ(driver.engine().Step().size(), 1U);
    if (NumAllocations() != before) growths.push_back(position);
  }
  EXPECT_EQ(growths, (std::vector<size_t>{0, 256, 512}));
}

}  // namespace
}  // namespace tidemill
