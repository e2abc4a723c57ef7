// Between two growths of the state a step allocates nothing.
#include <gtest/gtest.h>

#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "tests/support/allocation_probe.h"
#include "tests/support/engine_driver.h"
#include "tests/support/model_runner.h"
#include "tests/support/tiny_model.h"

namespace tidemill::engine_allocation_test {
namespace {

using testing::BuildCountingModel;
using testing::BuildTinyLlama;
using testing::EngineDriver;
using testing::LoadModel;
using testing::ModelRunner;
using testing::NumAllocations;
using testing::WriteTemporary;

// Four sequences in one batch: one token each, prompt chunks of 5, or trees of 5 of which a path is taken up.
TEST(EngineAllocation, ExecutorAndState_AllocateNothing) {
  for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
    const std::string path =
        WriteTemporary("engine_allocation.gguf", BuildTinyLlama({.vocab = 300, .context = 512, .dtype = dtype}));
    for (const size_t threads : {1, 2}) {
      for (const auto& [count, tree] : {std::pair{1, false}, std::pair{5, false}, std::pair{5, true}}) {
        const auto rows = static_cast<size_t>(count);
        ModelRunner runner(path, {.threads = threads, .kv_dtype = DType::kF16, .context = 512, .max_rows = 32});
        std::vector<std::unique_ptr<SequenceState>> states;
        std::vector<int32_t> ids(rows);
        std::iota(ids.begin(), ids.end(), 7);
        const std::vector<int32_t> parents = {-1, 0, 0, 1, 2};
        const std::vector<uint32_t> kept = {0, 2, 4};
        std::vector<StepSequence> step;
        for (int i = 0; i < 4; ++i) {
          states.push_back(runner.NewState());
          step.push_back({.state = states.back().get(), .tokens = ids, .rows = tree ? Wanted::kAll : Wanted::kLast});
          if (tree) step.back().parents = parents;
          ASSERT_TRUE(states.back()->Reserve(1).ok());
        }
        const std::vector<RowKey> keys = testing::KeysOf(ids);
        float sum = 0;
        const StepExecutor::RowSink sink = [&sum](size_t, size_t, std::span<float> logits) { sum += logits[0]; };
        const size_t before = NumAllocations();
        for (int i = 0; i < 50; ++i) {
          for (const auto& state : states) ASSERT_TRUE(state->Reserve(rows).ok());
          ASSERT_TRUE(runner.executor().Run(step, sink, nullptr));
          for (const auto& state : states) {
            if (tree) {
              state->CommitPath(kept, std::span(keys).first(kept.size()));
            } else {
              state->Commit(keys);
            }
          }
        }
        EXPECT_EQ(NumAllocations() - before, 0U)
            << InfoOf(dtype).name << ", threads " << threads << ", rows " << rows << ", tree " << tree;
        EXPECT_NE(sum, 0.0f);
      }
    }
  }
}

// The growth steps, by name: the first step of a sequence, and those that pass a multiple of 256 positions.
TEST(EngineAllocation, StepsOfTheEngine_AllocateOnlyWhereTheStateGrows) {
  EngineDriver driver(
      LoadModel("engine_allocation", BuildCountingModel({.vocab = 1000, .context = 700, .eos_token = 999})),
      {.threads = 1, .kv_increment = 256});
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
}  // namespace tidemill::engine_allocation_test
