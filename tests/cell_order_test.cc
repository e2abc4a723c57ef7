// Any legal order of cells gives the bits of layer by layer: chunks of one sequence along the diagonal, several requests, lists that mix layers.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/cell_order.h"
#include "engine/step_executor.h"
#include "models/layers/mixture_branch.h"
#include "models/layers/mlp_branch.h"
#include "tests/fixtures_path.h"
#include "tests/support/any_order.h"
#include "tests/support/families.h"
#include "tests/support/fold_branch.h"
#include "tests/support/model_runner.h"

namespace tidemill::cell_order_test {
namespace {

using testing::AnyOrder;
using testing::KeysOf;
using testing::kFamilies;
using testing::ModelRunner;

// Two requests with a few committed tokens: one goes on with three chunks, the other with one row. Logits of all rows, and both states.
struct Outcome {
  std::vector<float> logits;
  std::vector<std::byte> states[2];

  bool operator==(const Outcome& other) const {
    return logits.size() == other.logits.size() &&
           std::memcmp(logits.data(), other.logits.data(), logits.size() * sizeof(float)) == 0 &&
           states[0] == other.states[0] && states[1] == other.states[1];
  }
};

Outcome RunStep(ModelRunner& runner, CellOrder& order) {
  const std::vector<int32_t> ids = {5, 9, 2, 11, 7, 3, 8, 4, 6, 1, 10, 12, 9, 2}, others = {3, 7, 5, 2};
  const auto first = runner.NewState(), second = runner.NewState();
  (void)runner.Feed(*first, std::span(ids).first(3), 3);
  (void)runner.Feed(*second, std::span(others).first(3), 2);
  const std::span<const int32_t> rest = std::span(ids).subspan(3), other = std::span(others).subspan(3);
  EXPECT_TRUE(first->Reserve(rest.size()).ok() && second->Reserve(1).ok());
  const auto chunk = [&](size_t begin, size_t count) {
    return StepSequence{
        .state = first.get(), .tokens = rest.subspan(begin, count), .rows = Wanted::kAll, .slot = begin};
  };
  const std::vector<StepSequence> step = {
      chunk(0, 4), chunk(4, 1), chunk(5, 6), {.state = second.get(), .tokens = other, .rows = Wanted::kAll}};
  Outcome outcome;
  EXPECT_TRUE(runner.executor().Run(
      step,
      [&](size_t, size_t, std::span<float> row) {
        outcome.logits.insert(outcome.logits.end(), row.begin(), row.end());
      },
      nullptr, order));
  first->Commit(KeysOf(rest));
  second->Commit(KeysOf(other));
  outcome.states[0] = first->Checkpoint().value();
  outcome.states[1] = second->Checkpoint().value();
  return outcome;
}

// One layer of a model of mixtures becomes a dense one, so that lists hold both.
void MakeOneLayerDense(LanguageModel& model) {
  std::unique_ptr<Branch>& branch = model.layers[1].branches[1].branch;
  auto* mixture = dynamic_cast<MixtureBranch*>(branch.get());
  if (mixture == nullptr) return;
  branch = std::make_unique<MlpBranch>(std::move(mixture->mixture().experts.front()));
}

// Models as they are, with lists that hold dense layers and mixtures, and with layers that remember in folds beside rows.
TEST(CellOrder, AnyLegalOrder_GivesTheSequentialBits) {
  for (const char* family : kFamilies) {
    for (const auto change : {static_cast<void (*)(LanguageModel&)>(nullptr), MakeOneLayerDense, testing::AddFolds}) {
      ModelRunner runner(std::string(TIDEMILL_FIXTURES) + "/families/" + family,
                         {.threads = 2,
                          .kv_dtype = change == MakeOneLayerDense ? DType::kF16 : DType::kF32,
                          .context = 64,
                          .max_rows = 16,
                          .change = change});
      SequentialOrder sequential;
      const Outcome expected = RunStep(runner, sequential);
      AnyOrder diagonal(true, 0);
      EXPECT_TRUE(RunStep(runner, diagonal) == expected) << family;
      EXPECT_GT(diagonal.lists_of_several(), 1U) << family;
      for (uint64_t seed = 1; seed <= 12; ++seed) {
        AnyOrder order(false, seed);
        EXPECT_TRUE(RunStep(runner, order) == expected) << family << ", seed " << seed;
      }
      // A chunk that looks at keys that are not there yet.
      AnyOrder broken(true, 0, true);
      EXPECT_FALSE(RunStep(runner, broken) == expected) << family << ": the test does not see a broken order";
    }
  }
}

TEST(CellOrder, ChunksOfOneStep_AreTheChunksOfSteps) {
  for (const char* family : kFamilies) {
    ModelRunner runner(std::string(TIDEMILL_FIXTURES) + "/families/" + family, {.context = 64, .max_rows = 16});
    SequentialOrder sequential;
    const Outcome expected = RunStep(runner, sequential);
    const std::vector<int32_t> ids = {5, 9, 2, 11, 7, 3, 8, 4, 6, 1, 10, 12, 9, 2};
    const auto state = runner.NewState();
    (void)runner.Feed(*state, std::span(ids).first(3), 3);
    const std::vector<float> logits = runner.Feed(*state, std::span(ids).subspan(3), 2);
    EXPECT_EQ(state->Checkpoint().value(), expected.states[0]) << family;
    ASSERT_LT(logits.size(), expected.logits.size());
    EXPECT_EQ(std::memcmp(logits.data(), expected.logits.data(), logits.size() * sizeof(float)), 0) << family;
  }
}

}  // namespace
}  // namespace tidemill::cell_order_test
