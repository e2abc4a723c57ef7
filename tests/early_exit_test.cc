// A step through the first layers gives what a model gives that has no others: same bits, in every family.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/registry.h"
#include "tests/fixtures_path.h"
#include "tests/support/families.h"
#include "tests/support/model_runner.h"

namespace tidemill::early_exit_test {
namespace {

using testing::KeysOf;
using testing::kFamilies;
using testing::ModelRunner;

// Logits [ids, vocab], in two steps.
std::vector<float> Feed(StepExecutor& executor, SequenceState& state, std::span<const int32_t> ids, size_t num_layers) {
  std::vector<float> logits;
  for (const auto& part : {ids.first(5), ids.subspan(5)}) {
    EXPECT_TRUE(state.Reserve(part.size()).ok());
    const StepSequence step{.state = &state, .tokens = part, .rows = Wanted::kAll};
    SequentialOrder order(num_layers);
    EXPECT_TRUE(executor.Run(
        {&step, 1}, [&](size_t, size_t, std::span<float> row) { logits.insert(logits.end(), row.begin(), row.end()); },
        nullptr, order));
    state.Commit(KeysOf(part));
  }
  return logits;
}

TEST(EarlyExit, IsTheModelWithoutTheOtherLayers) {
  const std::vector<int32_t> ids = {5, 9, 2, 11, 7, 3, 8};
  for (const std::string family : kFamilies) {
    const std::string path = std::string(TIDEMILL_FIXTURES) + "/families/" + family;
    ModelRunner whole(path, {.threads = 2, .context = 64, .max_rows = 8});
    const size_t layers = whole.model().layers.size();
    const StateOptions options{.kv_dtype = DType::kF32, .max_length = 64};
    ASSERT_GE(layers, 2U) << family;
    for (size_t num_layers = 1; num_layers <= layers; ++num_layers) {
      const auto state = whole.model().MakeState(options);
      const auto found = Feed(whole.executor(), *state, ids, num_layers);

      auto files = ModelFiles::Open(path);
      ASSERT_TRUE(files.ok());
      auto threads = ThreadPool::Create(1);
      ASSERT_TRUE(threads.ok());
      LoadSettings settings;
      settings.threads = threads->get();
      auto model = LoadLanguageModel(*files, settings);
      ASSERT_TRUE(model.ok());
      while ((*model)->layers.size() > num_layers) (*model)->layers.pop_back();
      auto ctx = ExecutionContext::Create(DetectIsa(), threads->get(), (*model)->scratch_bytes());
      ASSERT_TRUE(ctx.ok());
      auto executor = StepExecutor::Create(**model, *ctx, 8);
      ASSERT_TRUE(executor.ok());
      EXPECT_EQ(found, Feed(**executor, *(*model)->MakeState(options), ids, SIZE_MAX))
          << family << ", " << num_layers << " of " << layers;
    }
  }
}

}  // namespace
}  // namespace tidemill::early_exit_test
